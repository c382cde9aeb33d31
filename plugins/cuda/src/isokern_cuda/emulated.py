"""Opening the emulated GPU as the environment variables ask for it."""

from __future__ import annotations

import ctypes
import shutil

from isokern import settings
from isokern.backend import Unavailable
from isokern.status import InvalidArgument

from .checked import CheckedDriver
from .settings import CHECK, SANITIZE, SEED, THREADS
from .sim import SimDriver

ALLOWED_THREADS = ("32", "64", "128", "256", "512", "1024")  # of a block


def driver() -> SimDriver:
    """Return the one emulated GPU, where there is a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unavailable(
            "it compiles kernels when they are needed, and there is no g++ on the PATH: install g++ 11 or newer"
        )
    seed = settings.get(SEED) or "0"
    if not seed.isdecimal():
        raise InvalidArgument("environment", f"{SEED}={seed}", allowed="an integer from 0")
    sanitize = settings.get(SANITIZE) or "0"
    if sanitize not in ("0", "1"):
        raise InvalidArgument("environment", f"{SANITIZE}={sanitize}", allowed="0 or 1")
    if sanitize == "1" and not hasattr(ctypes.CDLL(None), "__asan_init"):
        raise Unavailable(
            f"{SANITIZE}=1 needs the sanitizer's library before all others: start the process with"
            " ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(g++ -print-file-name=libasan.so)"
        )
    threads = settings.get(THREADS) or "64"
    if threads not in ALLOWED_THREADS:
        raise InvalidArgument("environment", f"{THREADS}={threads}", allowed=", ".join(ALLOWED_THREADS))
    check = settings.get(CHECK) or "0"
    if check not in ("0", "1"):
        raise InvalidArgument("environment", f"{CHECK}={check}", allowed="0 or 1")
    if check == "1" and sanitize == "1":
        raise InvalidArgument("environment", f"{CHECK}=1 and {SANITIZE}=1", allowed="one of them")
    if check == "1":
        return CheckedDriver(compiler, int(seed), threads=int(threads))
    return SimDriver(compiler, int(seed), sanitize == "1", int(threads))
