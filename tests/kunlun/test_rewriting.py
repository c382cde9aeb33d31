"""Launches become calls, and every line of the author's stays where it is."""

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
