"""Test the loops of the built CPU kernels' tiles, as the machine runs them: addresses have registers of their own."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

TILES = re.compile(r"(pixel_)?tile_(f32|f64)\b")
PRODUCT = re.compile(r"vfn?madd\w+\s.*%[yz]mm")
MOVE = re.compile(r"vmovq\s+(%r\w+,%xmm\d+|%xmm\d+,%r\w+)$")
FEWEST = 12  # products of a loop that is looked at: those of the tallest tiles


def functions(assembly: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield each function of a disassembly: its name, and its instructions with their addresses."""
    for text in re.split(r"\n(?=[0-9a-f]+ <)", assembly):
        if named := re.match(r"[0-9a-f]+ <([^>]+)>:", text):
            lines = re.findall(r"^\s+([0-9a-f]+):\s+(.*?)\s*$", text, re.MULTILINE)
            yield named[1], [(int(address, 16), instruction) for address, instruction in lines]


def innermost_loops(instructions: list[tuple[int, str]]) -> Iterator[list[str]]:
    """Yield the instructions of each loop that has no other in it."""
    places = {address: i for i, (address, _) in enumerate(instructions)}
    ends = [(i, re.match(r"j\w+\s+([0-9a-f]+)", text)) for i, (_, text) in enumerate(instructions)]
    loops = [(places[int(m[1], 16)], i) for i, m in ends if m and places.get(int(m[1], 16), i) < i]
    for begin, end in loops:
        if not any(begin <= first and last < end for first, last in loops):
            yield [text for _, text in instructions[begin : end + 1]]


def detours(assembly: str) -> tuple[int, set[str]]:
    """Return the number of loops of products in tiles, and the tiles where a vector register lends an address."""
    count, found = 0, set()
    for name, instructions in functions(assembly):
        if TILES.match(name):
            for loop in innermost_loops(instructions):
                if sum(bool(PRODUCT.match(text)) for text in loop) >= FEWEST:
                    count += 1
                    found |= {name} if any(MOVE.match(text) for text in loop) else set()
    return count, found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86-64")
def test_tiles_move_no_addresses_through_vector_registers():
    if shutil.which("objdump") is None:
        pytest.skip("no objdump on this machine")
    library = Path(find_spec("isokern_cpu").origin).with_name("libisokern_cpu.so")
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    count, found = detours(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert count or b"gemm__x86_v" not in library.read_bytes()
    assert not found


def test_a_detour_is_seen():
    products = "".join(f"  {16 + i:x}:\tvfmadd231ps %zmm1,%zmm2,%zmm{i + 3}\n" for i in range(FEWEST))
    loop = f"0000000000000010 <tile_f32>:\n{products}  30:\tvmovq  %xmm27,%rax\n  34:\tjne    10 <tile_f32>\n"
    assert detours(loop) == (1, {"tile_f32"})
    assert detours(loop.replace("vmovq  %xmm27,%rax", "add    %rbx,%rax")) == (1, set())
    assert detours(loop.replace("tile_f32>:", "other>:")) == (0, set())
