"""Fixtures that open the emulated GPU in this process, with a seed and a test's own kernels, or in a sanitised one.

The option `--every-architecture` sets how many cubins are compiled.
"""

import os
import shutil
import subprocess

import pytest
from cupy_over_sim import cupy  # noqa: F401  # a fixture

import isokern
from isokern.simt import Folder


def pytest_addoption(parser):
    parser.addoption(
        "--every-architecture",
        action="store_true",
        help="every cubin of every architecture, not of the oldest one alone: some 13,000",
    )


@pytest.fixture(scope="session", autouse=True)
def settings(cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOKERN_CACHE", str(cache))
        patch.setenv("ISOKERN_PLUGINS", "cuda")
        isokern.backends()  # declares the plug-in's settings
        yield


@pytest.fixture
def driver(settings):
    """Return a function that makes a driver which runs blocks and threads in an order drawn from a seed."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    emulated = pytest.importorskip("isokern_cuda.emulated")

    def make(seed=0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ISOKERN_CUDA_SIM_SEED", str(seed))
            return emulated.driver()

    return make


@pytest.fixture
def opened(driver, monkeypatch):
    """Return a function that makes a device; kernels of `folder` take precedence, and self-tests are off by default."""
    from isokern_cuda.devices import CudaDevice

    def make(seed=0, folder=None, selftest=0):
        monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", str(selftest))  # a self-test would disable a wrong kernel
        device = CudaDevice("cuda_sim:0", driver(seed))
        if folder is not None:
            device.folders = (Folder("planted", 10, folder), *device.folders)
        return device

    return make


@pytest.fixture(scope="session")
def sanitizer():
    """Return the environment variables of a process whose emulated kernels are sanitised."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    command = ["g++", "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip("g++ has no libasan")
    return {"ISOKERN_CUDA_SIM_SANITIZE": "1", "LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0"}
