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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isokern.build import variant_table

ROOT = Path(__file__).resolve().parents[1]
CPU = ROOT / "plugins" / "cpu"
KUNLUN = ROOT / "plugins" / "kunlun_sim"
PORTABLE = ROOT / "core" / "src" / "isokern" / "simt" / "kernels"
OPENCL = ROOT / "plugins" / "opencl"
CUDA = ROOT / "plugins" / "cuda"
CODE = (".c", ".h", ".xpu")  # suffixes of kernel files


Check = tuple[str, dict[str, str]]  # a name, and the environment variables under which cases run again


class NotBuilt(Exception):
    """The mutant does not compile; the message is the compiler's."""


def run(command: Sequence[str | Path], **options: object) -> None:
    """Run a compiler or linker."""
    done = subprocess.run(  # type: ignore[call-overload]
        [str(c) for c in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise NotBuilt(done.stderr)


def list_undefined(object_file: Path) -> list[str]:
    """Return the symbols that an object file uses and does not define."""
    listed = subprocess.run(["nm", "-u", "-P", object_file], capture_output=True, text=True, check=True).stdout
    return [row.split()[0] for row in listed.splitlines()]


def sanitizer(compiler: str) -> dict[str, str]:
    """Return the environment variables under which Python loads a library with a compiler's AddressSanitizer."""
    command = [compiler, "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}


def code_files(folder: Path) -> list[Path]:
    """Return the kernel files of a folder."""
    return sorted(p for p in folder.iterdir() if p.suffix in CODE)


def link_installed(site: Path, package: str) -> None:
    """Write what makes the copy of a plug-in in `site` one that is installed there."""
    information = site / f"{package}-0.dist-info"
    information.mkdir()
    name = package.replace("_", "-")
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    plugin = package.removeprefix("isokern_")
    (information / "entry_points.txt").write_text(f"[isokern]\n{plugin} = {package}\n")


def including(folder: Path, file: Path, stems: Sequence[str]) -> list[str]:
    """Return the stems whose kernel in `folder` is the file, or includes it, directly or not."""
    found, waiting = {file.name}, [file.name]
    texts = {p.name: p.read_text(encoding="utf-8") for p in code_files(folder)}
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
    tests: tuple[str, ...] = ()  # the site has the mutant's stems alone
    kernels = CPU / "src" / "isokern_cpu" / "kernels"

    @classmethod
    def files(cls) -> list[Path]:
        """Return the kernel files that mutants are made of."""
        return code_files(cls.kernels)

    def __init__(self, work: Path) -> None:
        self.work = work
        self.site = work / "site"
        shutil.rmtree(work, ignore_errors=True)
        package = self.site / "isokern_cpu"
        package.mkdir(parents=True)
        import isokern_cpu

        installed = Path(isokern_cpu.__file__).parent
        for path in (*installed.glob("*.py"), *installed.glob("_*.so"), installed / "claims.txt"):
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
        self.all_stems = [p.stem for p in self.kernels.glob("*.c")]

    def _runtime_sources(self) -> list[Path]:
        return [
            *sorted((CPU / "src" / "isokern_cpu" / "native").glob("*.c")),
            *sorted((self.work / "generated").glob("isokern_*.c")),
            self.work / "generated" / "host_device.c",
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

    def _kernel(self, stem: str, folder: str, *more: str) -> Path:
        flags = [*self.of_level, *self.settings["OF_STEM"].get(stem, []), *more]
        return self._object(self.work / "kernels" / f"{stem}.c", self.work / folder / f"{stem}.o", flags)

    def stems(self, file: Path) -> list[str]:
        """Return the stems that a file is part of."""
        return including(self.kernels, file, self.all_stems)

    def build(self, file: Path, source: str) -> bool:
        """Build the mutant into the site of `environment`; return False if its object code is that of the original."""
        stems = self.stems(file)
        for stem in stems:
            if stem not in self.originals:
                self.originals[stem] = self._kernel(stem, "original")
        objects = self._mutant(file, source, stems)
        if all(o.read_bytes() == self.originals[o.stem].read_bytes() for o in objects):
            return False
        self._link(stems, objects)
        return True

    def _find_needed(self, objects: Sequence[Path]) -> list[Path]:
        """Return the unchanged objects of other stems whose functions these objects call."""
        found = {o.stem: o for o in objects}
        waiting = list(objects)
        while waiting:
            ends = f"__{self.level}"
            names = [n.removesuffix(ends) for n in list_undefined(waiting.pop()) if n.endswith(ends)]
            for stem in {max(filter(n.startswith, self.all_stems), key=len) for n in names} - set(found):
                if stem not in self.originals:
                    self.originals[stem] = self._kernel(stem, "original")
                found[stem] = self.originals[stem]
                waiting.append(found[stem])
        return [o for o in found.values() if o not in objects]

    def _mutant(self, file: Path, source: str, stems: Sequence[str], *flags: str) -> list[Path]:
        target = self.work / "kernels" / file.name
        before = target.read_text(encoding="utf-8")
        target.write_text(source, encoding="utf-8")
        try:
            return [self._kernel(s, "mutant", *flags) for s in stems]
        finally:
            target.write_text(before, encoding="utf-8")

    def _link(self, stems: Sequence[str], objects: Sequence[Path], *flags: str) -> None:
        table = self.work / "variants.c"
        rows = [(self.level, 0, self.work / "kernels" / f"{s}.c") for s in stems]
        table.write_text(variant_table(rows))
        listed = self._object(table, self.work / "mutant" / "variants.o")
        library = self.site / "isokern_cpu" / "libisokern_cpu.so"
        library.unlink(missing_ok=True)
        link = [os.environ.get("CC", "cc"), "-shared", "-pthread", "-Wl,-soname,libisokern_cpu.so", *flags]
        try:
            run([*link, *self.runtime, *objects, *self._find_needed(objects), listed, "-lm", "-o", library])
        except NotBuilt as error:  # no fault of the mutant
            raise SystemExit(f"the kernels of {', '.join(stems)} do not link: {error}") from None

    def checks(self, file: Path, source: str) -> Iterator[Check]:
        """Yield the kernels of the mutant under AddressSanitizer and UBSan."""
        stems = self.stems(file)
        sanitize = "-fsanitize=address,undefined"
        pattern = "-ftrivial-auto-var-init=pattern"  # no local array begins with what happens to be right
        objects = self._mutant(file, source, stems, "-O1", pattern, sanitize, "-fno-sanitize-recover=all")
        self._link(stems, objects, sanitize)
        yield "sanitizers", {**self.environment, **sanitizer(os.environ.get("CC", "cc"))}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge."""
        return {**os.environ, "PYTHONPATH": str(self.site), "ISOKERN_PLUGINS": "cpu"}


class PortableTarget:
    """The portable kernels, and those of a plug-in that replace some, on a device that compiles them when needed.

    Core and the plug-in are copies.
    """

    module = "isokern"
    kernels = PORTABLE
    tests: tuple[str, ...]  # of the plug-in's kernels
    plugin: Path  # its package
    own: Path  # the plug-in's kernels that replace portable ones on the device that is judged

    @classmethod
    def files(cls) -> list[Path]:
        """Return the plug-in's files, and the portable ones that are part of a kernel that it does not replace."""
        stems = {p.stem for p in PORTABLE.glob("*.c")} - {p.stem for p in cls.own.glob("*.c")}
        used = [p for p in code_files(PORTABLE) if including(PORTABLE, p, sorted(stems))]
        return [*code_files(cls.own), *used]

    def __init__(self, work: Path) -> None:
        self.work, self.site = work, work / "site"
        shutil.rmtree(work, ignore_errors=True)
        for package in (ROOT / "core" / "src" / "isokern", self.plugin):
            shutil.copytree(package, self.site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        link_installed(self.site, self.plugin.name)

    def stems(self, file: Path) -> list[str]:
        """Return the stems that a file is part of."""
        known = [p.stem for p in file.parent.glob("*.c")]
        replaced = {p.stem for p in self.own.glob("*.c")} if file.parent == PORTABLE else set()
        return [s for s in including(file.parent, file, known) if s not in replaced]

    def build(self, file: Path, source: str) -> bool:
        """Change the file in the copy, and no other."""
        for folder in (PORTABLE, self.own):
            for path in code_files(folder):
                shutil.copy(path, self._copy(path))
        self._copy(file).write_text(source, encoding="utf-8")
        return True

    def _copy(self, file: Path) -> Path:
        inside = PORTABLE.parents[1] if file.parent == PORTABLE else self.plugin
        return self.site / inside.name / file.relative_to(inside)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge."""
        return {**os.environ, "PYTHONPATH": str(self.site), "ISOKERN_CACHE": str(self.work / "cache")}


class OpenClTarget(PortableTarget):
    """OpenCL on a processor."""

    tests = ("tests/opencl/test_kernels.py",)
    plugin = OPENCL / "src" / "isokern_opencl"
    own = plugin / "kernels" / "cpu"

    def checks(self, file: Path, source: str) -> Iterator[Check]:
        """Yield groups of 64 items, which meet at barriers."""
        yield "work-groups of 64", {**self.environment, "ISOKERN_OPENCL_GROUP": "64"}


class CudaTarget(PortableTarget):
    """The emulated GPU."""

    tests = ("tests/cuda/test_kernels.py", "tests/cuda/test_products_kernels.py")
    plugin = CUDA / "src" / "isokern_cuda"
    own = plugin / "kernels" / "cuda"

    def checks(self, file: Path, source: str) -> Iterator[Check]:
        """Yield blocks of 256 threads, as on a GPU, plain and with launches checked, and sanitizers."""
        blocks = {**self.environment, "ISOKERN_CUDA_SIM_THREADS": "256"}
        yield "blocks of 256", blocks
        yield "checked launches", {**blocks, "ISOKERN_CUDA_SIM_CHECK": "1"}
        yield "sanitizers", {**self.environment, **sanitizer("g++"), "ISOKERN_CUDA_SIM_SANITIZE": "1"}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge: another order of threads than the plain one, as in tox.ini."""
        return {**super().environment, "ISOKERN_CUDA_SIM_SEED": "1"}


class KunlunTarget:
    """The emulated XPU with the mutant's stems alone; the plug-in need not be installed."""

    module = "isokern_kunlun_sim"
    tests: tuple[str, ...] = ()  # the site has the mutant's stems alone
    kernels = KUNLUN / "src" / "isokern_kunlun_sim" / "kernels"

    @classmethod
    def files(cls) -> list[Path]:
        """Return the kernel files that mutants are made of."""
        return code_files(cls.kernels)

    def __init__(self, work: Path) -> None:
        self.work, self.site = work, work / "site"
        shutil.rmtree(work, ignore_errors=True)
        self.package = self.site / "isokern_kunlun_sim"
        shutil.copytree(self.kernels.parent, self.package, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
        link_installed(self.site, "isokern_kunlun_sim")
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
        self.originals: dict[tuple[str, str], Path] = {}  # (stem, mode) → object

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

    def _object(self, stem: str, folder: Path, mode: str = "fast") -> Path:
        source = self.package / "kernels" / f"{stem}.xpu"
        try:
            made: Path = self.compiling.kernel_object(self.compiler, source, mode, folder, self.include)
        except self.compiling.CompileError as error:
            raise NotBuilt(str(error)) from None
        return made

    def stems(self, file: Path) -> list[str]:
        """Return the stems that a file is part of."""
        return including(self.kernels, file, [p.stem for p in self.kernels.glob("*.xpu")])

    def build(self, file: Path, source: str) -> bool:
        """Build the mutant into the site of `environment`; return False if its object code is that of the original.

        A fence is code in checked kernels only.
        """
        stems = self.stems(file)
        objects = self._mutant(file, source, stems, "fast")
        if self._are_originals(stems, objects, "fast") and self._are_originals(
            stems, self._mutant(file, source, stems, "checked"), "checked"
        ):
            return False
        self._link(stems, objects, "fast")
        return True

    def _are_originals(self, stems: Sequence[str], objects: Sequence[Path], mode: str) -> bool:
        for stem in stems:
            if (stem, mode) not in self.originals:
                try:
                    self.originals[stem, mode] = self._object(stem, self.work / "original", mode)
                except NotBuilt as error:
                    raise SystemExit(f"{stem} does not compile as it is: {error}") from None
        return all(code(o) == code(self.originals[s, mode]) for s, o in zip(stems, objects, strict=True))

    def _mutant(self, file: Path, source: str, stems: Sequence[str], mode: str) -> list[Path]:
        target = self.package / "kernels" / file.name
        before = target.read_text(encoding="utf-8")
        target.write_text(source, encoding="utf-8")
        try:
            return [self._object(stem, self.work / "mutant", mode) for stem in stems]
        finally:
            target.write_text(before, encoding="utf-8")

    def _link(self, stems: Sequence[str], objects: Sequence[Path], mode: str) -> None:
        table = self.generated / "variants.c"
        table.write_text(variant_table([("xpu", 0, self.package / "kernels" / f"{s}.xpu") for s in stems]))
        library = self.package / f"libisokern_kunlun_{mode}.so"
        library.unlink(missing_ok=True)
        self.compiling.library(self.compiler, library, [*self.host, self._host_object(table), *objects], mode)

    def checks(self, file: Path, source: str) -> Iterator[Check]:
        """Yield the mutant's checked kernels, in two schedules, in one of them with several tiles for a core."""
        stems = self.stems(file)
        self._link(stems, self._mutant(file, source, stems, "checked"), "checked")
        checked = {**self.environment, "ISOKERN_XPU_CHECK": "1"}
        yield "checked kernels", {**checked, "ISOKERN_XPU_SEED": "0"}
        yield "checked kernels of one cluster", {**checked, "ISOKERN_XPU_SEED": "1", "XPU_NUM_CLUSTER": "1"}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the judge."""
        return {**os.environ, "PYTHONPATH": str(self.site), "ISOKERN_PLUGINS": "kunlun_sim"}


def code(object_file: Path) -> bytes:
    """Return an object file without what only debuggers read."""
    stripped = object_file.with_suffix(".stripped")
    run(["objcopy", "--strip-debug", object_file, stripped])
    return stripped.read_bytes()


Target = CpuTarget | OpenClTarget | CudaTarget | KunlunTarget
Kind = type[CpuTarget] | type[OpenClTarget] | type[CudaTarget] | type[KunlunTarget]
KINDS: dict[str, Kind] = {
    "cpu": CpuTarget,
    "opencl": OpenClTarget,
    "cuda_sim": CudaTarget,
    "kunlun_sim": KunlunTarget,
}


def kind_of(device: str) -> Kind:
    """Return the target of a device."""
    found = KINDS.get(device.partition(":")[0])
    if found is None:
        raise SystemExit(f"--device {device}: allowed: {', '.join(KINDS)}")
    return found


def check_found(target: Target) -> None:
    """Check that the judge's Python imports the package with the mutant.

    If it imported another one, every mutant would survive.
    """
    command = [sys.executable, "-c", f"import {target.module}; print({target.module}.__file__)"]
    done = subprocess.run(command, env=target.environment, cwd=ROOT, capture_output=True, text=True, check=True)
    if not Path(done.stdout.strip()).is_relative_to(target.site):
        raise SystemExit(f"{target.module} is found at {done.stdout.strip()}, not below {target.site}")
