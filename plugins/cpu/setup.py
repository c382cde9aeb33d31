"""Builds libisokern_cpu and the cffi extension that calls it, by the ninja file that kernel_build.py writes."""

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
KEPT = Path("build/editable")  # of an editable install: what it rebuilds by


class BuildKernels(build_ext):
    """build_ext by ninja: into the wheel's folder or, for an editable install, beside the package's modules."""

    def run(self):
        editable = bool(self.inplace or self.editable_mode)
        target = PACKAGE if editable else Path(self.build_lib, PACKAGE.name)
        folder = KEPT if editable else kernel_build.wheel_folder(Path(self.build_temp))
        for needed in (target, folder):
            needed.mkdir(parents=True, exist_ok=True)
        command = os.path.join(BIN_DIR, "ninja")  # no folder where pip builds in isolation: there it is found by PATH
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of builds that run at once
            kernel_build.configure(folder, target, editable=editable)
            environment = {**os.environ, "PYTHON": sys.executable}  # what steps of ninja's file run by
            if (
                subprocess.run([command, "-f", str(folder / "build.ninja")], env=environment, check=False).returncode
                != 0
            ):
                raise SystemExit("isokern-cpu: ninja failed; its messages stand above")
        write_host_files(target, "isokern-cpu", ["libisokern_cpu.so"])
        if editable:
            shutil.copyfile(
                folder / "settings.json", PACKAGE / "editable.json"
            )  # the package rebuilds itself where this is


setup(
    ext_modules=[Extension("isokern_cpu._native", [], py_limited_api=True)],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},  # one wheel for all Pythons: cffi keeps to the stable ABI
)
