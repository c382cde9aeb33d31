"""Test a server of a model that keeps states in place of keys."""

import threading

import numpy as np
import pytest
from small_architectures import made

from isokern.llm import Model, Session, text

PROMPT = "And David said unto the people,"


@pytest.fixture(scope="module")
def states(model, tmp_path_factory):
    """Return a small model of RWKV-7 with the vocabulary of the other one."""

    def change(facts, held):
        facts.update({k: v for k, v in model.gguf.metadata.items() if k.startswith("tokenizer.")})
        facts["rwkv7.context_length"] = 256
        for name in ("token_embd.weight", "output.weight"):
            width = held[name].shape[1]
            held[name] = np.random.default_rng(5).standard_normal((model.config.vocabulary, width)).astype("f4") / 4

    return Model(made(tmp_path_factory.mktemp("models") / "rwkv7.gguf", "rwkv7", change=change))


def alone(states, prompt, most):
    return "".join(text(Session(states, 256), states.tokenizer(), prompt, most))


def test_texts_of_many_clients_are_those_that_each_has_alone(states, serve):
    served = serve({"batch": 3}, other=states)
    prompts = [f"{PROMPT} {n * 'and '}" for n in range(6)]
    texts = {}

    def ask(prompt):
        texts[prompt] = served.complete(prompt, max_tokens=8, n=2).texts

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for prompt in prompts:  # greedy: of 2048 tokens, what rounds otherwise in a batch may draw another one
        assert texts[prompt] == [alone(states, prompt, 8)] * 2
    drawn = served.complete(max_tokens=8, n=3, temperature=1, seed=0).document
    assert len({choice["text"] for choice in drawn["choices"]}) == 3
    assert drawn["usage"]["prompt_tokens"] == len(states.tokenizer().encode(PROMPT, eos=False))
    served.assert_idle()


def test_an_answer_goes_on_from_the_one_before(states, serve):
    served = serve(other=states)
    first = served.complete(max_tokens=10)
    ids = states.tokenizer().encode(PROMPT, eos=False)
    tokens = served.engine.submit(ids, 10).result(60)
    second = served.complete([*ids, *tokens, 5, 6], max_tokens=4).document
    assert first.texts == [states.tokenizer().decode(tokens)]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == len(ids) + 9
    served.assert_idle()
