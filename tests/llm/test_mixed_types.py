"""Test models whose weights are of the block types that stock quantisers write, several in one file."""

import numpy as np
import pytest
import reference_models
import small_architectures
from float64 import logits as reference
from small_model import PROMPT, made

import isokern
from isokern import BadTensorDtype, blocks
from isokern.blocks.layouts import LAYOUTS, read_scale, write_scale
from isokern.dtypes import QUANTIZED, STORED_BLOCKS, dtype
from isokern.llm import GGUF, Model, Session
from isokern.oracle.values import draw

# As the mixes of a size have them: what a row does not fill with whole blocks is of a type with smaller ones
RNG = np.random.default_rng(11)
MIXES = {
    "Q4_K_M": {"output": "Q6_K", "attn_v": "Q6_K", "attn_output": "Q5_0", "": "Q4_K"},
    "Q5_K_M": {"output": "Q6_K", "attn_v": "Q6_K", "attn_output": "Q5_1", "": "Q5_K"},
    "Q2_K": {"output": "Q6_K", "attn_v": "Q3_K", "attn_output": "IQ4_NL", "": "Q2_K"},
    "Q4_0": {"output": "Q6_K", "": "Q4_0"},
    "others": {"output": "Q6_K", "ffn_up": "TQ2_0", "attn_output": "MXFP4", "": "IQ4_XS"},
    "IQ2_M": {"output": "Q5_K", "attn_v": "IQ3_S", "attn_output": "IQ4_NL", "ffn_down": "IQ3_XXS", "": "IQ2_S"},
    "IQ1_M": {"output": "IQ2_XS", "attn_v": "IQ2_XXS", "attn_q": "IQ1_S", "attn_output": "IQ4_NL", "": "IQ1_M"},
    "ternary": {"output": "Q8_K", "attn_output": "Q5_1", "": "TQ1_0"},
}


def raw_blocks(name, shape):
    """Return random blocks whose elements are about 1 / √width."""
    element = dtype(name)
    size = 1 / np.sqrt(shape[-1])
    if element not in STORED_BLOCKS:
        return blocks.quantize(RNG.standard_normal(shape) * size, element)
    raw = draw("normal", element, shape, RNG)
    each = raw.reshape(-1, element.itemsize)
    layout = LAYOUTS[name]
    if layout.stored == "power":
        each[:, layout.d] -= 4
        return raw
    write_scale(each, layout, read_scale(each, layout) * size)
    if layout.m is not None:
        half = np.ascontiguousarray(each[:, layout.m : layout.m + 2]).view(np.float16)
        each[:, layout.m : layout.m + 2] = (half * np.float16(size)).view(np.uint8)
    return raw


def mix(types):
    def change(facts, held):
        for name, array in held.items():
            if array.ndim == 2:
                type_ = types.get(name.split(".")[-2], types[""])
                held[name] = type_, array.shape, raw_blocks(type_, array.shape).reshape(-1)

    return change


def write(path, types):
    return made(path, tied=False, change=mix(types), width=256, inner=512)


CASES = [(name, how) for name in MIXES for how in ("float", "q8_0")]
QUICK = {("Q4_K_M", "q8_0"), ("Q4_0", "float"), ("others", "float"), ("IQ1_M", "float")}


@pytest.mark.parametrize(
    ("name", "activations"), [pytest.param(*c, marks=[] if c in QUICK else pytest.mark.full) for c in CASES]
)
def test_logits_are_those_of_float64(tmp_path, device, name, activations):
    gguf = write(tmp_path / "m.gguf", MIXES[name])
    assert {t.type for t in gguf.tensors.values()} == {"F32", *MIXES[name].values()}
    session = Session(Model(gguf, device=device, activations=activations), dtype="F32")
    got, wanted = session.logits(PROMPT, every=True), reference(gguf, PROMPT, activations)
    error = np.abs(got - wanted) / np.max(np.abs(wanted))
    # A quant of an activation may be another one where it is near a half: some tokens may be off by more
    assert np.median(error) < 1e-5 and np.max(error) < (1e-5 if activations == "float" else 2e-2)
    other = reference(gguf, PROMPT, "q8_0" if activations == "float" else "float")
    assert np.median(np.abs(got - other)) / np.max(np.abs(wanted)) > 1e-4, "products of the weights are in the logits"


@pytest.mark.parametrize("element", STORED_BLOCKS, ids=str)
def test_blocks_in_memory(device, element):
    raw = draw("any", element, (3, 2, 512), np.random.default_rng(5))
    held, worth = isokern.empty((3, 2, 512), element, device=device), blocks.dequantize(raw, element)
    held.raw.copy_from(raw)
    np.testing.assert_array_equal(held.numpy(), raw)
    for view, wanted in [
        (held[1:], worth[1:]),
        (held[::-2, 1], worth[::-2, 1]),
        (held[..., 256:], worth[..., 256:]),
        (held.permute(1, 0, 2), worth.transpose(1, 0, 2)),
    ]:
        np.testing.assert_array_equal(isokern.cast(view, dtype="F32").numpy(), wanted)
        np.testing.assert_array_equal(isokern.cast(view, dtype="F16").numpy(), wanted.astype(np.float16))
    if element not in QUANTIZED:
        with pytest.raises(BadTensorDtype, match=rf"{element}.*Q4_0, Q4_1, Q8_0, Q5_0, Q5_1"):
            isokern.cast(isokern.zeros((2, 256), device=device), dtype=element)


@pytest.mark.parametrize("element", QUANTIZED, ids=str)
def test_blocks_of_a_device_are_those_of_the_host(device_group, element):
    x = np.random.default_rng(3).standard_normal((6, 5 * element.block)).astype(np.float32)
    x[1, 7], x[2, 40], x[3, 99], x[4], x[5] = np.nan, np.inf, -np.inf, -0.0, 1e-41
    for device in device_group:
        for name in ("F32", "F16"):
            given = isokern.cast(isokern.tensor(x, device=device), dtype=name)
            with np.errstate(all="ignore"):
                wanted = blocks.quantize(given.numpy().astype(np.float32), element)
            got = isokern.cast(given, dtype=element).numpy()
            np.testing.assert_array_equal(got.reshape(wanted.shape), wanted, err_msg=device.name)


def test_the_power_of_mxfp4_is_by_a_rounded_logarithm(devices):
    """A little below a power of two its logarithm in F32 is that power's, as NumPy's, C's and the devices' are."""
    bits = (np.maximum(np.arange(-3, 255), 1)[:, None] << 23) + np.arange(-50, 3)
    x = np.zeros((bits.size, 32), np.float32)
    x[:, 5] = np.minimum(bits, 0x7F7FFFFF).astype(np.uint32).view(np.float32).reshape(-1)
    host = blocks.quantize(x, isokern.MXFP4)
    plain = np.clip(np.floor(np.log2(x[:, 5].astype(np.float64))) + 125, 0, 255)
    assert np.count_nonzero(host[:, 0] != plain) > 100
    for device in devices:
        got = isokern.cast(isokern.tensor(x, device=device), dtype="MXFP4").numpy()
        np.testing.assert_array_equal(got.reshape(host.shape), host, err_msg=device.name)


def test_blocks_of_an_odd_size_lie_anywhere(device):
    if not device.memory.wraps:
        pytest.skip("host memory is not used in place")
    memory = np.zeros(1 + 4 * 2 * 17, np.uint8)
    for begin in (0, 1):
        raw = memory[begin : begin + 4 * 2 * 17].reshape(4, 34)
        raw[...] = draw("any", isokern.MXFP4, (4, 64), np.random.default_rng(7))
        held = isokern.from_blocks(raw, "MXFP4", device=device)
        np.testing.assert_array_equal(isokern.cast(held, dtype="F32").numpy(), blocks.dequantize(raw, isokern.MXFP4))


def test_types_that_are_not_read_are_refused_by_name(tmp_path, device):
    def change(facts, held):
        held["output.weight"] = "Q1_0", (97, 256), np.zeros(97 * 36, np.uint8)

    gguf = made(tmp_path / "m.gguf", tied=False, change=change, width=256)
    assert isinstance(gguf, GGUF)
    with pytest.raises(BadTensorDtype, match=r"output\.weight is Q1_0; allowed: .*Q6_K, Q4_K"):
        Model(gguf, device=device)


@pytest.mark.quick("gpt-oss-MXFP4-cpu", "mixtral-Q5_0-cpu", "mixtral-Q5_0-kunlun_sim")
@pytest.mark.parametrize("device", ["cpu", "opencl", "cuda_sim", "kunlun_sim"])
@pytest.mark.parametrize(("model", "kind"), [("gpt-oss", "MXFP4"), ("mixtral", "Q5_0")])
def test_experts_of_block_types(tmp_path, model, kind, device):
    try:
        there = isokern.device(device)
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))

    def change(facts, held):
        for name, array in held.items():
            if array.ndim == 3:
                held[name] = kind, array.shape, raw_blocks(kind, array.shape).reshape(-1)

    gguf = small_architectures.made(tmp_path / "m.gguf", model, change=change)
    assert kind in {tensor.type for tensor in gguf.tensors.values()}
    wanted = {how: reference_models.logits(gguf, model, PROMPT, how) for how in ("float", "q8_0")}
    for how in wanted:
        loaded = Model(gguf, device=there, activations=how)
        error = (
            np.abs(Session(loaded, dtype="F32").logits(PROMPT, every=True) - wanted[how]) / np.abs(wanted[how]).max()
        )
        assert np.median(error) < 1e-5 and np.max(error) < (1e-5 if how == "float" else 2e-2)
        names = {name for name, tensor in gguf.tensors.items() if len(tensor.shape) == 3}
        assert device != "cpu" or loaded.prepacked_bytes > 0.9 * sum(gguf.tensors[name].data.nbytes for name in names)
    assert np.median(np.abs(wanted["float"] - wanted["q8_0"])) > 2e-5 * np.abs(wanted["float"]).max()


def test_a_minimum_of_zero_has_no_sign(device_group):
    element, x = dtype("Q4_1"), np.abs(np.random.default_rng(0).standard_normal((5, 32))).astype(np.float32)
    x[:, 5], x[1, 7], x[2, 3], x[3], x[4] = -0.0, 0.0, 0.0, -0.0, -x[4]
    assert not (blocks.quantize(x, element)[:4, 3] & 128).any()
    for device in device_group:
        for name in ("F32", "F16"):
            given = isokern.cast(isokern.tensor(x, device=device), dtype=name)
            got = isokern.cast(given, dtype="Q4_1").numpy().reshape(5, 20)
            assert np.array_equal(got, blocks.quantize(given.numpy().astype(np.float32), element)), device.name
