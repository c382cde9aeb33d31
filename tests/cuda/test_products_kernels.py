"""Test the backend's own gemm and conv2d against the portable ones, and with planted faults.

Sizes and layouts are such as the conformance samples lack.
"""

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import isokern
from isokern.cabi.plan import Plan
from isokern.ops import find
from isokern.simt.launch_block import launches

KERNELS = Path(__file__).parents[2] / "plugins/cuda/src/isokern_cuda/kernels/cuda"
BOUNDS = {"F32": 1e-6, "F16": 2e-3, "BF16": 1.6e-2}  # relative error of rounding an output twice
DTYPES = list(BOUNDS)
# Threads of a block, and multiprocessors of the device: the more of these, the smaller the tiles
FORMS = {"large": (64, 1), "small": (64, 1000), "gpu": (256, 1), "gpu small": (256, 1000)}
WHOLE, ODD = 16, 3


def shaped(device, form):
    """Set the device's traits to those of a form, and return the device."""
    group, units = FORMS[form]
    device.traits = replace(device.traits, group=group, units=units)
    return device


def laid(x, dtype, device, across=False, more=WHOLE, front=0):
    """Return a tensor x with rows padded by NaN: `front` elements before each, and at least `more` after it.

    With `across` the last two dims are transposed in memory.
    """
    x = np.swapaxes(x, -1, -2) if across else x
    *heads, lines, length = x.shape
    long = -(-length // 8) * 8 + more
    whole = np.full((*heads, lines, long), np.nan, np.float32)
    whole[..., front : front + length] = x
    made = isokern.tensor(whole, dtype, device=device)[..., front : front + length]
    return made.permute((1, 0)) if across else made


def run(device, variant, name, inputs, **attrs):
    call = isokern.create(
        name, [None if t is None else t.desc for t in inputs], device=device, variant=variant, **attrs
    )
    out = isokern.zeros(call.outputs[0].shape, call.outputs[0].dtype, device=device)
    call.calculate(inputs, [out], workspace="auto")
    return out.numpy().astype(np.float64)


def alike(device, dtype, name, inputs, scale, variant="cuda", **attrs):
    """Return whether both variants' results agree, for sums of `scale` products."""
    own, portable = (run(device, v, name, inputs, **attrs) for v in (variant, "portable"))
    return own.shape == portable.shape and np.allclose(own, portable, rtol=BOUNDS[dtype], atol=1e-6 * scale)


@pytest.fixture
def normal():
    random = np.random.default_rng(0)
    return lambda *shape: random.standard_normal(shape).astype(np.float32)


@pytest.mark.quick("large-F32-65-70-31-1", "small-F16-130-75-32-0")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(5, 18, 1), (65, 70, 31), (130, 75, 32), (70, 96, 100), (30, 6, 37), (40, 40, 0)]
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["large", "small"])
def test_any_size(opened, normal, form, dtype, m, n, k, seed):
    device = shaped(opened(seed), form)
    inputs = [laid(normal(m, k), dtype, device), laid(normal(k, n), dtype, device)]
    assert alike(device, dtype, "matmul", inputs, k)


@pytest.mark.quick("F16-True-False-odd", "BF16-False-True-whole")
@pytest.mark.parametrize("more", [WHOLE, ODD], ids=["whole", "odd"])
@pytest.mark.parametrize("b_across", [False, True])
@pytest.mark.parametrize("a_across", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_lie_either_way(opened, normal, dtype, a_across, b_across, more):
    device = shaped(opened(1), "large")
    a = laid(normal(75, 90), dtype, device, a_across, more)
    b = laid(normal(90, 77), dtype, device, b_across, more)
    assert alike(device, dtype, "matmul", [a, b], 90)


@pytest.mark.quick("gpu-F16")
@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("form", ["gpu", "gpu small"])
def test_the_tiles_of_a_gpu(opened, normal, form, dtype):
    device = shaped(opened(1), form)
    inputs = [laid(normal(130, 72), dtype, device), laid(normal(72, 140), dtype, device, True)]
    assert alike(device, dtype, "matmul", inputs, 72)


@pytest.mark.quick("F16")
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(opened, normal, dtype):
    device = shaped(opened(), "small")
    a, b = laid(normal(3, 2, 20, 40), dtype, device), laid(normal(2, 40, 24), dtype, device)
    assert alike(device, dtype, "matmul", [a, b], 40)


@pytest.mark.quick("F16-1")
@pytest.mark.parametrize("front", [1, 2, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_offsets(opened, normal, dtype, front):
    device = shaped(opened(), "small")
    a, b = laid(normal(33, 40), dtype, device, front=front), laid(normal(40, 24), dtype, device, front=front)
    assert alike(device, dtype, "matmul", [a, b], 40)


@pytest.mark.quick("F32-37--2.0-gelu")
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("beta", [0.0, -2.0])
@pytest.mark.parametrize("n", [40, 37])
@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_what_is_done_to_sums(opened, normal, dtype, n, beta, activation):
    device = shaped(opened(), "small")
    a, b, bias = laid(normal(33, 40), dtype, device), laid(normal(40, n), dtype, device), normal(n)
    c = normal(33, n) if beta else np.full((33, n), np.nan, np.float32)
    inputs = [a, b, *(isokern.tensor(v, dtype, device=device) for v in (bias, c))]
    assert alike(device, dtype, "gemm", inputs, 40, alpha=0.5, beta=beta, activation=activation)


def test_linear(opened, normal):
    device = shaped(opened(), "small")
    x, w, bias = (isokern.tensor(normal(*s), "F16", device=device) for s in [(2, 20, 64), (48, 64), (48,)])
    assert alike(device, "F16", "linear", [x, w, bias], 64)


def test_sums_of_products_that_are_alike(opened):
    """A single running sum would round in the same direction each time, with an error of 1e-4."""
    device = shaped(opened(), "small")
    a, b = (
        isokern.tensor(np.full((17, 4096), 0.1), "F32", device=device),
        isokern.tensor(np.full((4096, 20), 0.1), "F32", device=device),
    )
    exact = 4096 * float(np.float32(0.1)) ** 2
    assert np.abs(run(device, "cuda", "matmul", [a, b]) / exact - 1).max() < 2e-6


def test_infinities_stay_in_their_rows_and_columns(opened, normal):
    device = shaped(opened(), "small")
    a, b = normal(33, 41), normal(41, 35)
    a[4, 7], b[9, 11] = np.inf, np.nan
    own = run(device, "cuda", "matmul", [laid(a, "F16", device), laid(b, "F16", device)])
    wrong = ~np.isfinite(own)
    assert wrong[4].all() and wrong[:, 11].all() and wrong.sum() == 35 + 33 - 1


CONVOLUTIONS = {
    "padding": ((2, 8, 9, 11), (70, 8, 3, 3), {"padding": (1, 1)}),
    "sides": ((1, 5, 8, 7), (17, 5, 2, 3), {"padding": (0, 2, 1, 0)}),
    "strides": ((3, 16, 13, 12), (66, 16, 3, 3), {"stride": (2, 3), "padding": (1,)}),
    "dilation": ((1, 17, 12, 12), (18, 17, 3, 2), {"dilation": (2, 3)}),
    "groups": ((1, 16, 9, 9), (150, 8, 3, 3), {"groups": 2, "padding": (1,)}),
    "first layer": ((1, 3, 21, 21), (24, 3, 7, 7), {"stride": (2,), "padding": (3,)}),
    "1 by 1": ((3, 40, 6, 6), (66, 40, 1, 1), {}),
}


@pytest.mark.quick("padding-F16-large", "strides-F32-small", "groups-BF16-small", "first layer-F16-small")
@pytest.mark.parametrize("form", ["large", "small"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(opened, normal, case, dtype, form):
    x, w, attrs = CONVOLUTIONS[case]
    device = shaped(opened(1), form)
    inputs = [isokern.tensor(v, dtype, device=device) for v in (normal(*x), normal(*w), normal(w[0]))]
    assert alike(device, dtype, "conv2d", inputs, w[1] * w[2] * w[3], **attrs)


@pytest.mark.quick("BF16-gpu small")
@pytest.mark.parametrize("form", ["gpu", "gpu small"])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_the_convolution_tiles_of_a_gpu(opened, normal, form, dtype):
    device = shaped(opened(1), form)
    inputs = [isokern.tensor(v, dtype, device=device) for v in (normal(1, 24, 13, 12), normal(130, 24, 3, 3))]
    assert alike(device, dtype, "conv2d", inputs, 216, padding=(1,))


@pytest.mark.parametrize(
    ("form", "dtype", "product", "convolution"),
    [
        ("large", "F16", (128, 64), (128, 32)),
        ("small", "F16", (64, 32), (64, 32)),
        ("gpu", "F16", (128, 128), (128, 64)),
        ("gpu small", "F16", (64, 64), (64, 64)),
        ("large", "F32", (64, 64), (64, 64)),
        ("gpu", "F32", (128, 128), (128, 128)),
        ("gpu small", "F32", (64, 64), (64, 64)),
    ],
)
def test_the_size_of_tiles(opened, form, dtype, product, convolution):
    traits = shaped(opened(), form).traits
    shapes = {"matmul": [(65, 72), (72, 70)], "conv2d": [(1, 8, 11, 11), (66, 8, 3, 3)]}
    for (name, of), tile in zip(shapes.items(), (product, convolution), strict=True):
        inputs = [isokern.TensorDesc(dtype, shape) for shape in of]
        operator = find(name)
        plan = Plan(operator.resolve(inputs, operator.infer(inputs, {}, None), {}))
        (request,) = launches(KERNELS / f"{operator.stem}.c").choose(plan, traits).launches
        defines = dict(request.defines)
        assert (defines["BLOCK_ROWS"], defines["BLOCK_COLS"]) == tile


def test_a_convolution_of_planes_that_do_not_lie_together(opened, normal):
    device = shaped(opened(), "small")
    x = isokern.tensor(normal(2, 8, 9, 20), "F16", device=device).permute((0, 3, 1, 2))
    inputs = [x, isokern.tensor(normal(24, 20, 3, 3), "F16", device=device)]
    assert alike(device, "F16", "conv2d", inputs, 180, padding=(1,))


@pytest.mark.parametrize(
    ("name", "shapes", "dtype", "of"),
    [
        ("matmul", [(4, 64), (64, 64)], "F16", "few rows"),
        ("matmul", [(16, 64), (64, 16)], "F32", "few rows"),
        ("matmul", [(64, 64), (64, 64)], "F64", "neither F16, BF16 nor F32"),
        ("matmul", [(64, 64), (64, 64)], "I32", "neither F16, BF16 nor F32"),
        ("conv2d", [(1, 8, 9, 9), (8, 8, 3, 3)], "F16", "few channels"),
    ],
)
def test_what_is_left_to_the_portable_kernels(opened, name, shapes, dtype, of):
    call = isokern.create(name, [isokern.TensorDesc(dtype, s) for s in shapes], device=opened())
    assert call.variant == "portable"
    assert of in call.considered[0].reason


def test_factors_that_lie_along_memory_in_neither_dim_are_left_to_the_portable_kernels(opened):
    device = opened()
    a = isokern.zeros((64, 128), "F16", device=device)
    call = isokern.create("matmul", [a[:, ::2].desc, a[:, :64].desc], device=device)
    assert call.variant == "portable" and "neither dim" in call.considered[0].reason


def test_a_device_without_tensor_cores_leaves_half_precision_to_the_portable_kernels(opened):
    device = opened()
    device.traits = replace(device.traits, features=frozenset({"mma_f16"}))
    variants = [isokern.create("matmul", [isokern.TensorDesc(t, (64, 64))] * 2, device=device).variant for t in DTYPES]
    assert variants == ["cuda", "cuda", "portable"]


def test_the_tensor_cores_of_architectures():
    gpu = pytest.importorskip("isokern_cuda.gpu")
    assert gpu.traits("sm_75", 1).features == {"mma_f16"}
    assert gpu.traits("sm_80", 1).features == gpu.traits("compute_120", 1).features == {"mma_f16", "mma_bf16"}


@dataclass
class Fault:
    """An edit of a kernel file, `old` to `new`; `told` matches the error."""

    name: str
    file: str
    old: str
    new: str
    told: str = ""

    def plant(self, folder):
        """Copy the kernels with the fault to a folder, and return the folder."""
        for path in (*KERNELS.glob("*.[ch]"), *KERNELS.glob("*.py")):
            shutil.copy(path, folder)
        text = (folder / self.file).read_text(encoding="utf-8")
        assert text.count(self.old) == 1
        (folder / self.file).write_text(text.replace(self.old, self.new), encoding="utf-8")
        return folder


LOOP = "        IK_BARRIER();\n        if (more)"
PRODUCT = "IK_PASTE(IK_MMA_, IK_TYPE_y)(v[i][j], rows, columns[j / 2][j % 2], columns[j / 2][2 + j % 2]);"
FAULTS = [
    Fault("no wait for copies", "products.h", "IK_WAIT_COPIES(STAGES - 2);", ""),
    Fault(
        "a wait that leaves a group too many",
        "products.h",
        "IK_WAIT_COPIES(STAGES - 2);",
        "IK_WAIT_COPIES(STAGES - 1);",
    ),
    Fault("no barrier between rounds", "products.h", LOOP, "        if (more)"),
    Fault(
        "copies to a place that is still read",
        "products.h",
        "        IK_BARRIER();\n        if (more) {\n            left.begin",
        "        if (more) left.begin(round + STAGES - 1, l + then * LEFT::tile::SIZE);\n"
        "        IK_BARRIER();\n        if (more) {\n            left.begin",
    ),
    Fault("another place than the next", "products.h", "now == STAGES - 1 ? 0 : now + 1", "now ^ 1"),
    Fault("elements beyond the end", "products.h", "left < CHUNK ? (int)left : CHUNK", "CHUNK"),
    Fault(
        "the next matrix's lines",
        "products.h",
        "const bool there = TILE::ALONG ? o < outer : k < depth;",
        "const bool there = true;",
    ),
    Fault("parts of a fragment exchanged", "tensor_tiles.h", "columns[j / 2][2 + j % 2]", "columns[j / 2][1 + j % 2]"),
    Fault(
        "chunks that did not change places",
        "tensor_tiles.h",
        "of + at(outer + lane % 16, k / CHUNK + lane / 16)",
        "of + (outer + lane % 16) * DEPTH + k + lane / 16 * CHUNK",
    ),
    Fault("sums of another row", "tensor_tiles.h", "16 * i + 8 * half + g", "16 * i + 8 * (1 - half) + g"),
    Fault(
        "a thread that takes no part",
        "tensor_tiles.h",
        PRODUCT,
        f"if (IK_SUBGROUP_LANE != 3) {PRODUCT}",
        r"wait at different barriers: item 0 at tensor_tiles\.h:\d+, item 3 at",
    ),
    Fault(
        "a warp that takes no part",
        "products.h",
        "        sums.template add",
        "        if (IK_SUBGROUP_ID == 0) sums.template add",
    ),
]


def half_product(device, variant):
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in [(75, 150), (150, 77)])  # k = 150 takes five rounds
    return alike(device, "F16", "matmul", [laid(a, "F16", device), laid(b, "F16", device)], 150, variant)


def test_the_kernel_without_a_fault_is_right(opened):
    assert all(half_product(shaped(opened(seed), "large"), "cuda") for seed in range(4))


@pytest.mark.quick("no wait for copies", "a thread that takes no part", "elements beyond the end")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_is_seen(opened, tmp_path, fault):
    folder = fault.plant(tmp_path)
    verdicts = []
    for seed in range(4):
        try:
            verdicts.append(half_product(shaped(opened(seed, folder), "large"), "planted"))
        except isokern.InternalError as error:
            verdicts.append(str(error))
    assert verdicts != [True] * len(verdicts)
    assert not any("cannot build" in str(told) for told in verdicts), verdicts
    if fault.told:
        assert any(re.search(fault.told, str(told)) for told in verdicts), verdicts
