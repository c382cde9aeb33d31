"""The tensors of Hugging Face folders under GGUF's names, used in place unless GGUF's have a different form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..arguments import is_integer
from .folder_config import wrong
from .folder_types import NAMES, NO_TEXT, ModelType
from .gguf import GGUFTensor, quote_name

BEGIN = re.compile(r"^(?:language_model\.)?(?:model\.|transformer\.|backbone\.)?(?:language_model\.)?")
LAYER = re.compile(r"(?:layers|h)\.(\d{1,5})\.(.+)")
NUMBER = re.compile(r"\.(\d{1,5})(?=\.|$)")
OF_DRAFTS = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight", "shared_head.head.weight")
FOLLOWS = ("self_attn.rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")  # from the configuration: angles, masks


def rename(name: str, model: ModelType) -> tuple[str, int | None] | None:
    """Return GGUF's name of a tensor and its place among those that are stacked; None if it is not known.

    The name is empty for a tensor that follows from the configuration.
    """
    rest = BEGIN.sub("", name)
    layer = LAYER.fullmatch(rest)
    own, rest = (f"blk.{int(layer[1])}.", layer[2]) if layer else ("", rest)
    if rest in FOLLOWS:
        return "", None
    number = NUMBER.search(rest)
    rest, place = (NUMBER.sub(".#", rest), int(number[1])) if number else (rest, None)
    names = {**NAMES, **model.names}
    part, _, kind = rest.rpartition(".")
    if rest in names and "." in names[rest]:
        return own + names[rest].rstrip("."), place
    if part not in names or "." in names[part] or kind not in ("weight", "bias"):
        return None
    return f"{own}{names[part]}.{kind}", place


def drop_drafts(found: Mapping[str, GGUFTensor], model: ModelType, config: Mapping[str, Any]) -> dict[str, GGUFTensor]:
    """Return the tensors without those of layers behind the last one that only draft tokens."""
    layers: Any = config.get("num_hidden_layers")
    drafts = config.get("num_nextn_predict_layers") or 0
    if not is_integer(drafts) or not 0 <= drafts < 10:
        raise wrong("config.json", f"num_nextn_predict_layers is {quote_name(str(drafts))}", "0 to 9")
    first = [f"model.layers.{layers + i}." for i in range(drafts)] if is_integer(layers) else []
    kept = {}
    for name, tensor in found.items():
        own = next((name.removeprefix(layer) for layer in first if name.startswith(layer)), None)
        if own is None or (own not in OF_DRAFTS and rename(name, model) is None):
            kept[name] = tensor
    return kept


def rename_tensors(
    found: Mapping[str, GGUFTensor], model: ModelType, sizes: Mapping[str, Any], whole: bool
) -> dict[str, GGUFTensor]:
    """Return the tensors under GGUF's names and in its forms; `sizes` are GGUF's keys, without the architecture.

    Unless the text is the `whole` of the model, tensors of its other parts are left out.
    """
    parts: dict[str, dict[int | None, GGUFTensor]] = {}
    for name, tensor in found.items():
        if not whole and re.fullmatch(NO_TEXT, name):
            continue
        own = rename(name, model)
        if own is None or own[1] in parts.get(own[0], {}):
            raise wrong("safetensors", f"tensor {quote_name(name)} is not known here", "tensors of the model_type")
        if own[0]:
            parts.setdefault(own[0], {})[own[1]] = tensor
    made: dict[str, GGUFTensor] = {}
    for tensor in _convert(parts, model, sizes):
        if tensor.name in made:
            raise wrong("safetensors", f"several tensors make {quote_name(tensor.name)}", "one of them")
        made[tensor.name] = tensor
    return made


def _convert(
    parts: dict[str, dict[int | None, GGUFTensor]], model: ModelType, sizes: Mapping[str, Any]
) -> Iterator[GGUFTensor]:
    """Give the tensors in GGUF's forms, from those that make them by GGUF's name and number."""
    for name in [name for name in parts if name.endswith(".blocks")]:
        scales = name.replace(".blocks", ".scales")
        if scales not in parts or {*parts[scales], *parts[name]} != {None}:
            raise wrong("safetensors", f"tensor {quote_name(scales)} is missing", "with every tensor of blocks")
        yield from _pack_mxfp4(name.removesuffix(".blocks"), parts.pop(name)[None], parts.pop(scales)[None])
    for name, each in parts.items():
        words = name.split(".")
        kind = f".{words.pop()}" if words[-1] in ("weight", "bias") else ""
        stem, prefix = words[-1], ".".join([*words[:-1], ""])
        change = CHANGES.get(model.changes.get(stem, ""))
        first = next(iter(each.values()))
        if {*each} == {None} and change is None:
            yield GGUFTensor(name, first.shape, first.type, first.offset, first.data)
            continue
        array = first.array if {*each} == {None} else _stack(name, each)
        try:
            arrays = {stem: array} if change is None else change(array, stem, sizes)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise wrong("safetensors", f"tensor {quote_name(first.name)} is {list(array.shape)}", str(error)) from None
        for part, values in arrays.items():
            full, data = f"{prefix}{part}{kind}", np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            yield GGUFTensor(full, values.shape, "F32" if values.dtype == np.float32 else first.type, 0, data)


def _stack(name: str, each: Mapping[int | None, GGUFTensor]) -> Any:
    """Return tensors that are numbered as one."""
    if {*each} != {*range(len(each))} or len({(t.shape, t.type) for t in each.values()}) > 1:
        given = f"tensors of {quote_name(name)} have the numbers {sorted(map(str, each))[:8]}"
        raise wrong("safetensors", given, f"{len(each)} of one shape and type, from 0")
    return np.stack([each[i].array for i in range(len(each))])


def _pack_mxfp4(name: str, blocks: GGUFTensor, scales: GGUFTensor) -> Iterator[GGUFTensor]:
    """Give matrices of gpt-oss in GGUF's blocks, gate and up apart.

    In blocks [experts, rows, n, 16] a byte has two adjacent elements, in GGUF two that are 16 apart, after their scale.
    """
    if {blocks.type, scales.type} != {"U8"} or blocks.shape != (*scales.shape, 16) or len(scales.shape) != 3:
        given = f"tensors of {quote_name(name)} are {list(blocks.shape)} and {list(scales.shape)}"
        raise wrong("safetensors", given, "U8 [experts, rows, n, 16] and [experts, rows, n]")
    packed = blocks.data.reshape(blocks.shape)
    each = np.stack([packed & 15, packed >> 4], -1).reshape(*scales.shape, 32)
    both = np.concatenate([scales.data.reshape(*scales.shape, 1), each[..., :16] | each[..., 16:] << 4], -1)
    halves = {name: both}
    if "gate_up" in name:
        halves = dict(zip(_list_halves(name), (both[:, 0::2], both[:, 1::2]), strict=True))
    for own, part in halves.items():
        full, shape = f"{own}.weight", (*part.shape[:2], 32 * part.shape[2])
        yield GGUFTensor(full, shape, "MXFP4", 0, np.ascontiguousarray(part).reshape(-1))


def _pair_rows(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of each head, which alternate between the head's halves."""
    heads: Any = sizes.get("attention.head_count")
    heads = sizes.get("attention.head_count_kv", heads) if stem == "attn_k" else heads
    if not is_integer(heads) or heads < 1 or len(array) % (2 * heads):
        raise ValueError(f"even rows for {heads} heads")
    return {stem: array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)}


def _add_one(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {stem: array.astype(np.float32) + 1}


def _squeeze(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {stem: array.squeeze()}


def _transpose(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {stem: array.swapaxes(-1, -2) if array.ndim > 1 else array}


def _swap_experts(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {stem: array.swapaxes(1, 2) if array.ndim > 2 else array}


def _halve(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return gate and up of rows that have one after the other."""
    rows = max(array.ndim - 2, 0)
    return dict(zip(_list_halves(stem), np.split(array, 2, rows), strict=True))


def _unweave(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return gate and up of columns, or biases, that alternate between them."""
    halves = (array[..., 0::2], array[..., 1::2])
    return dict(zip(_list_halves(stem), (h.swapaxes(1, 2) if h.ndim > 2 else h for h in halves), strict=True))


def _list_halves(stem: str) -> list[str]:
    return [stem.replace("gate_up", name) for name in ("gate", "up")]


def _ungroup(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all heads of q, then of k, then of v, from groups of the heads of q that share one of k and v."""
    heads, kv_heads = sizes["attention.head_count"], sizes["attention.head_count_kv"]
    groups = array.reshape(kv_heads, heads // kv_heads + 2, -1, *array.shape[1:])
    parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
    return {stem: np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])}


def _split_latent(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes keys of latents, for each head [rank, width], and values [width, rank]."""
    heads, plain = array.reshape(sizes["attention.head_count"], -1, array.shape[1]), sizes["attention.key_length_mla"]
    key, value = np.split(heads, [plain - sizes["rope.dimension_count"]], 1)
    return {"attn_k_b": key.swapaxes(1, 2), "attn_v_b": value}


def _decay(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decay of a logarithm, of Mamba-2's heads as a column."""
    decay = -np.exp(array.astype(np.float32))
    return {stem: decay if array.ndim > 1 else decay[:, None]}


def _column(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {stem: array[:, None]}


def _group_rows(array: Any, stem: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {stem: array.reshape(sizes["ssm.group_count"], -1)}


CHANGES: Mapping[str, Callable[[Any, str, Mapping[str, Any]], dict[str, Any]]] = {
    "pairs": _pair_rows,
    "plus_one": _add_one,
    "squeezed": _squeeze,
    "transposed": _transpose,
    "swapped": _swap_experts,
    "halves": _halve,
    "woven": _unweave,
    "grouped": _ungroup,
    "latent": _split_latent,
    "decay": _decay,
    "column": _column,
    "groups": _group_rows,
}
