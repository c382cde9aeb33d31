"""Test logits of every architecture against those that llama.cpp or transformers have of the same random weights.

`python tests/llm/test_recorded_logits.py` records them anew in recorded_logits.json, those of the library that is
installed: some logits of the last token of a text, in F32 by llama.cpp, and in float64 by transformers where llama.cpp
refuses a model or computes something else.
"""

import json
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from small_architectures import FILES, HEADS, PLAIN, VOCABULARY, made
from test_llama_cpp import CHANGED, ELSE, REFUSED, TEXT, WITHOUT_WINDOWS, other_logits, say_vocabulary

from isokern.llm import Model, Session

FILE = Path(__file__).parent / "recorded_logits.json"
PLACES = np.linspace(0, VOCABULARY - 1, 10).astype(int)
OTHERS = (*REFUSED, *ELSE, *WITHOUT_WINDOWS)  # of transformers
CLOSE = {"llama-cpp-python": 1e-3, "transformers": 2e-5}


def write(path, model):
    """Write the small model, where llama.cpp needs it so with the facts that it can run."""
    _, facts, change = CHANGED.get(model, ("", {}, None))

    def both(whole, held):
        for each in filter(None, (change, say_vocabulary)):
            each(whole, held)

    return made(path, model, change=both, **facts)


@pytest.mark.parametrize("model", FILES)
def test_logits_are_those_that_were_recorded(tmp_path, cpu, model):
    row = json.loads(FILE.read_text())[model]
    session = Session(Model(write(tmp_path / "m.gguf", model), device=cpu), dtype="F32")
    wanted, got = np.array(row["logits"]), np.asarray(session.logits(TEXT)).reshape(-1)[PLACES]
    assert np.max(np.abs(got - wanted)) < CLOSE[row["source"].split(" ")[0]] * np.max(np.abs(wanted))
    earlier = np.asarray(Session(session.model, dtype="F32").logits(TEXT[:-1])).reshape(-1)[PLACES]
    assert np.max(np.abs(earlier - wanted)) > 0.05 * np.max(np.abs(wanted)), "the numbers tell texts apart"


def order(other, gguf, folder):
    """Return a file's weights in the order that transformers' model has them: numbered ones show where each goes."""
    import torch

    from isokern.llm.folder import open_folder

    weights, count = {w.data_ptr(): w for w in other.state_dict().values()}.values(), 0
    for weight in weights:
        weight.copy_(torch.arange(count, count + weight.numel()).reshape(weight.shape))
        count += weight.numel()
    assert count < 1 << 24, "float32 counts no further"
    other.float().save_pretrained(folder)
    values, held = np.full(count, np.nan), {name: tensor.array for name, tensor in gguf.tensors.items()}
    for name in [name for name in held if "attn_kv_b" in name]:  # in folders always as two
        keys, rest = np.split(held[name].reshape(HEADS, -1, held[name].shape[1]), [PLAIN], 1)
        held |= {name.replace("kv_b", "k_b"): keys.swapaxes(1, 2), name.replace("kv_b", "v_b"): rest}
    for name, tensor in open_folder(folder).tensors.items():
        values[tensor.array.astype(np.int64)] = held[name]
    return values


def compute_with_transformers(gguf, model, folder):
    """Return the logits of the last token, in float64."""
    import torch
    from test_transformers import build

    softmax, other = torch.nn.functional.softmax, build(model)
    with torch.no_grad(), patch.object(torch.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim)):
        values, at = order(other, gguf, folder), 0
        other = other.double()
        for weight in {w.data_ptr(): w for w in other.state_dict().values()}.values():
            part = values[at : at + weight.numel()]
            assert not np.isnan(part).any(), "each weight is in the file"
            weight.copy_(torch.tensor(part.reshape(weight.shape)))
            at += weight.numel()
        return other(torch.tensor([TEXT]), use_cache=False).logits[0, -1].numpy()


def record():
    """Write what the library that is installed has of its models."""
    name = "llama-cpp-python" if find_spec("llama_cpp") else "transformers"
    rows = json.loads(FILE.read_text()) if FILE.exists() else {}
    for model in FILES:
        if (model in OTHERS) != (name == "transformers"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            gguf = write(Path(folder) / "m.gguf", model)
            if name == "transformers":
                logits = compute_with_transformers(gguf, model, folder)
            else:
                logits = other_logits(Path(folder) / "m.gguf", TEXT)[-1]
        rows[model] = {"source": f"{name} {version(name)}", "logits": [float(f"{x:.7g}") for x in logits[PLACES]]}
    lines = (f"{json.dumps(model)}: {json.dumps(rows[model])}" for model in FILES if model in rows)
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
