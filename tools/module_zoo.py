"""Models of torchvision and transformers with random weights, at reduced sizes: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
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


def images(size: int = SIZE) -> Any:
    """Return an image."""
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))


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
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "ssdlite320_mobilenet_v3_large": Detector,
    "swin_t": vision("swin_t"),
    "vit_b_16": vit_b_16,
}
SMALL = ("mobilenet_v3_small", "squeezenet1_1")  # those that run on every device

WIDE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = torch.arange(3, 15).view(2, 6)
LANGUAGE: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "bert": (
        transformer("BertModel", "BertConfig", vocab_size=50, **WIDE),
        {"input_ids": TOKENS, "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])},
    ),
    "clip": (
        transformer(
            "CLIPModel",
            "CLIPConfig",
            text_config={**WIDE, "vocab_size": 50, "eos_token_id": 14},
            vision_config={**WIDE, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        ),
        {"input_ids": TOKENS, "pixel_values": images(32)},
    ),
    "gpt2": (
        transformer("GPT2LMHeadModel", "GPT2Config", vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=32),
        {"input_ids": TOKENS, "use_cache": False},
    ),
    "llama": (
        transformer("LlamaForCausalLM", "LlamaConfig", vocab_size=50, num_key_value_heads=2, **WIDE),
        {"input_ids": TOKENS, "use_cache": False},
    ),
    "t5": (
        transformer("T5Model", "T5Config", vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
        {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :3], "use_cache": False},
    ),
    "whisper": (
        lambda: (
            transformer(
                "WhisperModel",
                "WhisperConfig",
                vocab_size=50,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_source_positions=20,
                num_mel_bins=8,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
            )().encoder
        ),
        {"input_features": torch.rand(2, 8, 40, generator=torch.Generator().manual_seed(2))},
    ),
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
