"""Test which casts are folded into loop nests, and that the target is asked first."""

from dataclasses import replace

import pytest
from graph_models import after, lines

from isokern.passes import fold_casts
from isokern.rewriting.target import Target

DEQUANTIZE = """
graph g {
  %0 = input "x": I8[4, 5]
  %1 = input "scale": F32[5]
  %2 = input "zero": I8[5]
  %3 = cast(%0): F32[4, 5]
  %4 = cast(%2): F32[5]
  %5 = generic(_, %3, %4, %1) {maps = "ab,b,b->ab", body = "(x0 - x1) * x2"} "own": F32[4, 5]
  return %5
}"""


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (
            DEQUANTIZE,
            """
            graph g {
              %0 = input "x": I8[4, 5]
              %1 = input "scale": F32[5]
              %2 = input "zero": I8[5]
              %3 = generic(_, %0, %2, %1) {maps = "ab,b,b->ab", body = "((x0 - x1) * x2)"} "own": F32[4, 5]
              return %3
            }""",
        ),
        (  # what a cast makes of a result of the compute type, and of a truth
            """
            graph g {
              %0 = input "x": F32[4, 5]
              %1 = generic(_, %0) {maps = "ab->ab", body = "rint(x0 * 4)"}: F32[4, 5]
              %2 = cast(%1): I8[4, 5]
              %3 = generic(_, %0) {maps = "ab->ab", body = "x0 > 1 and x0 < 2"}: BOOL[4, 5]
              %4 = cast(%3): F16[4, 5]
              return %2, %4
            }""",
            """
            graph g {
              %0 = input "x": F32[4, 5]
              %1 = generic(_, %0) {maps = "ab->ab", body = "rint((x0 * 4.0))"}: I8[4, 5]
              %2 = generic(_, %0) {maps = "ab->ab", body = "((x0 > 1.0) and (x0 < 2.0))"}: F16[4, 5]
              return %1, %2
            }""",
        ),
        (  # a reduction that reads each element once, beside a sum that is wider than its terms
            """
            graph g {
              %0 = input "x": U8[4, 5]
              %1 = input "init": F32[4]
              %2 = cast(%0): F32[4, 5]
              %3 = generic(%1, %2) {maps = "ab->a", body = "x0 * x0", combine = "sum"}: F32[4]
              return %3
            }""",
            """
            graph g {
              %0 = input "x": U8[4, 5]
              %1 = input "init": F32[4]
              %2 = generic(%1, %0) {maps = "ab->a", body = "(x0 * x0)", combine = "sum"}: F32[4]
              return %2
            }""",
        ),
        (  # by way of an integer that has all values of the source
            """
            graph g {
              %0 = input "x": U8[5]
              %1 = cast(%0): I32[5]
              %2 = generic(_, %1) {maps = "a->a", body = "x0 - 7"}: I32[5]
              return %2
            }""",
            """
            graph g {
              %0 = input "x": U8[5]
              %1 = generic(_, %0) {maps = "a->a", body = "(x0 - 7.0)"}: I32[5]
              return %1
            }""",
        ),
    ],
)
def test_what_is_folded(before, wanted):
    made = lines(after(after(before, "fold_casts").graph.dump(), "dead_code").graph.dump())
    assert made == lines(wanted)
    assert lines(after(wanted, "fold_casts").graph.dump()) == lines(wanted), "once is enough"


@pytest.mark.parametrize(
    "text",
    [
        # The body would be computed in another type
        """
        graph g {
          %0 = input "x": F32[5]
          %1 = cast(%0): I64[5]
          %2 = generic(_, %1) {maps = "a->a", body = "(x0 + 1.0)"}: I64[5]
          return %2
        }""",
        """
        graph g {
          %0 = input "x": I64[5]
          %1 = generic(_, %0) {maps = "a->a", body = "(x0 + 1.0)"}: I64[5]
          %2 = cast(%1): F32[5]
          return %2
        }""",
        # A cast that rounds or wraps what the loop nest would not
        """
        graph g {
          %0 = input "x": F32[5]
          %1 = cast(%0): F16[5]
          %2 = generic(_, %1) {maps = "a->a", body = "(x0 + 1.0)"}: F32[5]
          return %2
        }""",
        """
        graph g {
          %0 = input "x": I32[5]
          %1 = generic(_, %0) {maps = "a->a", body = "(x0 + 1.0)"}: I32[5]
          %2 = cast(%1): I64[5]
          return %2
        }""",
        """
        graph g {
          %0 = input "x": U32[5]
          %1 = cast(%0): I32[5]
          %2 = generic(_, %1) {maps = "a->a", body = "(x0 + 1.0)"}: I64[5]
          return %2
        }""",
        # 8-bit floats round bytes
        """
        graph g {
          %0 = input "x": U8[5]
          %1 = cast(%0): F8E4M3FN[5]
          %2 = generic(_, %1) {maps = "a->a", body = "(x0 + 1.0)"}: F32[5]
          return %2
        }""",
        # A product reads each element many times
        """
        graph g {
          %0 = input "x": I8[64, 64]
          %1 = input "init": F32[64, 64]
          %2 = cast(%0): F32[64, 64]
          %3 = generic(%1, %2, %2) {maps = "ab,cb->ac", body = "(x0 * x1)", combine = "sum"}: F32[64, 64]
          return %3
        }""",
        # A cast stays for another reader, and what it reads is wider
        """
        graph g {
          %0 = input "x": I64[5]
          %1 = cast(%0): F32[5]
          %2 = generic(_, %1) {maps = "a->a", body = "(x0 + 1.0)"}: F32[5]
          return %1, %2
        }""",
        # The result that is cast has another reader
        """
        graph g {
          %0 = input "x": F32[5]
          %1 = generic(_, %0) {maps = "a->a", body = "(x0 + 1.0)"}: F32[5]
          %2 = cast(%1): I32[5]
          return %1, %2
        }""",
        # A sum begins with init, which has the dtype of the sum
        """
        graph g {
          %0 = input "x": F32[4, 5]
          %1 = input "init": F32[4]
          %2 = generic(%1, %0) {maps = "ab->a", body = "x0", combine = "sum"}: F32[4]
          %3 = cast(%2): I32[4]
          return %3
        }""",
    ],
)
def test_what_is_kept(text):
    assert lines(after(text, "fold_casts").graph.dump()) == lines(text)


def test_the_target_is_asked():
    """A device whose loop nests take one dtype keeps its casts; one without casts has none left."""
    state = after(DEQUANTIZE, "dead_code")

    def refuse(operator, inputs, outputs, attrs):
        return "one dtype" if len({x.dtype for x in inputs if x is not None}) > 1 else None

    kept = fold_casts.run(replace(state, target=Target(lambda *_: None).dynamic("generic", refuse)))
    assert [op.kind for op in kept.graph.ops] == ["cast", "cast", "generic"]
    assert kept.graph.dump() == state.graph.dump()


def test_without_a_cast_the_loop_nest_converts_what_it_reads_again_and_again():
    big = DEQUANTIZE.replace("[4, 5]", "[512, 512]").replace("[5]", "[512]")
    state = after(big, "dead_code")
    for target, left in ((Target(lambda *_: None), ["cast"]), (Target(lambda *_: None).illegal("cast"), [])):
        made = after(fold_casts.run(replace(state, target=target)).graph.dump(), "dead_code")
        assert [op.kind for op in made.graph.ops] == [*left, "generic"]
