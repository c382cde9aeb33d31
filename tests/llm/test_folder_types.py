"""Test the model types of folders: logits of transformers' own models, and what keys that are left out stand for."""

import json

import numpy as np
import pytest
from folder_cases import CASES, CLASSES, COMMON
from small_model import PROMPT

from isokern.llm import Model, Session
from isokern.llm.folder_config import read_config
from isokern.llm.folder_table import MODEL_TYPES
from isokern.status import InvalidArgument

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
TEXT = [*PROMPT, *range(40)]


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5")
    from module_zoo import import_transformers

    return import_transformers()


def save_model(transformers, case, folder):
    """Save a model with random weights, and return its logits of TEXT."""
    import torch

    name, changed = CASES[case]
    config = getattr(transformers, f"{name}Config")(**{k: v for k, v in (COMMON | changed).items() if v is not ...})
    torch.manual_seed(0)
    model = getattr(transformers, CLASSES.get(name, f"{name}ForCausalLM"))(config).eval()
    for own, weight in model.state_dict().items():
        if weight.is_floating_point() and "A_log" not in own and "dt_" not in own:
            torch.nn.init.normal_(
                weight, mean=float(weight.ndim == 1 and "norm" in own and "gemma" not in case), std=0.2
            )
    model.save_pretrained(folder)
    with torch.no_grad():
        return model(input_ids=torch.tensor([TEXT])).logits[0].numpy()


@pytest.mark.parametrize("case", CASES)
def test_logits_are_transformers_s(tmp_path, transformers, case):
    wanted = save_model(transformers, case, tmp_path)
    got = Session(Model.open(tmp_path, device="cpu:0"), 48, "F32").logits(TEXT, every=True)
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_every_model_type_has_a_case(transformers):
    assert {getattr(transformers, f"{name}Config").model_type for name, _ in CASES.values()} >= {*MODEL_TYPES}


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_keys_that_are_left_out_stand_for_transformers_s_values(transformers, kind):
    whole = json.loads(json.dumps(transformers.AutoConfig.for_model(kind).to_dict()))

    def read(config):
        try:
            _, metadata, extra = read_config(config)
        except InvalidArgument:
            return None
        metadata |= {k: v.tolist() for k, v in metadata.items() if isinstance(v, np.ndarray)}
        for key, every in metadata.items():
            if key.endswith("sliding_window_pattern") and isinstance(every, int):
                metadata[key] = [layer % every < every - 1 for layer in range(whole["num_hidden_layers"])]
        return metadata, sorted(extra)

    whole |= {"norm_topk_prob": True} if kind == "qwen3_moe" else {}  # the only value that there is here
    wanted = read(whole)
    assert wanted is not None
    for key in whole.keys() - {"model_type"}:
        found = read({k: v for k, v in whole.items() if k != key})
        if found is not None:
            assert {**wanted[0], **found[0]} == wanted[0], key
