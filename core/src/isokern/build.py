"""Building native plug-ins anywhere: what a plug-in's setup.py calls, where core is a requirement of its build.

A plug-in is a folder of kernels in C, one file for each stem, and C files of its own for its device. Its pyproject.toml
has `[build-system] requires = ["isokern[build]"]` (core, setuptools, cffi and ninja), and its setup.py is

    from setuptools import setup

    from isokern.build import setup_arguments

    setup(**setup_arguments("isokern_acme._native", "src/isokern_acme/kernels", ["src/isokern_acme/chip.c"]))

The other functions are the steps of that one, for builds of another kind: `generate` writes the headers, the tables and
the C that native plug-ins share, `list_sources` says which files of them are compiled, `KERNEL_FLAGS` with what,
`variant_table` lists the kernels for the library, `declarations` its functions for cffi, and `fingerprints` what it was
compiled against. Whatever is wrong with a file or with the machine ends the build (SystemExit) with a sentence that
names it.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .cabi.build_plugin import list_symbols, variant_table
from .cabi.cdef import cdef as declarations
from .cabi.generate import generate, write_depfile
from .ops import all_operators

__all__ = [
    "FLAGS",
    "KERNEL_FLAGS",
    "declarations",
    "find_compiler",
    "fingerprints",
    "generate",
    "list_kernels",
    "list_sources",
    "list_symbols",
    "rebuild",
    "setup_arguments",
    "variant_table",
]

# For every C file. The functions of isokern_math.h are exact to their bounds if nothing is contracted, and vectorize if
# nothing traps or sets errno; integers wrap. Hidden symbols: two plug-ins in a process have the same names
FLAGS = (
    "-std=c11",
    "-O2",
    "-g0",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fwrapv",
)
# For kernels and the plug-in's own files. A misspelt function or a pointer to other things ends the build with every
# compiler, not only with those of C23. To make every warning an error: CFLAGS=-Werror
KERNEL_FLAGS = (
    *FLAGS,
    "-ftree-vectorize",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
)
HOST = "host_device.c"  # what a plug-in lists among its sources for core's host side
EDITABLE = (
    "native_build.json"  # next to an extension that is built in place: the folder of its ninja file, for `rebuild`
)


@dataclass(frozen=True)
class _Plugin:
    """The arguments of `setup_arguments`, with paths relative to `root`, and the folder of the build."""

    root: str
    module: str
    kernels: str
    sources: tuple[str, ...]
    levels: Mapping[str, Sequence[str]]
    flags: tuple[str, ...]
    declarations: str
    limited: bool  # to the stable ABI of Python
    target: str = ""
    editable: bool = False
    compiler: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()  # CFLAGS and LDFLAGS


def fingerprints() -> dict[str, int]:
    """Return operator → the fingerprint of its attributes' record, which a native plug-in registers.

    `Register.backend(fingerprints=)` compares them with those of the core that loads the plug-in, and refuses one that
    was compiled against other records. A plug-in that `isokern.backend.native` opens has them in its library:
    `NativeLibrary.fingerprints`.
    """
    return {o.name: o.attrs.fingerprint for o in all_operators()}


def list_sources(folder: Path) -> list[Path]:
    """Return the C files of `generate(folder)` that every native plug-in compiles and links.

    A device that computes in the host's memory also compiles `host_device.c` of that folder.
    """
    return sorted(folder.glob("isokern_*.c"))


def find_compiler() -> list[str]:
    """Return the command of the C compiler: the words of CC, else `cc`."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise SystemExit(
            f"a native plug-in of Isokern is built from C, and no C compiler `{command[0]}` is found: install one"
            " (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install), or"
            " set CC to yours"
        )
    return command


def list_kernels(folder: Path, levels: Mapping[str, Sequence[str]]) -> list[tuple[str, int, Path]]:
    """Return (level, priority, file) of each kernel of a folder at each level, the last of which is preferred.

    `folder/STEM.c` is compiled for every level; `folder/LEVEL/STEM.c` replaces it at that level and those after it.
    A file whose name is no operator's stem is refused.
    """
    stems = {o.stem for o in all_operators()}
    found, files = [], {path.stem: path for path in sorted(folder.glob("*.c"))}
    for number, level in enumerate(levels):
        files |= {path.stem: path for path in sorted((folder / level).glob("*.c"))}
        found += [(level, 10 * number, path) for path in files.values()]
    if not found:
        raise SystemExit(f"{folder} has no kernels: a kernel is a file STEM.c there, such as rearrange.c")
    for path in sorted({path for _, _, path in found if path.stem not in stems}):
        near = ", ".join(difflib.get_close_matches(path.stem, stems)) or "see `isokern ops`"
        raise SystemExit(
            f"{path}: no operator has the stem {path.stem!r}; allowed: {near}. put other C files elsewhere"
        )
    return found


def setup_arguments(
    module: str,
    kernels: str,
    sources: Sequence[str] = (),
    *,
    levels: Mapping[str, Sequence[str]] | None = None,
    flags: Sequence[str] = (),
    declarations: str = "",
) -> dict[str, Any]:
    """Return the arguments for `setuptools.setup` that build a plug-in's kernels into an extension module of cffi.

    `module` is the extension's dotted name; its `ffi` and `lib` go to `isokern.backend.native.NativeLibrary`. `kernels`
    is the folder of kernel files, and `sources` are the plug-in's other C files, relative to setup.py; "host_device.c"
    among them is core's own, for a device that computes in the host's memory. All of them may include the files that
    `generate` writes, and headers next to them. `levels` maps the names of instruction-set levels to the compiler flags
    of each, the best one last; by default there is one, `c`. `flags` are further compiler flags, after `KERNEL_FLAGS`
    and before CFLAGS. `declarations` are prototypes of the plug-in's own functions that `lib` shall also have.

    They are `ext_modules`, `cmdclass` and `options`. Mistakes end the build as SystemExit: arguments of the wrong kind
    here, and when the extension is built a machine without a compiler, a file that is missing or does not compile, or a
    kernel file without a kernel. An editable install also needs `isokern[build]` at run time, and calls `rebuild`.
    """
    from setuptools import Extension
    from setuptools.command.build_ext import build_ext

    levels = {"c": ()} if levels is None else levels
    for name, given in {"sources": sources, "flags": flags, **levels}.items():
        if isinstance(given, str):
            raise SystemExit(f"setup_arguments: {name} is the string {given!r}; allowed: a list of strings")
    if not levels or not all(level.isidentifier() for level in levels):
        raise SystemExit(f"setup_arguments: levels {list(levels)}; allowed: one or more, each a name as C has them")
    plugin = _Plugin(
        root=str(Path.cwd()),
        module=module,
        kernels=kernels,
        sources=tuple(sources),
        levels=levels,
        flags=tuple(flags),
        declarations=declarations,
        limited=not sysconfig.get_config_var("Py_GIL_DISABLED"),  # free-threaded Pythons have no stable ABI yet
    )

    class BuildNative(build_ext):
        def run(self) -> None:
            target = Path(self.get_ext_fullpath(module)).resolve()
            folder = Path("build", "editable") if self.inplace else Path(self.build_temp)
            found = replace(
                plugin,
                target=str(target),
                editable=bool(self.inplace),
                compiler=tuple(find_compiler()),
                environment=tuple(shlex.split(f"{os.environ.get('CFLAGS', '')} {os.environ.get('LDFLAGS', '')}")),
            )
            _build(found, folder.resolve())

    arguments: dict[str, Any] = {
        "ext_modules": [Extension(module, [], py_limited_api=plugin.limited)],
        "cmdclass": {"build_ext": BuildNative},
    }
    if plugin.limited:
        arguments["options"] = {"bdist_wheel": {"py_limited_api": "cp310"}}  # one wheel for this Python and later ones
    return arguments


def _build(plugin: _Plugin, folder: Path) -> None:
    """Build the plug-in's extension, with all of its sources in `folder`."""
    try:
        import cffi  # noqa: F401  # only whether it is there
        from ninja import BIN_DIR
    except ImportError as error:
        raise SystemExit(
            f"{error}, by which a native plug-in is built: write isokern[build] among build-system.requires of its"
            " pyproject.toml; without isolation: pip install 'isokern[build]'"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    Path(plugin.target).parent.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # against concurrent builds
        (folder / "plugin.json").write_text(json.dumps(asdict(plugin), indent=1), encoding="utf-8")
        configure(folder)
        command = os.path.join(BIN_DIR, "ninja")  # where pip builds in isolation, BIN_DIR is empty and PATH has ninja
        if subprocess.run([command, "-f", f"{folder}/build.ninja"], cwd=plugin.root, check=False).returncode != 0:
            raise SystemExit(f"{plugin.module}: the build failed; its messages stand above")
    if plugin.editable:
        Path(plugin.target).with_name(EDITABLE).write_text(
            json.dumps({"root": plugin.root, "folder": str(folder)}), encoding="utf-8"
        )


def rebuild(settings: Path) -> None:
    """Build an editable install again, as far as its sources were edited.

    `settings` is the `native_build.json` that the installation wrote next to the extension. A plug-in calls this if
    that file exists, before it imports its extension. Its sources are kernels and the plug-in's other C files, their
    headers, a kernel file more or less, and the installed core. RuntimeError if it does not compile, or cannot.
    """
    given = json.loads(settings.read_text(encoding="utf-8"))
    if not Path(given["folder"]).is_dir():
        raise RuntimeError(
            f"{given['folder']} is gone, where {settings.parent} was built: pip install -e {given['root']}"
        )
    command = [sys.executable, "-m", "ninja", "-f", f"{given['folder']}/build.ninja"]
    with open(Path(given["folder"], "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # against processes that start at the same time
        environment = {**os.environ, "PYTHON": sys.executable}  # read by the rule `configure`
        done = subprocess.run(command, cwd=given["root"], env=environment, capture_output=True, text=True, check=False)
    if "No module named ninja" in done.stderr:
        raise RuntimeError(
            f"the editable install in {given['root']} is built again by ninja: pip install 'isokern[build]'"
        )
    if done.returncode != 0:
        raise RuntimeError(f"an edited source in {given['root']} does not compile:\n{done.stdout}{done.stderr}")


def configure(folder: Path) -> None:
    """Write the sources of the library in `folder`, and the ninja file; files that do not change stay."""
    from cffi import FFI

    plugin = _Plugin(**json.loads((folder / "plugin.json").read_text(encoding="utf-8")))
    os.chdir(plugin.root)
    kernels = list_kernels(Path(plugin.kernels), plugin.levels)
    if lacking := [source for source in plugin.sources if source != HOST and not Path(source).is_file()]:
        raise SystemExit(f"{plugin.module}: there is no {lacking[0]} in {plugin.root}")
    generate(folder / "generated")
    _write(folder / "variants.c", variant_table(kernels))
    ffi = FFI()
    ffi.cdef(declarations() + plugin.declarations)
    ffi.set_source(plugin.module, f'#include "isokern_native.h"\n{plugin.declarations}')
    ffi.emit_c_code(str(folder / "glue.c"))
    _write_ninja(folder, plugin, kernels)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _write_ninja(folder: Path, plugin: _Plugin, kernels: Sequence[tuple[str, int, Path]]) -> None:
    from ninja.ninja_syntax import Writer, escape_path

    generated, script = folder / "generated", folder / "build.ninja"
    python_h = Path(sysconfig.get_path("include"), "Python.h")
    if not python_h.exists():
        raise SystemExit(
            f"{python_h} is missing, which a C extension of Python includes: install it (Debian, Ubuntu: apt install"
            " python3-dev; Fedora: dnf install python3-devel)"
        )
    own = [Path(source) for source in plugin.sources if source != HOST]
    shared = [*list_sources(generated), *([generated / HOST] if HOST in plugin.sources else []), folder / "variants.c"]
    include = [f"-I{p}" for p in dict.fromkeys([Path(plugin.kernels), *(p.parent for p in own), generated])]

    def words(*parts: object) -> str:
        """Quote a shell command for a ninja file."""
        return " ".join(shlex.quote(str(p)) for p in parts).replace("$", "$$")

    with open(script, "w", encoding="utf-8") as file:
        w = Writer(file, width=1000)
        cc = words(*plugin.compiler)
        w.variable("builddir", escape_path(str(folder)))
        w.rule("cc", f"{cc} -MD -MF $out.d $flags -c $in -o $out", "compile $in", depfile="$out.d", deps="gcc")
        w.rule("link", f"{cc} $in $flags -o $out", "link $out")
        if plugin.editable:
            # By the Python that calls `rebuild`: the one of an isolated build exists no longer then
            again = f'"$${{PYTHON:-{sys.executable}}}" ' + words("-m", "isokern.build", folder)
            depfile = escape_path(str(folder / "read.d"))
            w.rule("configure", again, "read the kernels", generator=True, restat=True, depfile=depfile)
            w.build(str(script), "configure")
            w.build(
                [str(path) for path in dict.fromkeys(p for _, _, p in kernels)], "phony"
            )  # a deleted one is not an error
        objects = []

        def compile_file(source: Path, name: str, *flags: str) -> None:
            output = str(folder / "objects" / f"{name}.o")
            told = words(*flags, *include, *plugin.environment)
            w.build(output, "cc", str(source), variables={"flags": told})
            objects.append(output)

        for level, _, path in kernels:
            flags = [*KERNEL_FLAGS, *plugin.flags, *plugin.levels[level], f"-DIK_LEVEL={level}"]
            compile_file(path, f"{level}/{path.stem}", *flags)
        for path in own:
            compile_file(path, f"own/{'_'.join(path.parts)}", *KERNEL_FLAGS, *plugin.flags)
        for path in shared:
            compile_file(path, f"shared/{path.stem}", *FLAGS)
        api = ["-DPy_LIMITED_API=0x030a0000"] if plugin.limited else []
        # Warnings in cffi's code and Python's headers are not the plug-in's to fix
        compile_file(folder / "glue.c", "glue", *FLAGS, *api, f"-I{python_h.parent}", "-w")
        kind = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
        linked = words(*kind, "-pthread", *plugin.flags, *plugin.environment)
        w.build(plugin.target, "link", objects, variables={"flags": linked})
    folders = [p for level in ("", *plugin.levels) if (p := Path(plugin.kernels, level)).is_dir()]
    write_depfile(folder / "read.d", str(script), [folder / "plugin.json", *folders, *(path for _, _, path in kernels)])


if __name__ == "__main__":
    configure(Path(sys.argv[1]))
