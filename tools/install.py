"""Install distributions of this checkout into this environment: `python tools/install.py core 'plugins/opencl[pocl]'`.

Each is installed from its wheel, and a wheel is built again only when one of its source files has changed. So every
edit takes effect, and a dozen tox environments compile the kernels once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".tox" / "wheels"
# A build copies the licence of the checkout next to the package: with it, the second fingerprint would be another one
NOT_SOURCES = {"generated", "build", "dist", "__pycache__", "LICENSE"}
NOT_DERIVED_FROM = {  # parts of core that no plug-in's generated files depend on
    "array_api",
    "bench",
    "call",
    "cli",
    "conformance",
    "demo",
    "eager",
    "graph",
    "importing",
    "llm",
    "measure",
    "onnx",
    "oracle",
    "passes",
    "rewriting",
    "runtime",
    "scaffold",
    "serve",
    "tensors",
    "torch",
    "view",
}
FLAGS = ("CC", "CXX", "CFLAGS", "LDFLAGS", "ISOKERN_CPU_CFLAGS", "ISOKERN_CPU_LEVELS")


def sources(folder: Path, without: set[str]) -> Iterator[Path]:
    """Yield the files below `folder` that a wheel is made from."""
    for path in sorted(folder.rglob("*")):
        parts = set(path.relative_to(folder).parts)
        if (
            path.is_file()
            and path.suffix != ".so"
            and not parts & without
            and not any(p.endswith(".egg-info") for p in parts)
        ):
            yield path


def fingerprint(folder: Path) -> str:
    """Return a text that changes whenever the wheel of `folder` would."""
    files = list(sources(folder, NOT_SOURCES))
    if folder != ROOT / "core" and (folder / "build_backend.py").exists():
        files += sources(ROOT / "core", NOT_SOURCES | NOT_DERIVED_FROM)
    compilers = [shutil.which(name) for name in ("cc", "g++")]  # a later build may find others
    digest = hashlib.sha256(repr([compilers, [os.environ.get(f) for f in FLAGS]]).encode())
    for path in files:
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def made_by_uv() -> bool:
    """Return whether uv made the running environment, as it does where tox-uv is installed.

    Then uv also installs into it, from its one cache.
    """
    return "\nuv = " in Path(sys.prefix, "pyvenv.cfg").read_text(encoding="utf-8")


def install(*arguments: str) -> None:
    """Install into the running environment."""
    tool = ["uv", "pip", "install"] if made_by_uv() else ["pip", "--disable-pip-version-check", "install"]
    subprocess.run([sys.executable, "-m", *tool, "-q", *arguments], check=True)


def build_wheel(folder: Path, to: str) -> None:
    """Build the wheel of `folder` in an environment of its own."""
    tool = ["uv", "build", "--wheel", "-o"] if made_by_uv() else ["pip", "wheel", "--no-deps", "-w"]
    subprocess.run([sys.executable, "-m", *tool, to, "-q", str(folder)], check=True)


def wheel(folder: Path) -> Path:
    """Return the wheel of `folder` as it is now.

    Concurrent environments wait for the one that builds it.
    """
    kept = KEPT / f"{folder.name}-{fingerprint(folder)}"
    with open(KEPT / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            print(f"building {folder.relative_to(ROOT)}", flush=True)
            for old in sorted(KEPT.glob(f"{folder.name}-*"), key=lambda p: p.stat().st_mtime)[:-3]:
                shutil.rmtree(old)
            with tempfile.TemporaryDirectory(dir=KEPT) as fresh:
                build_wheel(folder, f"{fresh}/made")
                os.replace(f"{fresh}/made", kept)
    (made,) = kept.glob("*.whl")
    return made


def main(folders: list[str]) -> None:
    """Build the wheels that are missing, then install all in one command."""
    KEPT.mkdir(parents=True, exist_ok=True)
    wanted = [f.partition("[") for f in folders]
    wheels = [(wheel(ROOT / f), bracket + extras) for f, bracket, extras in wanted]
    install("--reinstall" if made_by_uv() else "--force-reinstall", "--no-deps", *(str(w) for w, _ in wheels))
    install(*(f"{w}{extras}" for w, extras in wheels))


if __name__ == "__main__":
    main(sys.argv[1:])
