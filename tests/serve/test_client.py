"""Test with OpenAI's own client, which validates what it gets."""

import pytest

openai = pytest.importorskip("openai")
PROMPT = "And David said unto the people,"
KEY = "sk-of-the-client"
USER = [{"role": "user", "content": "Who art thou?"}]


@pytest.fixture(scope="module")
def keyed(serve):
    return serve(key=KEY)


@pytest.fixture
def api(keyed):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{keyed.port}/v1", api_key=KEY, max_retries=0) as client:
        yield client
    keyed.assert_idle()


def test_models(api):
    (model,) = api.models.list().data
    assert api.models.retrieve(model.id) == model and model.owned_by == "isokern"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("gpt-4o")


def test_completions(api):
    whole = api.completions.create(model="kjv", prompt=PROMPT, max_tokens=12, temperature=0, n=2)
    assert [c.finish_reason for c in whole.choices] == ["length"] * 2 and len({c.text for c in whole.choices}) == 1
    assert whole.usage.completion_tokens == 24 and whole.usage.prompt_tokens_details.cached_tokens >= 0
    options = {"include_usage": True}
    chunks = list(
        api.completions.create(
            model="kjv", prompt=PROMPT, max_tokens=12, temperature=0, stream=True, stream_options=options
        )
    )
    assert "".join(c.choices[0].text for c in chunks[:-1]) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == 12
    tokens = api.completions.create(
        model="kjv", prompt=[[5, 6], [7]], max_tokens=2, logit_bias={"9": -100}, extra_body={"top_k": 3, "min_p": 0.1}
    )
    assert len(tokens.choices) == 2


def test_chat_completions(api):
    given = {"model": "kjv", "messages": USER, "temperature": 0, "seed": 3}
    whole = api.chat.completions.create(**given, max_completion_tokens=12)
    assert whole.choices[0].message.role == "assistant" and whole.choices[0].finish_reason == "length"
    with api.chat.completions.create(**given, max_completion_tokens=12, stream=True) as stream:
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    assert all(c.usage is None for c in chunks)


def test_a_stream_that_the_client_closes(api, keyed):
    with api.chat.completions.create(model="kjv", messages=USER, stream=True) as stream:
        next(iter(stream))
    keyed.assert_idle()


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError, "tools"),
        ({"top_logprobs": 2}, openai.BadRequestError, "top_logprobs"),
        ({"extra_body": {"x": 1}}, openai.BadRequestError, "x"),
        ({"model": "gpt-4o"}, openai.NotFoundError, "model"),
        ({"extra_headers": {"Authorization": "Bearer x"}}, openai.AuthenticationError, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(api, change, error, param, stream):
    with pytest.raises(error) as found:
        api.chat.completions.create(**{"model": "kjv", "messages": USER, "stream": stream, **change})
    assert found.value.param == param and found.value.code


def test_an_error_within_a_stream(serve):
    served = serve()
    served.slow_down()
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="x", max_retries=0) as client:
        given = {"model": "kjv", "prompt": PROMPT, "max_tokens": 500, "stream": True, "temperature": 0}
        stream = iter(client.completions.create(**given))
        next(stream)
        served.engine.close()
        with pytest.raises(openai.APIError, match="the server is shutting down"):
            list(stream)
