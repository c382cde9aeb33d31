"""Test that launches become calls, and that all of the author's lines keep their numbers."""

from __future__ import annotations

import pytest

from isokern_kunlun_sim.rewriting import rewrite


def body(text: str) -> str:
    head, line, rest = rewrite(text, "k.xpu").split("\n", 2)
    assert head == '#include "xpusim/launch.h"'
    assert line == '#line 1 "k.xpu"'
    return rest


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("f<<<1, 64>>>(x);", '::xpusim::kernel(f, "f").on(1, 64)(x);'),
        ("int s = f <<< n, 64, stream >>> (a, b);", 'int s = ::xpusim::kernel(f, "f").on( n, 64, stream ) (a, b);'),
        ("f<float><<<c, 64, s>>>(x);", '::xpusim::kernel(f<float>, "f<float>").on(c, 64, s)(x);'),
        ("a::f<T<int>, 3><<<c, 64>>>(x);", '::xpusim::kernel(a::f<T<int>, 3>, "a::f<T<int>, 3>").on(c, 64)(x);'),
    ],
)
def test_a_launch_becomes_a_call(given: str, made: str) -> None:
    assert body(given) == made


def test_comments_and_strings_are_left_alone() -> None:
    text = '// f<<<1, 2>>>(x)\n/* g<<<\n1>>>(y) */ const char *s = "h<<<1>>>(z)"; int i = 1 << 3 >> 1;\n'
    assert body(text) == text


def test_lines_stay() -> None:
    text = "int a;\nf<<<1,\n  64>>>(\n x);\nint b;\n"
    assert [n for n, line in enumerate(body(text).splitlines()) if "int b" in line] == [4]


@pytest.mark.parametrize("text", ["\n\nf<<<1, 2>>>;", "x = <<<1>>>(2);", "f<<<1, 2(x);"])
def test_what_is_no_launch_is_told_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=f"k.xpu:{text.count(chr(10)) + 1}: <<<"):
        rewrite(text, "k.xpu")


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("__group_shared__ float m[64];", {"m": "float[64]"}),
        ("__group_shared__ __simd__ unsigned\n int m[2][3], n;", {"m": "unsigned int[2][3]", "n": "unsigned int"}),
        ("__group_shared__ a::b<int> m[ N + 1 ];", {"m": "a::b<int>[N+1]"}),
    ],
)
def test_a_group_shared_object_becomes_one_a_group(given: str, whole: dict[str, str]) -> None:
    made = body(f"{given} int after;")
    for name, kind in whole.items():
        assert f"static thread_local xpusim_padded<{kind}> xpusim_groups_{name}[16]; " in made
        assert f"auto &{name} = xpusim_of_group(xpusim_groups_{name}); " in made
    assert made.count("\n") == given.count("\n")
    assert made.endswith(" int after;")


def test_a_cast_between_vectors_becomes_a_function() -> None:
    made = body(
        "a = reinterpret_cast<float32x16_t>(b); c = reinterpret_cast< int16x32_t >(d); p = reinterpret_cast<char *>(q);"
    )
    assert made == (
        "a = ::xpusim::vector_cast<float32x16_t>(b); c = ::xpusim::vector_cast<int16x32_t>(d);"
        " p = reinterpret_cast<char *>(q);"
    )


def test_inline_assembly_is_told_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"k\.xpu:2: not modelled: inline assembly"):
        rewrite('// __asm__\nvoid f() { __asm__("nop"); }', "k.xpu")
