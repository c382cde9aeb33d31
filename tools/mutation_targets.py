"""Targets: how a changed kernel file is built and run, for tools/mutations.py.

The mutant is built apart from the installed plug-in, with no other kernel to fall back to.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CPU = ROOT / "plugins" / "cpu"
KUNLUN = ROOT / "plugins" / "kunlun_sim"
PORTABLE = ROOT / "core" / "src" / "isokern" / "simt" / "kernels"
CPU_KERNELS = (
    "add_rms_norm.c",
    "argmax.c",
    "batch_norm.c",
    "cache_update.c",
    "cast.h",
    "causal_softmax.c",
    "concat.c",
    "copy_slice.c",
    "elementwise.c",
    "embedding.c",
    "fill.c",
    "gather.c",
    "layer_norm.c",
    "move.h",
    "pad.c",
    "reduce.c",
    "reduce_typed.h",
    "rms_norm.c",
    "rope.c",
    "select.h",
    "softmax.c",
    "topk.c",
)
PORTABLE_KERNELS = (
    "argmax.c",
    "copy_slice.c",
    "fold.h",
    "gather.c",
    "pad.c",
    "reduce.c",
    "rope.c",
    "select.h",
    "softmax.c",
    "topk.c",
)
KUNLUN_KERNELS = (
    "argmax.xpu",
    "concat.xpu",
    "gather.xpu",
    "layer_norm.xpu",
    "pad.xpu",
    "reduce.xpu",
    "rope.xpu",
    "row_blocking.h",
    "row_reduction.h",
    "row_tiles.h",
    "softmax.h",
    "topk.xpu",
)


class NotBuilt(Exception):
    """The mutant does not compile; the message is the compiler's."""


def run(command: Sequence[str | Path], **options: object) -> None:
    """Run a compiler or linker."""
    done = subprocess.run(  # type: ignore[call-overload]
        [str(c) for c in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise NotBuilt(done.stderr)


def including(folder: Path, file: Path, stems: Sequence[str]) -> list[str]:
    """Return the stems whose kernel in `folder` is the file, or includes it, directly or not."""
    found, waiting = {file.name}, [file.name]
    texts = {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir() if p.suffix in (".c", ".h", ".xpu")}
    while waiting:
        name = waiting.pop()
        more = [n for n, text in texts.items() if f'#include "{name}"' in text and n not in found]
        found.update(more)
        waiting += more
    return sorted(s for s in stems if {f"{s}.c", f"{s}.xpu"} & found)


class CpuTarget:
    """The CPU plug-in with the mutant's stems alone, at the best instruction-set level of this machine.

    So there is no kernel that a fault could fall back to.
    """

    module = "isokern_cpu"
    kernels = CPU / "src" / "isokern_cpu" / "kernels"
    names = CPU_KERNELS

    def __init__(self, work: Path) -> None:
        self.work = work
        self.site = work / "site"
        shutil.rmtree(work, ignore_errors=True)
        package = self.site / "isokern_cpu"
        package.mkdir(parents=True)
        import isokern_cpu

        installed = Path(isokern_cpu.__file__).parent
        for path in (*installed.glob("*.py"), *installed.glob("_native*.so")):
            shutil.copy(path, package)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "core" / "src")}
        run([sys.executable, "-m", "isokern.cabi.generate", work / "generated"], env=environment)
        (work / "kernels").mkdir()
        for path in self.kernels.glob("*.[ch]"):
            shutil.copy(path, work / "kernels")
        self.settings: dict[str, Any] = runpy.run_path(str(CPU / "kernel_build.py"))
        levels = json.loads(
            subprocess.run(
                [sys.executable, "-m", "isokern", "devices", "--json"], capture_output=True, check=True
            ).stdout
        )
        self.level = next(row for row in levels if row.get("device") == "cpu:0")["properties"]["levels"][-1]
        self.flags = [f for f in self.settings["FLAGS"] if f not in ("-Werror", "-Wall", "-Wextra")] + ["-w"]
        self.of_level = self.settings["OWN_LEVELS"][self.level]
        self.runtime = [self._object(p, work / "runtime" / f"{p.stem}.o") for p in self._runtime_sources()]
        self.originals: dict[str, Path] = {}

    def _runtime_sources(self) -> list[Path]:
        return [
            *sorted((CPU / "src" / "isokern_cpu" / "native").glob("*.c")),
            *sorted((self.work / "generated").glob("isokern_*.c")),
        ]

    def _object(self, source: Path, target: Path, flags: Sequence[str] = ()) -> Path:
        """Compile a file as the plug-in's build does; `flags` are those of a kernel besides the common ones."""
        target.parent.mkdir(parents=True, exist_ok=True)
        native = CPU / "src" / "isokern_cpu" / "native"
        folders = [f"-I{f}" for f in (self.work / "kernels", native, self.work / "generated")]
        run(
            [
                os.environ.get("CC", "cc"),
                "-fPIC",
                *self.flags,
                *flags,
                f"-DIK_LEVEL={self.level}",
                *folders,
                "-c",
                source,
                "-o",
                target,
            ]
        )
        return target

    def _kernel(self, stem: str, folder: str) -> Path:
        flags = [*self.of_level, *self.settings["OF_STEM"].get(stem, [])]
        return self._object(self.work / "kernels" / f"{stem}.c", self.work / folder / f"{stem}.o", flags)

    def stems(self, file: Path) -> list[str]:
        """Return the stems that a file is part of."""
        return including(self.kernels, file, [p.stem for p in self.kernels.glob("*.c")])

    def build(self, file: Path, source: str) -> bool:
        """Build the mutant into the site of `environment`; return False if its object code is that of the original."""
        stems = self.stems(file)
        for stem in stems:
            if stem not in self.originals:
                self.originals[stem] = self._kernel(stem, "original")
        target = self.work / "kernels" / file.name
        before = target.read_text(encoding="utf-8")
        target.write_text(source, encoding="utf-8")
        try:
            objects = [self._kernel(s, "mutant") for s in stems]
        finally:
            target.write_text(before, encoding="utf-8")
        if all(o.read_bytes() == self.originals[o.stem].read_bytes() for o in objects):
            return False
        table = self.work / "variants.c"
        rows = [(self.level, 0, self.work / "kernels" / f"{s}.c") for s in stems]
        table.write_text(variant_table(rows))
        listed = self._object(table, self.work / "mutant" / "variants.o")
        library = self.site / "isokern_cpu" / "libisokern_cpu.so"
        library.unlink(missing_ok=True)
        link = [os.environ.get("CC", "cc"), "-shared", "-pthread", "-Wl,-soname,libisokern_cpu.so"]
        run([*link, *self.runtime, *objects, listed, "-lm", "-o", library])
        return True

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge."""
        return {**os.environ, "PYTHONPATH": str(self.site), "ISOKERN_PLUGINS": "cpu"}


class PortableTarget:
    """The portable kernels on a device that compiles them when they are needed, from a copy of core."""

    module = "isokern"
    kernels = PORTABLE
    names = PORTABLE_KERNELS

    def __init__(self, work: Path) -> None:
        self.work, self.site = work, work / "site"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(
            ROOT / "core" / "src" / "isokern", work / "site" / "isokern", ignore=shutil.ignore_patterns("__pycache__")
        )

    def stems(self, file: Path) -> list[str]:
        """Return the stems that a file is part of."""
        return including(PORTABLE, file, [p.stem for p in PORTABLE.glob("*.c")])

    def build(self, file: Path, source: str) -> bool:
        """Change the file in the copy, and no other."""
        folder = self.work / "site" / "isokern" / "simt" / "kernels"
        for path in PORTABLE.glob("*.[ch]"):
            shutil.copy(path, folder)
        (folder / file.name).write_text(source, encoding="utf-8")
        return True

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge."""
        return {**os.environ, "PYTHONPATH": str(self.work / "site")}


class KunlunTarget:
    """The emulated XPU with the mutant's stems alone; the plug-in need not be installed."""

    module = "isokern_kunlun_sim"
    kernels = KUNLUN / "src" / "isokern_kunlun_sim" / "kernels"
    names = KUNLUN_KERNELS

    def __init__(self, work: Path) -> None:
        self.work, self.site = work, work / "site"
        shutil.rmtree(work, ignore_errors=True)
        self.package = self.site / "isokern_kunlun_sim"
        shutil.copytree(self.kernels.parent, self.package, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
        information = self.site / "isokern_kunlun_sim-0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: isokern-kunlun-sim\nVersion: 0\n")
        (information / "entry_points.txt").write_text("[isokern]\nkunlun_sim = isokern_kunlun_sim\n")
        self.generated = self.package / "generated"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "core" / "src")}
        run([sys.executable, "-m", "isokern.cabi.generate", self.generated], env=environment)
        sys.path.insert(0, str(self.site))
        from isokern_kunlun_sim import compiling

        self.compiling, self.compiler = compiling, compiling.compiler() or "g++"
        shutil.copy(compiling.runtime(self.compiler, work / "xpurt", self.generated), self.package)
        self.include = [self.package / "native", self.generated]
        host = [*sorted(self.generated.glob("isokern_*.c")), self.package / "native" / "host.cpp"]
        self.host = [self._host_object(source) for source in host]
        self.originals: dict[str, Path] = {}

    def _host_object(self, source: Path) -> Path:
        target = self.work / "host" / f"{source.stem}.o"
        target.parent.mkdir(exist_ok=True)
        language = ["-x", "c", "-std=c11"] if source.suffix == ".c" else ["-std=c++17"]
        folders = [f"-I{p}" for p in (self.package / "include", *self.include)]
        run(
            [
                self.compiler,
                *language,
                *self.compiling.COMMON,
                "-O2",
                "-w",
                "-DIK_LEVEL=xpu",
                *folders,
                "-c",
                source,
                "-o",
                target,
            ]
        )
        return target

    def _object(self, stem: str, folder: Path) -> Path:
        source = self.package / "kernels" / f"{stem}.xpu"
        try:
            made: Path = self.compiling.kernel_object(self.compiler, source, "fast", folder, self.include)
        except self.compiling.CompileError as error:
            raise NotBuilt(str(error)) from None
        return made

    def stems(self, file: Path) -> list[str]:
        """Return the stems that a file is part of."""
        return including(self.kernels, file, [p.stem for p in self.kernels.glob("*.xpu")])

    def build(self, file: Path, source: str) -> bool:
        """Build the mutant into the site of `environment`; return False if its object code is that of the original."""
        stems = self.stems(file)
        for stem in stems:
            if stem not in self.originals:
                self.originals[stem] = self._object(stem, self.work / "original")
        target = self.package / "kernels" / file.name
        before = target.read_text(encoding="utf-8")
        target.write_text(source, encoding="utf-8")
        try:
            objects = [self._object(stem, self.work / "mutant") for stem in stems]
        finally:
            target.write_text(before, encoding="utf-8")
        if all(code(o) == code(self.originals[o.stem]) for o in objects):
            return False
        table = self.generated / "variants.c"
        table.write_text(variant_table([("xpu", 0, self.package / "kernels" / f"{s}.xpu") for s in stems]))
        library = self.package / "libisokern_kunlun_fast.so"
        library.unlink(missing_ok=True)
        self.compiling.library(self.compiler, library, [*self.host, self._host_object(table), *objects])
        return True

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge."""
        return {**os.environ, "PYTHONPATH": str(self.site), "ISOKERN_PLUGINS": "kunlun_sim"}


def variant_table(rows: Sequence[tuple[str, int, Path]]) -> str:
    """Return the table of kernels that the build of a plug-in writes."""
    from isokern import build_plugin

    return build_plugin.variant_table(rows)


def code(object_file: Path) -> bytes:
    """Return an object file without what only debuggers read."""
    stripped = object_file.with_suffix(".stripped")
    run(["objcopy", "--strip-debug", object_file, stripped])
    return stripped.read_bytes()


Target = CpuTarget | PortableTarget | KunlunTarget
KINDS: dict[str, type[CpuTarget] | type[PortableTarget] | type[KunlunTarget]] = {
    "cpu": CpuTarget,
    "kunlun_sim": KunlunTarget,
}


def kind_of(device: str) -> type[CpuTarget] | type[PortableTarget] | type[KunlunTarget]:
    """Return the target of a device.

    It is the one of portable kernels where the device's plug-in has no kernels that are compiled in advance.
    """
    return KINDS.get(device.partition(":")[0], PortableTarget)


def check_found(target: Target) -> None:
    """Check that the judge's Python imports the package with the mutant.

    If it imported another one, every mutant would survive.
    """
    command = [sys.executable, "-c", f"import {target.module}; print({target.module}.__file__)"]
    done = subprocess.run(command, env=target.environment, cwd=ROOT, capture_output=True, text=True, check=True)
    if not Path(done.stdout.strip()).is_relative_to(target.site):
        raise SystemExit(f"{target.module} is found at {done.stdout.strip()}, not below {target.site}")
