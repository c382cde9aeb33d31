"""Models of torchvision and transformers with random weights, at reduced sizes, and as ONNX: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

SIZE = 64  # of images
_declared: list[Any] = []  # what is declared lasts as long as its library


def import_torchvision() -> ModuleType:
    """Return torchvision.

    The wheel on PyPI is built for another PyTorch than the one for processors, and then its own library of operators
    does not load. No model here needs them, but the import wants two to be declared.
    """
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _declared.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


def import_transformers() -> ModuleType:
    """Return transformers, whose models import torchvision where there is one."""
    with suppress(ImportError):
        import_torchvision()
    import transformers

    return transformers


def random(*dims: int) -> Any:
    """Return numbers from 0 to 1 that are always the same."""
    return torch.rand(*dims, generator=torch.Generator().manual_seed(1))


def images(size: int = SIZE, batch: int = 1) -> Any:
    """Return images."""
    return random(batch, 3, size, size)


def vision(name: str, **named: Any) -> Callable[[], Any]:
    """Return a function that makes a model of torchvision."""

    def build() -> Any:
        models = import_torchvision().models
        found = models.segmentation if hasattr(models.segmentation, name) else models
        if found is models.segmentation:
            named["weights_backbone"] = None
        return getattr(found, name)(weights=None, **named)

    return build


def transformer(model: str, config: str, **named: Any) -> Callable[[], Any]:
    """Return a function that makes a model of transformers from a small configuration."""

    def build() -> Any:
        transformers = import_transformers()
        made = getattr(transformers, config)(**named)
        made.use_cache = False
        return getattr(transformers, model)(made)

    return build


def vit_b_16() -> Any:
    """Return vit_b_16 for small images."""
    return import_torchvision().models.VisionTransformer(
        image_size=SIZE, patch_size=16, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072
    )


class Detector(torch.nn.Module):
    """The backbone and the heads of ssdlite320_mobilenet_v3_large, without what makes boxes of their scores."""

    def __init__(self) -> None:
        super().__init__()
        detection = import_torchvision().models.detection
        made = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        self.backbone, self.head = made.backbone, made.head

    def forward(self, x: Any) -> Any:
        """Return the heads' scores and places for images."""
        return self.head([*self.backbone(x).values()])


VISION: dict[str, Callable[[], Any]] = {
    "convnext_tiny": vision("convnext_tiny"),
    "deeplabv3_mobilenet_v3_large": vision("deeplabv3_mobilenet_v3_large"),
    "densenet121": vision("densenet121"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "fcn_resnet50": vision("fcn_resnet50"),
    "lraspp_mobilenet_v3_large": vision("lraspp_mobilenet_v3_large"),
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "ssdlite320_mobilenet_v3_large": Detector,
    "swin_t": vision("swin_t"),
    "vit_b_16": vit_b_16,
}
SMALL = ("mobilenet_v3_small", "resnet18", "squeezenet1_1")  # those that run on every device


@dataclass(frozen=True)
class Dims:
    """Dims of the language models; the defaults are for comparisons, which need no more."""

    batch: int = 2
    length: int = 6  # of texts
    width: int = 32
    layers: int = 2
    heads: int = 4
    vocabulary: int = 50
    frames: int = 20  # of sound, when Whisper's convolutions have halved them
    image: int = 32  # pixels of the sides of CLIP's images, of 8 × 8 patches

    @property
    def common(self) -> dict[str, int]:
        """What most configurations call the dims of layers."""
        return {
            "hidden_size": self.width,
            "intermediate_size": 4 * self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
        }

    def texts(self, length: int | None = None) -> Any:
        """Return tokens of texts, which all end in the vocabulary's last one."""
        generator = torch.Generator().manual_seed(2)
        found = torch.randint(3, self.vocabulary - 1, (self.batch, length or self.length), generator=generator)
        found[:, -1] = self.vocabulary - 1
        return found

    def mask(self) -> Any:
        """Return which tokens count: all but the last text's last two."""
        found = torch.ones(self.batch, self.length, dtype=torch.int64)
        found[-1, -2:] = 0
        return found


Case = tuple[Callable[[], Any], dict[str, Any]]  # what makes a model, and its feeds


def bert(dims: Dims) -> Case:
    """Return BERT."""
    build = transformer("BertModel", "BertConfig", vocab_size=dims.vocabulary, **dims.common)
    return build, {"input_ids": dims.texts(), "attention_mask": dims.mask()}


def clip(dims: Dims) -> Case:
    """Return CLIP, for images and texts."""
    text = {
        "vocab_size": dims.vocabulary,
        "bos_token_id": 1,
        "eos_token_id": dims.vocabulary - 1,
        "max_position_embeddings": dims.length,
    }
    build = transformer(
        "CLIPModel",
        "CLIPConfig",
        text_config={**dims.common, **text},
        vision_config={**dims.common, "image_size": dims.image, "patch_size": 8},
        projection_dim=dims.width // 2,
    )
    return build, {"input_ids": dims.texts(), "pixel_values": images(dims.image, dims.batch)}


def gpt2(dims: Dims) -> Case:
    """Return GPT-2."""
    build = transformer(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=dims.vocabulary,
        n_embd=dims.width,
        n_layer=dims.layers,
        n_head=dims.heads,
        n_positions=dims.length,
        bos_token_id=1,
        eos_token_id=2,
    )
    return build, {"input_ids": dims.texts(), "use_cache": False}


def llama(dims: Dims) -> Case:
    """Return Llama, whose queries share keys in pairs."""
    sizes = {**dims.common, "num_key_value_heads": dims.heads // 2, "vocab_size": dims.vocabulary}
    return transformer("LlamaForCausalLM", "LlamaConfig", **sizes), {"input_ids": dims.texts(), "use_cache": False}


def t5_kind(model: str, dims: Dims) -> Callable[[], Any]:
    """Return a function that makes a model of T5's."""
    return transformer(
        model,
        "T5Config",
        vocab_size=dims.vocabulary,
        d_model=dims.width,
        d_kv=dims.width // dims.heads,
        d_ff=4 * dims.width,
        num_layers=dims.layers,
        num_heads=dims.heads,
    )


def t5(dims: Dims) -> Case:
    """Return T5, encoder and decoder."""
    given = {"input_ids": dims.texts(), "decoder_input_ids": dims.texts(dims.length // 2), "use_cache": False}
    return t5_kind("T5Model", dims), given


def t5_encoder(dims: Dims) -> Case:
    """Return T5's encoder alone."""
    return t5_kind("T5EncoderModel", dims), {"input_ids": dims.texts(), "attention_mask": dims.mask()}


class DecoderStep(torch.nn.Module):
    """A step of T5's decoder: the next token, after those whose keys and values are given."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        made = t5_kind("T5ForConditionalGeneration", dims)()
        self.decoder, self.head = made.decoder, made.lm_head

    def forward(self, input_ids: Any, states: Any, mask: Any, past: Any) -> Any:
        """Return scores of the token after, and the keys and values with those of `input_ids`.

        `past` has four tensors for each layer: keys and values of the tokens before, and of the encoder's `states`,
        which are not computed again.
        """
        cache = import_transformers().EncoderDecoderCache(past)
        found = self.decoder(input_ids, None, states, mask, None, cache)
        scores = self.head(found.last_hidden_state)
        return scores, [(layer.keys, layer.values) for layer in cache.self_attention_cache.layers]


def t5_decoder_step(dims: Dims) -> Case:
    """Return a step of T5's decoder after half as many tokens as the encoder had."""
    shapes = [(dims.batch, dims.heads, n, dims.width // dims.heads) for n in (dims.length // 2, dims.length)]
    given = {
        "input_ids": dims.texts(1),
        "states": random(dims.batch, dims.length, dims.width),
        "mask": dims.mask(),
        "past": [tuple(random(*shapes[n // 2]) + n + layer for n in range(4)) for layer in range(dims.layers)],
    }
    return lambda: DecoderStep(dims), given


def whisper(dims: Dims) -> Case:
    """Return Whisper's encoder."""
    mels = 8 if dims.frames < 100 else 80
    build = transformer(
        "WhisperModel",
        "WhisperConfig",
        vocab_size=dims.vocabulary,
        d_model=dims.width,
        encoder_layers=dims.layers,
        decoder_layers=1,
        encoder_attention_heads=dims.heads,
        decoder_attention_heads=dims.heads,
        encoder_ffn_dim=4 * dims.width,
        decoder_ffn_dim=4 * dims.width,
        max_source_positions=dims.frames,
        num_mel_bins=mels,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return lambda: build().encoder, {"input_features": random(dims.batch, mels, 2 * dims.frames)}


LANGUAGE: dict[str, Callable[[Dims], Case]] = {
    "bert": bert,
    "clip": clip,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "t5_decoder_step": t5_decoder_step,
    "t5_encoder": t5_encoder,
    "whisper": whisper,
}


def make(build: Callable[[], Any]) -> Any:
    """Return a model for inference, with weights and moments that are always the same, and none of which is 0."""
    torch.manual_seed(0)
    made = build().eval().requires_grad_(False)
    for name, tensor in (*made.named_parameters(), *made.named_buffers()):
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif tensor.is_floating_point() and (not tensor.any() or name.endswith("running_mean")):
            tensor.normal_(0, 0.02)
    return made


def tensors(held: Any) -> list[Any]:
    """Return the tensors of feeds or results, in order, whatever holds them."""
    found = dict(held) if hasattr(held, "items") else held
    return [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]


def export_onnx(model: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Return a module, or what torch.export made of it, as an ONNX model: a ModelProto; it needs onnxscript."""
    return torch.onnx.export(model, args, kwargs=given, dynamo=True, verbose=False).model_proto
