"""Test what each pass makes of a graph, as text."""

import sys

import pytest
from graph_models import after, lines

from isokern import passes
from isokern.expr.tree import parse
from isokern.graph import Builder
from isokern.ops import find
from isokern.passes import DEFAULT, fuse_elementwise
from isokern.rewriting.rewriter import State


@pytest.mark.parametrize(
    ("name", "before", "wanted"),
    [
        (
            "fuse_elementwise",
            """
            graph g {
              %0 = input "x": F32[4, 5]
              %1 = input "y": F32[5]
              %2 = input "z": F32[4, 1]
              %3 = mul(%0, %1): F32[4, 5]
              %4 = add(%3, %2): F32[4, 5]
              %5 = less(%4, %0): BOOL[4, 5]
              %6 = where(%5, %4, %0): F32[4, 5]
              %7 = scale(%6) {value = -2.5} "last": F32[4, 5]
              %8 = exp(%7): F32[4, 5]
              return %7, %8
            }""",
            """
            graph g {
              %0 = input "x": F32[4, 5]
              %1 = input "y": F32[5]
              %2 = input "z": F32[4, 1]
              %3 = collapse_shape(%2) {groups = [2]} "last": F32[4]
              %4 = generic(_, %0, %1, %3) {maps = "ab,b,a->ab", body = "(BODY * -2.5)"} "last": F32[4, 5]
              %5 = exp(%4): F32[4, 5]
              return %4, %5
            }""".replace(
                "BODY",
                "(((x0 * x1) + x2) if (((((x0 * x1) + x2) < x0) != 0.0)) else x0)".replace("((((", "(((").replace(
                    "0.0))", "0.0)"
                ),
            ),
        ),
        (
            "fuse_elementwise",
            """
            graph g {
              %0 = input "x": F16[2, 3, 4]
              %1 = input "b": F16[3]
              %2 = input "c": F16[1]
              %3 = bias_add(%0, %1) {axis = -2}: F16[2, 3, 4]
              %4 = relu(%3): F16[2, 3, 4]
              %5 = mul(%4, %2): F16[2, 3, 4]
              %6 = cast(%5) "wide": F32[2, 3, 4]
              %7 = exp(%6): F32[2, 3, 4]
              %8 = cast(%7) "narrow": BF16[2, 3, 4]
              %9 = neg(%8): BF16[2, 3, 4]
              %10 = cast(%9): F16[2, 3, 4]
              return %10
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3, 4]
              %1 = input "b": F16[3]
              %2 = input "c": F16[1]
              %3 = collapse_shape(%2) {groups = []} "wide": F16[]
              %4 = generic(_, %0, %1, %3) {maps = "abc,b,->abc", body = "(maximum((x0 + x1), 0.0) * x2)"} "wide": F32[2, 3, 4]
              %5 = generic(_, %4) {maps = "abc->abc", body = "exp(x0)"} "narrow": BF16[2, 3, 4]
              %6 = neg(%5): BF16[2, 3, 4]
              %7 = cast(%6): F16[2, 3, 4]
              return %7
            }""",
        ),
        (
            "fuse_elementwise",
            """
            graph g {
              %0 = input "x": F32[3, 3]
              %1 = input "b": F32[3]
              %2 = bias_add(%0, %1) {axis = 0}: F32[3, 3]
              %3 = add(%2, %1): F32[3, 3] strides [1, 3] offset 0
              %4 = bias_add(%3, %1): F32[3, 3]
              %5 = input "h": F16[3, 3]
              %6 = cast(%5): F32[3, 3]
              %7 = mul(%6, %4): F32[3, 3] strides [4, 1] offset 5
              return %7
            }""",
            """
            graph g {
              %0 = input "x": F32[3, 3]
              %1 = input "b": F32[3]
              %2 = input "h": F16[3, 3]
              %3 = cast(%2): F32[3, 3]
              %4 = generic(_, %3, %0, %1, %1) {maps = "ab,ab,a,b->ab", body = "(x0 * (((x1 + x2) + x3) + x3))"}: F32[3, 3] strides [4, 1] offset 5
              return %4
            }""",
        ),
        (  # a view that moves nothing, and a copy that a constraint needs
            "choose_layouts",
            """
            graph g {
              %0 = input "x": F32[2, 1]
              %1 = input "y": F16[4] strides [2] offset 1
              %2 = transpose(%0): F32[1, 2]
              %3 = relu(%2): F32[1, 2]
              %4 = transpose(%1) {axes = [0]}: F16[4]
              %5 = relu(%4) where aligned(0, 4): F16[4]
              return %3, %5
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 1]
              %1 = input "y": F16[4] strides [2] offset 1
              %2 = transpose(%0) {axes = [1, 0]}: F32[1, 2]
              %3 = relu(%2): F32[1, 2]
              %4 = transpose(%1) {axes = [0]}: F16[4]
              %5 = relu(%4) where aligned(0, 4): F16[4]
              return %3, %5
            }""",
        ),
        (
            "choose_layouts",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "y": F32[2, 3, 4]
              %2 = input "s": F32[1]
              %3 = transpose(%0) {axes = [0, 2, 1]} "a": F32[2, 4, 3]
              %4 = transpose(%1) {axes = [0, -1, 1]} "b": F32[2, 4, 3]
              %5 = add(%3, %4) "sum": F32[2, 4, 3]
              %6 = mul(%5, %2) "product": F32[2, 4, 3]
              %7 = transpose(%6) {axes = [0, 2, 1]} "back": F32[2, 3, 4]
              %8 = transpose(%7) "turned": F32[4, 3, 2]
              %9 = softmax(%8): F32[4, 3, 2]
              %10 = transpose(%9): F32[2, 3, 4]
              return %7, %10
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "y": F32[2, 3, 4]
              %2 = input "s": F32[1]
              %3 = add(%0, %1) "sum": F32[2, 3, 4]
              %4 = mul(%3, %2) "product": F32[2, 3, 4]
              %5 = transpose(%4) {axes = [2, 1, 0]} "turned": F32[4, 3, 2]
              %6 = softmax(%5): F32[4, 3, 2]
              %7 = transpose(%6) {axes = [2, 1, 0]}: F32[2, 3, 4]
              return %4, %7
            }""",
        ),
        (
            "choose_layouts",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "w": F32[5, 4]
              %2 = transpose(%1): F32[4, 5]
              %3 = matmul(%0, %2): F32[2, 3, 5]
              %4 = transpose(%3) {axes = [1, 0, 2]}: F32[3, 2, 5]
              %5 = softmax(%4): F32[3, 2, 5]
              %6 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5]
              %7 = flatten(%6): F32[2, 15]
              %8 = transpose(%7): F32[15, 2]
              %9 = exp(%8): F32[15, 2]
              %10 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5]
              %11 = flatten(%10): F32[2, 15]
              %12 = flatten(%10) {start_axis = 0}: F32[30]
              %13 = matmul(%11, %9): F32[2, 2]
              return %13, %12
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "w": F32[5, 4]
              %2 = transpose(%1) {axes = [1, 0]}: F32[4, 5] strides [1, 4] offset 0
              %3 = matmul(%0, %2): F32[2, 3, 5] strides [5, 10, 1] offset 0
              %4 = transpose(%3) {axes = [1, 0, 2]}: F32[3, 2, 5]
              %5 = softmax(%4): F32[3, 2, 5]
              %6 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5] strides [5, 10, 1] offset 0
              %7 = flatten(%6): F32[2, 15]
              %8 = exp(%7): F32[2, 15]
              %9 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5]
              %10 = flatten(%9): F32[2, 15]
              %11 = flatten(%9) {start_axis = 0}: F32[30]
              %12 = transpose(%8) {axes = [1, 0]}: F32[15, 2] strides [1, 15] offset 0
              %13 = matmul(%10, %12): F32[2, 2]
              return %13, %11
            }""",
        ),
        (
            "to_primitives",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = rms_norm(%0) {eps = 0.5} "norm": F16[2, 3]
              return %1
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = cast(%0) "norm": F32[2, 3]
              %2 = fill() {shape = [2]} "norm": F32[2]
              %3 = generic(%2, %1) {maps = "ab->a", body = "(x0 * x0)", combine = "sum"} "norm": F32[2]
              %4 = generic(_, %1, %3) {maps = "ab,a->ab", body = "(x0 / sqrt(((x1 / 3.0) + 0.5)))"} "norm": F16[2, 3]
              return %4
            }""",
        ),
        (
            "dead_code",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "unused": F32[1]
              %2 = parameter "w": F32[3]
              %3 = mul(%0, %2): F32[2, 3]
              %4 = topk(%0) {k = 1}: F32[2, 1], I64[2, 1]
              %6 = relu(%0): F32[2, 3]
              return %6
            }""".replace("%4 = topk", "%4, %5 = topk"),
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "unused": F32[1]
              %2 = relu(%0): F32[2, 3]
              return %2
            }""",
        ),
        (
            "common_subexpressions",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = relu(%0): F32[2, 3]
              %2 = relu(%0): F32[2, 3]
              %3 = softmax(%1): F32[2, 3]
              %4 = softmax(%2): F32[2, 3]
              %5 = softmax(%2) {axis = 0}: F32[2, 3]
              %6 = add(%3, %4): F32[2, 3]
              %7 = add(%6, %5): F32[2, 3]
              return %7, %2
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = relu(%0): F32[2, 3]
              %2 = softmax(%1): F32[2, 3]
              %3 = softmax(%1) {axis = 0}: F32[2, 3]
              %4 = add(%2, %2): F32[2, 3]
              %5 = add(%4, %3): F32[2, 3]
              return %5, %1
            }""",
        ),
        (
            "canonicalise",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = flatten(%0): F32[2, 3]
              %2 = cast(%1): F32[2, 3]
              %3 = relu(%2): F32[2, 3]
              %4 = relu(%3): F32[2, 3]
              %5 = copy(%0): F32[2, 3]
              %6 = flatten(%4) {start_axis = 0}: F32[6]
              return %6, %4, %5
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = relu(%0): F32[2, 3]
              %2 = copy(%0): F32[2, 3]
              %3 = flatten(%1) {start_axis = 0}: F32[6]
              return %3, %1, %2
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = parameter "w": F32[4, 3]
              %2 = parameter "b": F32[4]
              %3 = linear(%0, %1, %2) "fc": F32[2, 4]
              %4 = gelu(%3) "act": F32[2, 4]
              %5 = linear(%0, %1, _) "two": F32[2, 4]
              %6 = relu(%5): F32[2, 4]
              %7 = add(%5, %6): F32[2, 4]
              return %4, %7
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = parameter "w": F32[4, 3]
              %2 = parameter "b": F32[4]
              %3 = gemm(%0, %1, %2) {trans_b = true, activation = "gelu"} "fc": F32[2, 4]
              %4 = linear(%0, %1, _) "two": F32[2, 4]
              %5 = relu(%4): F32[2, 4]
              %6 = add(%4, %5): F32[2, 4]
              return %3, %6
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = parameter "w": F32[3, 4]
              %2 = parameter "b": F32[4]
              %3 = input "r": F32[2, 4]
              %4 = gemm(%0, %1) {alpha = 0.5, beta = 3.0} "one": F32[2, 4]
              %5 = bias_add(%4, %2): F32[2, 4]
              %6 = relu(%5): F32[2, 4]
              %7 = matmul(%0, %1) "two": F32[2, 4]
              %8 = add(%3, %7): F32[2, 4]
              %9 = gemm(%0, %1, %2, %8) {beta = 3.0} "three": F32[2, 4]
              %10 = add(%9, %6): F32[2, 4]
              %11 = gemm(%0, %1) {beta = 3.0} "four": F32[2, 4]
              %12 = add(%11, %10): F32[2, 4]
              %13 = input "i": I32[2, 2]
              %14 = matmul(%13, %13): I32[2, 2]
              %15 = add(%14, %13): I32[2, 2]
              return %12, %15
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "r": F32[2, 4]
              %2 = input "i": I32[2, 2]
              %3 = parameter "w": F32[3, 4]
              %4 = parameter "b": F32[4]
              %5 = gemm(%0, %3, %4) {alpha = 0.5, beta = 3.0, activation = "relu"} "one": F32[2, 4]
              %6 = gemm(%0, %3, _, %1) "two": F32[2, 4]
              %7 = gemm(%0, %3, %4, %6) {beta = 3.0} "three": F32[2, 4]
              %8 = add(%7, %5): F32[2, 4]
              %9 = gemm(%0, %3, _, %8) "four": F32[2, 4]
              %10 = matmul(%2, %2): I32[2, 2]
              %11 = add(%10, %2): I32[2, 2]
              return %9, %11
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F32[1, 3, 4, 4]
              %1 = parameter "w": F32[3, 3, 3, 3]
              %2 = parameter "v": F32[3, 3, 1, 1]
              %3 = parameter "b": F32[3]
              %4 = conv2d(%0, %1) {padding = [1]} "one": F32[1, 3, 4, 4]
              %5 = conv2d(%0, %2) "two": F32[1, 3, 4, 4]
              %6 = bias_add(%5, %3) {axis = 1} "bias": F32[1, 3, 4, 4]
              %7 = add(%4, %6) "sum": F32[1, 3, 4, 4]
              %8 = relu(%7) "act": F32[1, 3, 4, 4]
              %9 = conv2d(%8, %2, %3) "three": F32[1, 3, 4, 4]
              %10 = silu(%9): F32[1, 3, 4, 4]
              %11 = conv2d(%8, %2) "four": F32[1, 3, 4, 4]
              %12 = add(%11, %11): F32[1, 3, 4, 4]
              %13 = conv2d(%8, %2) "five": F32[1, 3, 4, 4]
              %14 = parameter "rows": F32[4]
              %15 = bias_add(%13, %14) {axis = 2}: F32[1, 3, 4, 4]
              return %10, %12, %15
            }""",
            """
            graph g {
              %0 = input "x": F32[1, 3, 4, 4]
              %1 = parameter "w": F32[3, 3, 3, 3]
              %2 = conv2d(%0, %1) {padding = [1]} "one": F32[1, 3, 4, 4]
              %3 = parameter "v": F32[3, 3, 1, 1]
              %4 = parameter "b": F32[3]
              %5 = conv2d(%0, %3, %4, %2) {activation = "relu"} "two": F32[1, 3, 4, 4]
              %6 = conv2d(%5, %3, %4) {activation = "silu"} "three": F32[1, 3, 4, 4]
              %7 = conv2d(%5, %3) "four": F32[1, 3, 4, 4]
              %8 = add(%7, %7): F32[1, 3, 4, 4]
              %9 = conv2d(%5, %3) "five": F32[1, 3, 4, 4]
              %10 = parameter "rows": F32[4]
              %11 = bias_add(%9, %10) {axis = 2}: F32[1, 3, 4, 4]
              return %6, %8, %11
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = input "r": F16[2, 4]
              %2 = parameter "w": F16[4, 3]
              %3 = linear(%0, %2) "fc": F16[2, 4]
              %4 = add(%1, %3): F16[2, 4]
              %5 = relu(%4) "act": F16[2, 4]
              return %5
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = input "r": F16[2, 4]
              %2 = parameter "w": F16[4, 3]
              %3 = gemm(%0, %2, _, %1) {trans_b = true, activation = "relu"} "fc": F16[2, 4]
              return %3
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "a": F32[2, 3, 4]
              %1 = input "w": F32[4, 5]
              %2 = input "b": F32[5]
              %3 = matmul(%0, %1) "one": F32[2, 3, 5]
              %4 = bias_add(%3, %2): F32[2, 3, 5]
              %5 = relu(%4): F32[2, 3, 5]
              %6 = input "many": F32[7, 1, 3, 4]
              %7 = input "few": F32[2, 4, 5]
              %8 = input "mask": F32[2, 3, 5]
              %9 = matmul(%6, %7) "two": F32[7, 2, 3, 5]
              %10 = add(%8, %9): F32[7, 2, 3, 5]
              %11 = add(%10, %2): F32[7, 2, 3, 5]
              %12 = tanh(%11): F32[7, 2, 3, 5]
              return %5, %12
            }""",
            """
            graph g {
              %0 = input "a": F32[2, 3, 4]
              %1 = input "w": F32[4, 5]
              %2 = input "b": F32[5]
              %3 = input "many": F32[7, 1, 3, 4]
              %4 = input "few": F32[2, 4, 5]
              %5 = input "mask": F32[2, 3, 5]
              %6 = gemm(%0, %1, %2) {activation = "relu"} "one": F32[2, 3, 5]
              %7 = gemm(%3, %4, %2, %5) {activation = "tanh"} "two": F32[7, 2, 3, 5]
              return %6, %7
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F16[2, 3, 4]
              %1 = parameter "w": F16[5, 4]
              %2 = parameter "b": F16[5]
              %3 = linear(%0, %1, %2) "three": F16[2, 3, 5]
              %4 = gelu(%3): F16[2, 3, 5]
              %5 = input "r": F16[2, 3, 5]
              %6 = linear(%0, %1) "sum": F16[2, 3, 5]
              %7 = add(%6, %5): F16[2, 3, 5]
              %8 = relu(%7): F16[2, 3, 5]
              %9 = input "v": F16[4]
              %10 = linear(%9, %1, %2) "vector": F16[5]
              %11 = silu(%10): F16[5]
              return %4, %8, %11
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3, 4]
              %1 = input "r": F16[2, 3, 5]
              %2 = input "v": F16[4]
              %3 = parameter "w": F16[5, 4]
              %4 = parameter "b": F16[5]
              %5 = gemm(%0, %3, %4) {trans_b = true, activation = "gelu"} "three": F16[2, 3, 5]
              %6 = gemm(%0, %3, _, %1) {trans_b = true, activation = "relu"} "sum": F16[2, 3, 5]
              %7 = linear_mixed(%2, %3, %4) {activation = "silu"} "vector": F16[5]
              return %5, %6, %7
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F32[2, 3, 64]
              %1 = parameter "w": Q4_0[5, 64]
              %2 = parameter "b": F32[5]
              %3 = input "r": F32[2, 3, 5]
              %4 = matmul_transposed(%0, %1) {lhs_quantization = "q8_0"} "one": F32[2, 3, 5]
              %5 = bias_add(%4, %2): F32[2, 3, 5]
              %6 = add(%3, %5): F32[2, 3, 5]
              %7 = silu(%6): F32[2, 3, 5]
              %8 = parameter "f": BF16[5, 64]
              %9 = matmul_transposed(%0, %8) "two": F32[2, 3, 5]
              %10 = gelu(%9): F32[2, 3, 5]
              %11 = linear_mixed(%0, %8) "three": F32[2, 3, 5]
              %12 = bias_add(%11, %2): F32[2, 3, 5]
              return %7, %10, %12
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3, 64]
              %1 = input "r": F32[2, 3, 5]
              %2 = parameter "w": Q4_0[5, 64]
              %3 = parameter "b": F32[5]
              %4 = linear_mixed(%0, %2, %3, %1) {lhs_quantization = "q8_0", activation = "silu"} "one": F32[2, 3, 5]
              %5 = parameter "f": BF16[5, 64]
              %6 = linear_mixed(%0, %5) {activation = "gelu"} "two": F32[2, 3, 5]
              %7 = linear_mixed(%0, %5, %3) "three": F32[2, 3, 5]
              return %4, %6, %7
            }""",
        ),
        (
            "fuse_add_rms_norm",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "r": F32[2, 3]
              %2 = parameter "w": F32[3]
              %3 = add(%0, %1): F32[2, 3]
              %4 = rms_norm(%3, %2) {eps = 0.001} "norm": F32[2, 3]
              %5 = add(%4, %3): F32[2, 3]
              %6 = add(%5, %2): F32[2, 3]
              %7 = rms_norm(%6, _): F32[2, 3]
              return %7
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "r": F32[2, 3]
              %2 = parameter "w": F32[3]
              %3, %4 = add_rms_norm(%0, %1, %2) {eps = 0.001} "norm": F32[2, 3], F32[2, 3]
              %5 = add(%3, %4): F32[2, 3]
              %6 = add(%5, %2): F32[2, 3]
              %7 = rms_norm(%6, _): F32[2, 3]
              return %7
            }""",
        ),
    ],
)
def test_before_and_after(name, before, wanted):
    assert lines(after(before, name).graph.dump()) == lines(wanted)
    assert lines(after(wanted, name).graph.dump()) == lines(wanted), "once is enough"


@pytest.mark.parametrize(
    "text",
    [
        """
        graph g {
          %0 = input "a": F32[2, 3, 4]
          %1 = input "w": F32[4, 3]
          %2 = input "rows": F32[3]
          %3 = input "more": F32[6, 1, 3, 3]
          %4 = input "c": F32[2, 1, 3]
          %5 = matmul(%0, %1) "along rows": F32[2, 3, 3]
          %6 = bias_add(%5, %2) {axis = 1}: F32[2, 3, 3]
          %7 = matmul(%0, %1) "read twice": F32[2, 3, 3]
          %8 = relu(%7): F32[2, 3, 3]
          %9 = matmul(%0, %1) "a result": F32[2, 3, 3]
          %10 = gelu(%9): F32[2, 3, 3]
          %11 = matmul(%0, %1) "repeated by the sum": F32[2, 3, 3]
          %12 = add(%3, %11): F32[6, 2, 3, 3]
          %13 = matmul(%0, %1) "one row of c for all": F32[2, 3, 3]
          %14 = add(%13, %4): F32[2, 3, 3]
          return %6, %7, %8, %9, %10, %12, %14
        }""",
        """
        graph g {
          %0 = input "x": F16[2, 3, 32]
          %1 = input "i": I32[2, 3, 3]
          %2 = input "v": F64[3]
          %3 = parameter "w": F16[5, 32]
          %4 = linear(%0, %3) "cast": F16[2, 3, 5]
          %5 = cast(%4): F32[2, 3, 5]
          %6 = relu(%5): F32[2, 3, 5]
          %7 = parameter "q": Q8_0[5, 32]
          %8 = matmul_transposed(%0, %7) "cast too": F16[2, 3, 5]
          %9 = cast(%8): F32[2, 3, 5]
          %10 = relu(%9): F32[2, 3, 5]
          %11 = matmul_transposed(%0, %7) "doubled": F16[2, 3, 5]
          %12 = add(%11, %11): F16[2, 3, 5]
          %13 = matmul(%1, %1) "integers": I32[2, 3, 3]
          %14 = add(%13, %1): I32[2, 3, 3]
          %15 = parameter "d": F64[4, 3]
          %16 = linear(%2, %15) "a vector of F64": F64[4]
          %17 = relu(%16): F64[4]
          return %6, %10, %12, %14, %17
        }""",
        """
        graph g {
          %0 = input "x": F32[2, 3, 64]
          %1 = input "r": F32[3, 3]
          %2 = parameter "w": Q4_0[3, 64]
          %3 = matmul_transposed(%0, %2) "along rows": F32[2, 3, 3]
          %4 = parameter "b": F32[3]
          %5 = bias_add(%3, %4) {axis = 1}: F32[2, 3, 3]
          %6 = matmul_transposed(%0, %2) "read twice": F32[2, 3, 3]
          %7 = relu(%6): F32[2, 3, 3]
          %8 = add(%6, %7): F32[2, 3, 3]
          %9 = linear_mixed(%0, %2) {activation = "relu"} "complete": F32[2, 3, 3]
          %10 = bias_add(%9, %4): F32[2, 3, 3]
          %11 = matmul_transposed(%0, %2) "one c for all": F32[2, 3, 3]
          %12 = add(%11, %1): F32[2, 3, 3]
          return %5, %8, %10, %12
        }""",
    ],
    ids=["matrices", "dtypes", "weights"],
)
def test_no_product_takes_what_its_epilogue_is_not(text):
    assert lines(after(text, "fuse_epilogue").graph.dump()) == lines(text)


def calls(make, length):
    """Return how many calls of Python functions the pass takes for a chain of that length."""
    b = Builder("g")
    x = b.input("x", (8, 8))
    values = [x, x]
    for n in range(length):
        values += b.emit(*make(n, values))
    b.output(values[-1])
    count = 0

    def called(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        made = fuse_elementwise.run(State(b.graph, {}))
    finally:
        sys.setprofile(before)
    assert len(made.graph.ops) < length
    return count


CHAINS = {
    "of one reader each": lambda n, values: ("neg", [values[-1]]),
    "read twice": lambda n, values: ("add", [values[-1], values[-1]]),
    "read twice, later": lambda n, values: ("add", [values[-1], values[-2]]),
    "around each other": lambda n, values: (("neg", [values[-1]]), ("add", [values[-1], values[-2]]))[n % 2],
    "of long rows": lambda n, values: ("gelu", [values[-1]]),
}


@pytest.mark.quick("around each other", "of long rows")
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_fusing_a_chain_takes_as_long_as_the_chain(chain):
    """A group has at most as many operators as stack code has words, so the work for each operator is bounded."""
    calls(chain, 4)  # fills caches
    short, long = calls(chain, 100), calls(chain, 400)
    assert long < 6 * short
    assert long < 400 * 30_000


def test_a_body_is_read_once_for_all_that_ask_for_it():
    """A fused body is long as text, and all code from the pass to the kernel's record uses its parsed form."""
    long = "x0"
    for _ in range(8):
        long = f"({long} / (1.0 + exp(-{long})))"
    generic = find("generic")
    assert parse(long).parts > 1500
    given = generic.attrs.check("generic", {"maps": "a->a", "body": long})
    generic.attrs.pack(given)
    count = 0

    def called(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        for _ in range(50):
            generic.attrs.pack(generic.attrs.check("generic", {"maps": "a->a", "body": long}))
    finally:
        sys.setprofile(before)
    assert count < 50 * 200


def test_a_type_that_is_only_stored_stays_outside_a_loop_nest():
    b = Builder("g")
    mask, x = b.input("mask", (8,), "BOOL"), b.input("x", (8,))
    (narrow,) = b.emit("cast", b.emit("neg", [x]), dtypes={"T": "F8E4M3FN"})
    (chosen,) = b.emit("where", [mask, narrow, narrow])
    b.output(*b.emit("where", [mask, chosen, narrow]))
    made = fuse_elementwise.run(State(b.graph, {}))
    assert [op.kind for op in made.graph.ops] == ["neg", "cast", "where", "where"]


@pytest.mark.parametrize("name", DEFAULT.split(","))
def test_a_graph_without_what_a_pass_changes_is_left_as_it_is(name):
    builder = Builder("plain")
    x = builder.input("x", (2, 3))
    builder.output(*builder.emit("softmax", [x], {"axis": -1}))
    state = State(builder.graph, {})
    assert passes.run(state, name) is state
