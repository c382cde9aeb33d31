"""Test launch blocks and launch files: their launches, their errors, and parameters as kernels read them."""

from __future__ import annotations

import struct

import pytest

from isokern import TensorDesc
from isokern.cabi.plan import Plan
from isokern.ops import find
from isokern.simt import Traits
from isokern.simt.launch import launch_file, pack
from isokern.simt.launch_block import launches
from isokern.simt.source import KERNELS, expand, is_wide, kernel_text, record, specialisation

FILE = """/* {name}: made for a test. */
/* launch
{lines}
 */
#include "simt.h"

IK_ENTRY(one)(IK_PARAMS)
{{
}}

IK_ENTRY(two)(IK_PARAMS)
{{
    int second = workspace[0];
}}
"""


def plan_of(op, *shapes, dtype="F32", **attrs):
    operator = find(op)
    inputs = [TensorDesc(dtype, s) for s in shapes]
    return Plan(operator.resolve(inputs, operator.infer(inputs, attrs), attrs))


def places(request):
    return tuple((name, at) for name, at, _ in request.tensors)


@pytest.fixture
def block(tmp_path):
    def made(*lines):
        path = tmp_path / "made.c"
        path.write_text(FILE.format(name="made", lines="\n".join(f" * {line}" for line in lines)))
        launches.cache_clear()
        return launches(path)

    return made


@pytest.fixture
def python(tmp_path):
    def made(*lines, text=FILE):
        path = tmp_path / "made.c"
        path.write_text(text.format(name="made", lines=" * one(items=1)"))
        body = "\n".join(f"    {line}" for line in lines)
        head = "from isokern.simt.launch import Call, bits\n\n\n"
        launch_file(path).write_text(f"{head}def launch(call: Call) -> None:\n{body}\n")
        launches.cache_clear()
        return launches(path)

    return made


def test_lines_run_in_order_and_only_when_they_hold(block):
    made = block("let(n=y.shape[-1])", "one(when=n > 100, items=n)", "two(groups=n, local=64, PART=n * 2, part=n + 1)")
    (request,) = made.choose(plan_of("softmax", (3, 7)), Traits()).launches
    assert (request.entry, request.groups, request.local, request.items) == ("two", 7, 64, None)
    assert request.defines == (("PART", 14),)
    assert request.scalars == (("part", 8),)
    first, second = made.choose(plan_of("softmax", (3, 700)), Traits(items=256)).launches
    assert (first.entry, first.groups, first.local, dict(first.scalars)) == ("one", 3, 256, {"items": 700})
    assert second.groups == 700


def test_a_group_is_no_larger_than_the_device_wants(block):
    made = block("one(groups=5, local=256)")
    assert made.choose(plan_of("relu", (4,)), Traits(group=1)).launches[0].local == 1
    assert made.choose(plan_of("relu", (4,)), Traits(group=1024)).launches[0].local == 256


def test_what_has_nothing_to_do_is_not_launched(block):
    assert block("one(items=y.numel)").choose(plan_of("relu", (0,)), Traits()).launches == ()


def test_expressions_after_a_false_when_are_not_evaluated(block):
    assert block("one(items=1 // 0, when=False)").choose(plan_of("relu", (4,)), Traits()).launches == ()


def test_a_refusal_carries_its_reason(block):
    made = block("refuse(when=device.units < 4, reason=op + ' wants 4 units')", "one(items=y.numel)")
    assert made.choose(plan_of("relu", (4,)), Traits(units=2)).refusal == "relu wants 4 units"
    assert made.choose(plan_of("relu", (4,)), Traits(units=4)).refusal is None


def test_the_largest_workspace_is_booked(block):
    made = block("workspace(bytes=8)", "workspace(bytes=4 * y.numel, when=y.numel > 2)", "one(items=1)")
    assert made.choose(plan_of("relu", (2,)), Traits()).workspace == 8
    assert made.choose(plan_of("relu", (5,)), Traits()).workspace == 20


def test_each_tensor_of_a_variadic_operand_has_its_launch(python):
    made = python(
        "t = call.tensors()",
        "for index, part in enumerate(t.x):",
        "    call.launch('one', each=('part', index), items=part.numel, first=10 * index)",
    )
    requests = made.choose(plan_of("concat", (2, 3), (0, 3), (5, 3)), Traits()).launches
    assert [places(s) for s in requests] == [(("y", 0), ("part", 1)), (("y", 0), ("part", 3))]
    assert [dict(s.scalars)["first"] for s in requests] == [0, 20]


def test_one_launch_takes_all_tensors_of_a_variadic_operand(python):
    made = python(
        "t = call.tensors('y', '*x')",
        "call.launch('one', all='x', items=sum(desc.numel for desc in t.x), last=t.x[1].numel)",
        "call.launch('two', items=1, x=t.x[0])",
    )
    plan = plan_of("concat", (2, 3), (5, 3))
    one, two = made.choose(plan, Traits()).launches
    assert (places(one), one.slim) == ((("y", 0), ("x0", 1), ("x1", 2)), ("x0", "x1"))
    assert dict(one.scalars) == {"items": 21, "last": 15}
    assert (places(two), two.slim) == ((("y", 0), ("x", 1)), ())
    assert "ik_slim x0;" in specialisation(plan, one, "", reports=False, workspace=False)
    assert "ik_slim" not in specialisation(plan, two, "", reports=False, workspace=False)
    assert record(plan, one, "")[-144:] == struct.pack(
        "<18i9i9i", 2, 0, 7, 3, *[0] * 6, 3, 1, *[0] * 6, *[0, 3, 1, *[0] * 6] * 2
    )


def nest_of(maps, body, *shapes, dtype="F32", combine="none", strides=None):
    """Return the plan of a loop nest; with `combine` it reduces to one value."""
    operator = find("generic")
    out = TensorDesc(dtype, ()) if combine != "none" else None
    inputs = [out, *(TensorDesc(dtype, s, strides) for s in shapes)]
    attrs = {"maps": maps, "body": body, "combine": combine}
    return Plan(operator.resolve(inputs, [out] if out else operator.infer(inputs, attrs, {"U": dtype}), attrs))


def launched(plan, traits=None):
    """Return (entry, text of what the plan fixes, parameter record) of each launch."""
    path = KERNELS / "generic.c"
    made = launches(path).choose(plan, traits or Traits())
    texts = [(s, kernel_text(path, s.entry)) for s in made.launches]
    return [
        (s.entry, specialisation(plan, s, t, reports=False, workspace=made.workspace > 0), record(plan, s, t))
        for s, t in texts
    ]


def test_a_loop_nest_brings_its_body_for_the_inputs_that_it_has():
    ((entry, head, _),) = launched(nest_of("a,a,a->a", "x2 + x0 * 2", (5,), (5,), (5,)))
    assert entry == "generic_map"
    assert "#define IK_EACH_INPUT(X) X(x0) X(x2)" in head
    assert "#define IK_BODY (value_x2 + (value_x0 * 2.0f))" in head
    assert "#define IK_COMBINE_none" in head


def test_loop_nests_of_any_shapes_share_a_program_and_joins_of_any_bodies():
    def heads(body, *shape, maps):
        made = launched(nest_of(maps, body, shape, combine="sum"), Traits(units=4))
        assert [entry for entry, _, _ in made] == ["generic_reduce", "generic_join"]
        return [head for _, head, _ in made]

    first, other, body = (
        heads("x0", 300, 700, maps="ab->"),
        heads("x0", 99000, maps="a->"),
        heads("x0 * x0", 99000, maps="a->"),
    )
    assert first == other
    assert (body[0] != first[0], body[1] == first[1]) == (True, True)


@pytest.mark.parametrize("inputs", [1, 2, 7, 8])
def test_parameters_of_many_inputs_far_apart_fit(inputs):
    """Every device has at least 1,024 bytes of parameters; the record consists of 8-byte words."""
    names = [f"x{i}" for i in range(inputs)]
    plan = nest_of(
        f"{','.join('a' * inputs)}->", " + ".join(names), *[(1 << 20,)] * inputs, combine="sum", strides=(1 << 12,)
    )
    first, _ = launched(plan, Traits(units=4))
    assert "typedef ik_i64 ik_index" in first[1]
    assert len(first[2]) % 8 == 0
    assert len(first[2]) + 8 * (2 + inputs + 1) <= 1024


def test_absent_tensors_are_none_and_are_no_parameters(block):
    made = block("one(items=1 if w is None else 2)")
    assert places(made.choose(plan_of("rms_norm", (3, 4)), Traits()).launches[0]) == (("y", 0), ("x", 1))
    assert places(made.choose(plan_of("rms_norm", (3, 4), (4,)), Traits()).launches[0]) == (
        ("y", 0),
        ("x", 1),
        ("w", 2),
    )


def test_a_tensor_given_another_value_is_told_so_and_none_leaves_it_out(block):
    made = block("let(y=bits(y))", "one(items=1, x=tensor(x, [2], [3], 1))", "two(items=1, x=None, y=None, w=w)")
    one, two = made.choose(plan_of("rms_norm", (3, 4), (4,)), Traits()).launches
    assert [(n, str(d)) for n, _, d in one.tensors] == [
        ("y", "U32[3, 4]"),
        ("x", "F32[2] strides (3,) offset 1"),
        ("w", "F32[4]"),
    ]
    assert places(two) == (("w", 2),)


@pytest.mark.parametrize(
    ("value", "dtype", "bits"),
    [(1.0, "F32", 0x3F800000), (-2.0, "F64", -(2**62)), (300.7, "U8", -1)],
)
def test_a_number_is_converted_as_cast_does(block, value, dtype, bits):
    made = block("one(items=1, value=convert_bits(attrs.value, y.dtype))")
    operator = find("fill")
    plan = Plan(operator.resolve([], [TensorDesc(dtype, (3,))], {"value": value}))
    assert dict(made.choose(plan, Traits()).launches[0].scalars)["value"] == bits


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ([("F32", (8, 12))], 4),
        ([("F32", (8, 14))], 2),
        ([("F32", (8, 13))], 1),
        ([("F32", (13,))], 4),  # a single line may have any length
        ([("F16", (8, 16))], 8),
        ([("F16", (8, 16)), ("F64", (8, 16))], 2),
        ([("F32", (8, 12), (12, 1), 2)], 2),
        ([("F32", (8, 12), (18, 1), 0)], 2),
        ([("F32", (8, 12), (-12, 1), 84)], 4),
        ([("F32", (8, 12), (1, 8), 0)], 1),
        ([("F32", (8, 12)), ("F32", (8, 12), (1, 0), 3)], 4),  # broadcast along the line: one element per line
        ([("U8", (8, 12)), ("F64", (8, 12), (1, 0), 3), None], 2),
    ],
)
def test_a_pack_is_what_all_lines_can_be_cut_into(given, count):
    assert pack([one and TensorDesc(*one) for one in given], 16) == count


def test_calls_that_differ_in_what_a_kernel_does_not_mention_share_its_text(block):
    made = block("one(items=1, y=bits(y), x=bits(x))")
    texts = set()
    for plan in (
        plan_of("copy", (3,)),
        plan_of("flatten", (3,), dtype="I32", start_axis=0),
        plan_of("flatten", (3,), start_axis=-1),
    ):
        (request,) = made.choose(plan, Traits()).launches
        texts.add(specialisation(plan, request, "", reports=False, workspace=False))
    assert len(texts) == 1
    assert len({specialisation(plan, request, "p.attr_start_axis IK_OP_flatten", False, False), *texts}) == 2


def test_a_choice_brings_the_row_that_it_names(block):
    made = block("one(items=1)")

    def macros(activation):
        plan = plan_of("gemm", (2, 3), (3, 4), activation=activation)
        (request,) = made.choose(plan, Traits()).launches
        head = specialisation(plan, request, "IK_ROW_activation(v)", reports=False, workspace=False)
        return [line for line in head.splitlines() if "IK_ROW" in line]

    assert macros("relu") == ["#define IK_ROW_activation(v) ik_maximum_f32(v, 0.0f)"]
    assert macros("none") == ["#define IK_ROW_activation(v) (v)"]


def test_a_line_may_name_a_launch_that_files_share(block):
    plan, traits = plan_of("relu", (3, 8192)), Traits()
    shared = block("launch_rows(entry='one', y=y, values=2, when=y.ndim == 1)").choose(plan, traits)
    assert [r.entry for r in shared.launches] == ["one", "one"]
    assert shared.workspace > 0
    assert block("launch_rows(entry='one', y=y, values=2, when=y.ndim > 1)").choose(plan, traits).launches == ()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("three(items=1)", "names three, which is no IK_ENTRY"),
        ("launch_rows(entry='three', y=y, values=2)", "names three, which is no IK_ENTRY"),
        ("one(items=", "made.c:3"),
        ("one", "is not a call"),
        ("one(5)", "given by name"),
        ("one(**x)", "given by name"),
    ],
)
def test_what_is_no_launch_is_told_with_its_line(block, line, told):
    with pytest.raises(ValueError, match=told):
        block(line)


def test_a_file_without_a_block_is_an_error(tmp_path):
    (tmp_path / "bare.c").write_text("int x;\n")
    with pytest.raises(ValueError, match="no launch block"):
        launches(tmp_path / "bare.c")


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "y.__class__",
        "[d for d in y.shape]",
        "(lambda: 1)()",
        "2 ** 9 ** 9",
        "max(y.shape, key=abs)",
        "y.permute([0])",
        "{1: 2}",
        "f'{y}'",
    ],
)
def test_what_leaves_the_language_is_refused(block, text):
    with pytest.raises(ValueError, match=r"made.c:3: .* is not in the language; write a Python file"):
        block(f"one(items={text})")


def test_a_python_file_says_the_same(block, python):
    told = block(
        "let(n=y.numel, y=bits(y))", "refuse(when=n > 9, reason='too many')", "workspace(bytes=4 * n)", "one(items=n)"
    )
    made = python(
        "t = call.tensors()",
        "n = t.y.numel",
        "t.y = bits(t.y)",
        "if n > 9:",
        "    call.refuse('too many')",
        "call.workspace(4 * n)",
        "call.launch('one', items=n)",
    )
    for n in (3, 9, 10):
        assert told.choose(plan_of("relu", (n,)), Traits()) == made.choose(plan_of("relu", (n,)), Traits())


def test_a_file_that_books_a_workspace_that_it_does_not_use_is_an_error(python):
    text = FILE.replace("= workspace[0]", "/* in the workspace */")
    with pytest.raises(ValueError, match="the file never names `workspace`"):
        python("call.workspace(8)", text=text).choose(plan_of("relu", (3,)), Traits())
    with pytest.raises(ValueError, match="three is launched, which is no IK_ENTRY"):
        python("call.tensors()", "call.launch('three', items=1)").choose(plan_of("relu", (3,)), Traits())


def test_the_record_is_what_the_struct_says(block):
    plan = plan_of("leaky_relu", (2, 3), alpha=0.5)
    (request,) = block("one(items=y.numel, more=7, list=[3, 5])").choose(plan, Traits()).launches
    head = specialisation(plan, request, "p.attr_alpha", reports=False, workspace=False)
    fields = head[head.rindex("typedef struct {") :]
    assert [w.strip(" ;") for w in fields.splitlines()[1:7]] == [
        "ik_f32 attr_alpha; ik_i32 attr_alpha_pad",
        "ik_i64 more",
        "ik_ints list",
        "ik_i64 items",
        "ik_tensor y",
        "ik_tensor x",
    ]
    tensor = (1, 0, 6, *[0] * 7, 1, *[0] * 7)
    numbers = (0.5, 7, 2, 3, 5, *[0] * 6, 6)
    assert record(plan, request, "p.attr_alpha") == struct.pack("<f4xq9qq18i18i", *numbers, *tensor, *tensor)


@pytest.mark.parametrize(
    ("value", "dtype", "packed"),
    [(-1.9, "I32", -1), (1e30, "I8", 127), (float("nan"), "I64", 0), (1e30, "U64", -1), (-3.0, "U16", 0)],
)
def test_float_attributes_of_integer_rows_convert_as_cast_does(block, value, dtype, packed):
    plan = plan_of("clip", (4,), dtype=dtype, min=value, max=5.0)
    (request,) = block("one(items=4)").choose(plan, Traits()).launches
    assert struct.unpack_from("<q", record(plan, request, "p.attr_min")) == (packed,)


def test_indices_are_wide_where_the_tensors_are(block):
    def wide(plan):
        (request,) = block("one(items=1)").choose(plan, Traits()).launches
        return is_wide(plan, request, ())

    assert not wide(plan_of("relu", (1000, 1000)))
    assert wide(plan_of("relu", (1 << 31,), dtype="I8"))
    operator = find("relu")
    far = [TensorDesc("F32", (2,), (1 << 31,))]
    assert wide(Plan(operator.resolve(far, operator.infer(far))))


@pytest.mark.parametrize(
    "body", ["\n{\n    second();\n}", "\n{ second(); }", " { second(); }"], ids=["lines", "own line", "one line"]
)
def test_only_the_launched_entry_is_compiled_and_lines_stay(tmp_path, body):
    path = tmp_path / "made.c"
    path.write_text(f"IK_ENTRY(two)(IK_PARAMS){body}\n\nIK_ENTRY(one)(IK_PARAMS)\n{{\n    first();\n}}\n\nint kept;\n")
    text = kernel_text(path, "one")
    assert "second" not in text
    assert "IK_ENTRY(one)" in text and "first" in text and "int kept" in text
    assert text.count("\n") == (expand(path) + "\n").count("\n")


def test_an_entry_may_stand_in_a_header(tmp_path):
    (tmp_path / "shared.h").write_text("IK_ENTRY(shared)(IK_PARAMS)\n{\n    workspace[0] = 1;\n}\n")
    (tmp_path / "made.c").write_text('/* launch\n * workspace(bytes=8)\n * shared(items=2)\n */\n#include "shared.h"\n')
    made = launches(tmp_path / "made.c").choose(plan_of("relu", (3,)), Traits())
    assert ([step.entry for step in made.launches], made.workspace) == (["shared"], 8)


def test_a_missing_include_is_told_with_its_line(tmp_path):
    (tmp_path / "made.c").write_text('/* */\n#include "nowhere.h"\n')
    with pytest.raises(FileNotFoundError, match=r"made\.c:2: no nowhere\.h"):
        expand(tmp_path / "made.c")


@pytest.mark.parametrize("units", [1, 512, 4096])
def test_layer_norm_cuts_no_empty_parts(units):
    """No part is empty, since each part computes a mean."""
    d = 4096 * 5000 + 1
    requests = launches(KERNELS / "layer_norm.c").choose(plan_of("layer_norm", (1, d)), Traits(units=units)).launches
    for request in requests:
        numbers = dict(request.scalars)
        assert (numbers["parts"] - 1) * numbers["length"] < d <= numbers["parts"] * numbers["length"]
