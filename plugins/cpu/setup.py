"""Builds libisokern_cpu and the cffi extension that calls it, with the ninja file that kernel_build.py writes."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kernel_build
from build_backend import write_host_files
from ninja import BIN_DIR
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/isokern_cpu")
KEPT = Path("build/editable")  # the build folder of an editable install, for its rebuilds


class BuildKernels(build_ext):
    """build_ext by ninja: into the wheel's folder or, for an editable install, next to the package's modules."""

    def run(self):
        editable = bool(self.inplace or self.editable_mode)
        target = PACKAGE if editable else Path(self.build_lib, PACKAGE.name)
        folder = KEPT if editable else kernel_build.wheel_folder(Path(self.build_temp))
        for needed in (target, folder):
            needed.mkdir(parents=True, exist_ok=True)
        command = os.path.join(BIN_DIR, "ninja")  # where pip builds in isolation, BIN_DIR is empty and PATH has ninja
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # against concurrent builds
            kernel_build.configure(folder, target, editable=editable)
            environment = {**os.environ, "PYTHON": sys.executable}  # runs the steps of the ninja file
            if (
                subprocess.run([command, "-f", str(folder / "build.ninja")], env=environment, check=False).returncode
                != 0
            ):
                raise SystemExit("isokern-cpu: ninja failed; its messages stand above")
        write_host_files(target, "isokern-cpu", ["libisokern_cpu.so"])
        if editable:
            shutil.copyfile(
                folder / "settings.json", PACKAGE / "editable.json"
            )  # where this file exists, the package rebuilds itself


setup(
    ext_modules=[Extension(f"isokern_cpu.{name}", [], py_limited_api=True) for name in ("_native", "_calls")],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},  # one wheel for all Pythons: cffi uses only the stable ABI
)
