"""Test products by cuBLASLt under the conformance suite, with the stand-in of `blas.py` as the library."""

import ctypes
import shutil

import blas
import numpy as np
import pytest

import isokern
from isokern.conformance.derive import device_cases
from isokern.conformance.suite import Report, run
from isokern.ops import find
from isokern.oracle.verdicts import Verdict

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
NAMES = ("matmul", "gemm", "linear")


@pytest.fixture
def device(driver, monkeypatch):
    """Return the emulated GPU with the stand-in library, whose calls are in `device.library.log`."""
    from isokern_cuda.cublaslt import CublasLt
    from isokern_cuda.devices import CudaDevice

    monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", "0")
    sim = driver()
    library = blas.Library(sim)
    made = CublasLt(library, lambda function, *given: function(*given))
    monkeypatch.setattr(sim, "products", lambda: made)
    device = CudaDevice("cuda_sim:0", sim)
    device.library = library
    return device


def randoms(device, *shapes, dtype="F32"):
    random = np.random.default_rng(0)
    return [isokern.tensor(random.standard_normal(s).astype(np.float32), dtype, device=device) for s in shapes]


def said(call):
    """Return what dispatch says of the library's variant."""
    return next(c for c in call.why() if c.variant == "cublaslt")


def chosen(device, name, inputs, **attrs):
    """Return (the chosen variant, the output) of a call."""
    call = isokern.create(name, [t.desc for t in inputs], device=device, **attrs)
    out = isokern.zeros(call.outputs[0].shape, call.outputs[0].dtype, device=device)
    call.calculate(inputs, [out], workspace="auto")
    return call.variant, out.numpy()


@pytest.mark.quick("gemm")
@pytest.mark.parametrize("name", NAMES)
def test_every_case_that_it_takes_passes(device, name):
    device.folders = ()  # no other variants: a call that cuBLASLt declines is unsupported
    report = Report(device.name)
    run(device, device_cases(device, [find(name)]), report.add, isolated=False)
    assert [f.id + ": " + f.detail for f in report.failures if "NotImplementedOnDevice" not in f.detail] == []
    assert report.count[Verdict.PASS] > 30
    took = {dtype for (_, dtype), cell in report.cells.items() if cell[Verdict.PASS]}
    assert {"F32", "F64", "F16", "BF16"} <= took
    assert device.library.log.count("Matmul") > 30


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
def test_the_epilogue_is_one_with_the_product(device, trans, activation):
    a, b, bias, c = randoms(
        device, (24, 8)[:: -1 if trans[0] else 1], (8, 16)[:: -1 if trans[1] else 1], (16,), (24, 16)
    )
    before = len(device.library.log)
    attrs = {"trans_a": trans[0], "trans_b": trans[1], "alpha": 0.5, "beta": 2.0, "activation": activation}
    variant, y = chosen(device, "gemm", [a, b, bias, c], **attrs)
    assert variant == "cublaslt"
    assert device.library.log[before:].count("Matmul") == 1
    expected = find("gemm").reference(*(t.numpy().astype(np.float64) for t in (a, b, bias, c)), **attrs)
    assert np.allclose(y, expected, atol=1e-5)


def test_each_of_a_batch_has_its_own_c(device):
    """A c that is shared by a batch goes to another variant, since cuBLASLt has not been seen to support it."""
    a, b, bias, own, one = randoms(device, (3, 4, 8), (3, 8, 16), (16,), (3, 4, 16), (4, 16))
    for c, taken in ((own, True), (one, False)):
        variant, y = chosen(device, "gemm", [a, b, bias, c], beta=2.0, activation="relu")
        assert (variant == "cublaslt") is taken
        wanted = np.maximum(a.numpy() @ b.numpy() + 2 * c.numpy() + bias.numpy(), 0)
        assert np.allclose(y, wanted, atol=1e-5)
    call = isokern.create("gemm", [t.desc for t in (a, b, bias, one)], device=device, beta=2.0)
    assert "one c for the whole batch" in said(call).reason


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "reason"),
    [
        ("matmul", [(4, 8), (8, 4)], {"dtype": "I32"}, "I32 is not of"),
        ("gemm", [(4, 8), (8, 4)], {"activation": "silu"}, "the library has no silu"),
        ("gemm", [(4, 8), (8, 4)], {"activation": "relu", "dtype": "F16"}, "not aligned"),
        ("linear", [(8, 12), (8, 12), (8,)], {"dtype": "BF16"}, "not aligned"),
        ("gemm", [(4, 8), (8, 4), (4,)], {"dtype": "F64"}, "bias and activation in F64"),
        ("matmul", [(2, 3, 4, 8), (3, 8, 4)], {}, "batch dims that do not step together"),
        ("matmul", [(4, 0), (0, 4)], {}, "nothing to multiply"),
    ],
)
def test_what_it_does_not_take_has_a_reason(device, name, shapes, attrs, reason):
    attrs = dict(attrs)
    inputs = randoms(device, *shapes, dtype=attrs.pop("dtype", "F32"))
    call = isokern.create(name, [t.desc for t in inputs], device=device, **attrs)
    assert call.variant != "cublaslt"
    answer = said(call)
    assert reason in answer.reason


def test_rows_with_gaps_are_taken_and_elements_with_gaps_are_not(device):
    (a,) = randoms(device, (8, 32))
    (b,) = randoms(device, (12, 5))
    variant, y = chosen(device, "matmul", [a[:, 4:16], b])
    assert variant == "cublaslt"
    assert np.allclose(y, a.numpy()[:, 4:16] @ b.numpy(), atol=1e-5)
    assert chosen(device, "matmul", [a[:, ::2][:, :12], b])[0] != "cublaslt"


@pytest.mark.parametrize("strides", [(0, 1), (2, 1), (8, 2), (-8, 1)])
def test_rows_that_overlap_or_have_gaps_are_left_to_others(device, strides):
    a = isokern.TensorDesc("F32", (4, 8), strides, 24 if strides[0] < 0 else 0)
    call = isokern.create("matmul", [a, isokern.TensorDesc("F32", (8, 5))], device=device)
    assert "no dim along memory" in said(call).reason


def test_an_offset_is_told_as_the_alignment(device):
    """The stand-in refuses an address that is less aligned than the heuristic was promised."""
    (a,) = randoms(device, (8, 32))
    (b,) = randoms(device, (4, 5))
    for start in range(9):
        variant, y = chosen(device, "matmul", [a[:, start : start + 4], b])
        assert variant == "cublaslt"
        assert np.allclose(y, a.numpy()[:, start : start + 4] @ b.numpy(), atol=1e-5)


def test_it_is_captured_and_replayed(device):
    a, b, bias = randoms(device, (8, 4), (4, 16), (16,))
    call = isokern.create("gemm", [a.desc, b.desc, bias.desc], device=device, activation="relu")
    out = isokern.zeros((8, 16), device=device)
    space = call.alloc_workspace()
    other = isokern.zeros((16,), device=device)
    second = isokern.zeros((8, 16), device=device)
    stream = device.stream()
    with stream.capture() as recording:
        call.calculate([a, b, bias], [out], workspace=space, stream=stream)
        call.calculate([a, b, other], [second], workspace=space, stream=stream)  # the same description, another bias
    assert len(recording) == 2
    a.copy_from(isokern.tensor(2 * a.numpy(), device=device))
    recording.replay()
    device.synchronize()
    product = a.numpy() @ b.numpy()
    assert np.allclose(out.numpy(), np.maximum(product + bias.numpy(), 0), atol=1e-5)
    assert np.allclose(second.numpy(), np.maximum(product, 0), atol=1e-5)


def test_what_it_made_goes_with_the_descriptor(device):
    a, b = randoms(device, (8, 4), (4, 16))
    before = device.library.alive
    call = isokern.create("matmul", [a.desc, b.desc], device=device)
    assert call.variant == "cublaslt"
    assert device.library.alive > before
    del call
    assert device.library.alive == before


def test_no_algorithm_leaves_it_to_the_next_variant(device):
    a, b = randoms(device, (8, 4), (4, 16))
    device.library.refuse["MatmulAlgoGetHeuristic"] = blas.UNSUPPORTED
    call = isokern.create("matmul", [a.desc, b.desc], device=device)
    assert call.variant != "cublaslt"
    assert "status 15" in said(call).reason


def test_a_failed_call_is_an_error(device):
    a, b = randoms(device, (8, 4), (4, 16))
    device.library.refuse["Matmul"] = 13
    with pytest.raises(isokern.InternalError, match="cublasLtMatmul: status 13"):
        chosen(device, "matmul", [a, b])


def test_a_library_that_is_missing_is_the_reason(driver, monkeypatch):
    from isokern.backend import Unavailable
    from isokern_cuda.devices import CudaDevice

    def products():
        raise Unavailable("cuBLASLt cannot be used (not found): pip install it")

    sim = driver()
    monkeypatch.setattr(sim, "products", products)
    device = CudaDevice("cuda_sim:0", sim)
    a, b = randoms(device, (3, 4), (4, 5))
    call = isokern.create("matmul", [a.desc, b.desc], device=device)
    assert "pip install it" in said(call).reason


def test_the_true_library_takes_every_attribute():
    """The installed library accepts all attributes: descriptions need no GPU, unlike the handle and the heuristic."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    from isokern_cuda.cublaslt import CublasLt, _Handle

    try:
        library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path)
    except (RuntimeError, OSError):
        pytest.skip("libcublasLt is not installed")
    library.cublasLtGetStatusString.restype = ctypes.c_char_p
    lt = CublasLt.__new__(CublasLt)  # without creating its handle
    lt._library, lt._on_device = library, lambda function, *given: function(*given)
    assert blas.SIZES["MatmulDesc"]
    values = {4: ctypes.c_uint32(1), 8: ctypes.c_uint64(2)}
    made = {
        "MatmulDesc": _Handle(lt, "MatmulDesc", ctypes.c_int(68), ctypes.c_int(0)),
        "MatrixLayout": _Handle(
            lt, "MatrixLayout", ctypes.c_int(0), ctypes.c_uint64(4), ctypes.c_uint64(4), ctypes.c_int64(4)
        ),
        "MatmulPreference": _Handle(lt, "MatmulPreference"),
    }
    for kind, sizes in blas.SIZES.items():
        for attribute, size in sizes.items():
            made[kind].set(attribute, values[size])
            with pytest.raises(Exception, match="cublasLt"):
                made[kind].set(attribute, ctypes.c_uint8(1))
