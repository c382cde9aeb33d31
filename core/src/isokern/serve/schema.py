"""The bodies of requests, checked field by field: OpenAI API reference, completions and chat completions."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..llm import Grammar, Sampling
from ..llm.sampling import LLAMA_CPP, RULES
from ..status import InvalidArgument
from .errors import ApiError, wrong_value
from .fields import Fields

MOST_CHOICES = 128
HIGHEST_PRIORITY = 1000
MOST_STOPS, LONGEST_STOP = 16, 256  # a text is searched for all of them at each token
LOWEST_SEED, HIGHEST_SEED = -(1 << 63), (1 << 63) - 1
COMPLETION_TOKENS = 16  # OpenAI's default
MOST_LOGPROBS, MOST_CHAT_LOGPROBS = 5, 20  # OpenAI's limits of the likeliest tokens
# Fields that are not supported, and the values, in addition to null, that ask for nothing
_COMPLETION: dict[str, Sequence[object]] = {"suffix": ("",)}
_CHAT: dict[str, Sequence[object]] = {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
_MESSAGE: dict[str, Sequence[object]] = {
    "audio": (),
    "function_call": (),
    "name": (),
    "refusal": (),
    "tool_calls": ([],),
}
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True)
class TextOptions:
    """How the choices of an answer are made.

    `most` tokens each; if that is None, up to `usual`, as many as fit. `count` choices for each
    prompt, whose seeds follow one another; they end before the first of `stop`, and follow `grammar`. `usage` is
    whether a stream ends with the counts of tokens. `logprobs`, if it is not None, asks how likely each token was, and
    for so many of the likeliest ones.
    """

    model: str
    most: int | None
    usual: int
    count: int
    stop: tuple[str, ...]
    sampling: Sampling
    bias: Mapping[int, float]
    grammar: Grammar | None
    priority: int
    stream: bool
    usage: bool
    logprobs: int | None


@dataclass(frozen=True)
class CompletionBody:
    """A request for completions of prompts, each text or tokens; with `echo`, the prompt comes first."""

    prompts: Sequence[str | list[int]]
    echo: bool
    options: TextOptions


@dataclass(frozen=True)
class ChatBody:
    """A request for answers to messages, dicts of `role` and `content`, both text."""

    messages: Sequence[dict[str, str]]
    options: TextOptions


def read_completion(document: dict[str, Any], cap: int, highest: int) -> CompletionBody:
    """Return the checked body of POST /v1/completions, of at most `cap` tokens and a priority of at most `highest`.

    ApiError 400 names what is wrong.
    """
    fields = Fields(document)
    prompts = _read_prompts(fields.require("prompt"))
    most = fields.integer("max_tokens", None, 1, cap)
    count = fields.integer("n", 1, 1, MOST_CHOICES)
    best = fields.integer("best_of", None, 1, MOST_CHOICES)
    if best is not None and best != count:
        raise fields.wrong("best_of", best, f"{count}, which is n: all choices are returned")
    logprobs, echo = fields.integer("logprobs", None, 0, MOST_LOGPROBS), fields.flag("echo")
    if echo and logprobs is not None:
        raise fields.wrong("logprobs", logprobs, "null where echo is true: those of a prompt are not computed")
    fields.refuse_unsupported(_COMPLETION)
    options = _read_options(fields, most, min(COMPLETION_TOKENS, cap), count, logprobs, highest)
    body = CompletionBody(prompts, echo, options)
    fields.end()
    return body


def read_chat(document: dict[str, Any], cap: int, highest: int) -> ChatBody:
    """Return the checked body of POST /v1/chat/completions; as `read_completion`."""
    fields = Fields(document)
    messages = _read_messages(fields.require("messages"))
    old = fields.integer("max_tokens", None, 1, cap)
    most = fields.integer("max_completion_tokens", None, 1, cap)
    if old is not None and most is not None and old != most:
        raise fields.wrong("max_tokens", old, f"{most}, which is max_completion_tokens")
    count = fields.integer("n", 1, 1, MOST_CHOICES)
    asked, top = fields.flag("logprobs"), fields.integer("top_logprobs", None, 0, MOST_CHAT_LOGPROBS)
    if top and not asked:
        raise fields.wrong("top_logprobs", top, "0 where logprobs is not true")
    fields.refuse_unsupported(_CHAT)
    body = ChatBody(messages, _read_options(fields, most or old, cap, count, (top or 0) if asked else None, highest))
    fields.end()
    return body


def _read_options(
    fields: Fields, most: int | None, usual: int, count: int, logprobs: int | None, highest: int
) -> TextOptions:
    """Take what both endpoints have."""
    for hint in ("user", "safety_identifier", "prompt_cache_key"):  # nothing here depends on who asks
        fields.text(hint)
    seed = fields.integer("seed", None, LOWEST_SEED, HIGHEST_SEED)
    sampling = _make_sampling(
        fields.take("order"),
        temperature=fields.number("temperature", 1.0, 0, 2),
        top_k=fields.integer("top_k", 0, 0, (1 << 31) - 1),
        top_p=fields.number("top_p", 1.0, 0, 1, above=True),
        min_p=fields.number("min_p", 0.0, 0, 1),
        penalty=fields.number("repetition_penalty", 1.0, 0, 100, above=True),
        seed=secrets.randbits(63) if seed is None else seed,
        frequency=fields.number("frequency_penalty", 0.0, -2, 2),
        presence=fields.number("presence_penalty", 0.0, -2, 2),
        typical=fields.number("typical", 1.0, 0, 1, above=True),
    )
    stream = fields.flag("stream")
    asked = fields.take("stream_options")
    inner = Fields({} if asked is None else asked, "stream_options")
    usage = inner.flag("include_usage")
    inner.refuse_unsupported({"include_obfuscation": (False,)})
    inner.end()
    if asked is not None and not stream:
        raise fields.wrong("stream_options", asked, "null where stream is not true")
    return TextOptions(
        fields.text("model"),
        most,
        usual,
        count,
        _read_stop(fields.take("stop")),
        sampling,
        _read_bias(fields.take("logit_bias")),
        _read_grammar(fields.take("response_format"), fields.take("grammar")),
        fields.integer("priority", 0, -HIGHEST_PRIORITY, highest),
        stream,
        usage,
        logprobs,
    )


def _make_sampling(order: object, **rules: Any) -> Sampling:
    """Return how tokens are drawn, by rules in an order: their names, or `llama.cpp`."""
    given = LLAMA_CPP if order == "llama.cpp" else RULES if order is None else order
    if not isinstance(given, (list, tuple)) or not all(isinstance(rule, str) for rule in given):
        raise wrong_value("order", order, f'a list of {", ".join(RULES)}, or "llama.cpp"')
    try:
        return Sampling(order=tuple(given), **rules)
    except InvalidArgument as error:
        raise wrong_value("order", order, error.allowed) from None


def _read_prompts(given: object) -> Sequence[str | list[int]]:
    """Return the prompts that `prompt` stands for: a string, tokens, or a list of either."""
    allowed = "a string, a list of tokens, or a list of strings or of lists of tokens, none of them empty lists"
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if all(isinstance(x, str) for x in given):
            return given
        if _are_tokens(given):
            return [given]
        if all(isinstance(x, list) and x and _are_tokens(x) for x in given):
            return given
    raise wrong_value("prompt", given, allowed)


def _are_tokens(given: list[Any]) -> bool:
    return all(isinstance(x, int) and not isinstance(x, bool) for x in given)


def _read_messages(given: object) -> list[dict[str, str]]:
    if not isinstance(given, list) or not given:
        raise wrong_value("messages", given, "a list of at least one message")
    return [_read_message(message, f"messages[{i}]") for i, message in enumerate(given)]


def _read_message(given: object, where: str) -> dict[str, str]:
    fields = Fields(given, where)
    role = fields.require("role")
    if not isinstance(role, str) or role not in ROLES:
        raise fields.wrong("role", role, f"{', '.join(ROLES)}; tools are not supported")
    content = fields.require("content")
    if isinstance(content, list) and content:
        content = "".join(_read_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))
    if not isinstance(content, str):
        raise fields.wrong("content", content, "a string, or a list of at least one part of type text")
    fields.refuse_unsupported(_MESSAGE)
    fields.end()
    return {"role": ROLES[role], "content": content}


def _read_part(given: object, where: str) -> str:
    fields = Fields(given, where)
    kind, text = fields.require("type"), fields.left.pop("text", None)
    if kind != "text":
        raise ApiError(400, f"{where}.type: only text is supported", param=f"{where}.type", code="unsupported_value")
    if not isinstance(text, str):
        raise fields.wrong("text", text, "a string")
    fields.end()
    return text


def _read_stop(given: object) -> tuple[str, ...]:
    """Return the strings of `stop`: one, or a list."""
    each = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(each, list) or len(each) > MOST_STOPS:
        raise wrong_value("stop", given, f"a string, or up to {MOST_STOPS} in a list")
    for i, text in enumerate(each):
        if not isinstance(text, str) or not 1 <= len(text) <= LONGEST_STOP:
            name = "stop" if isinstance(given, str) else f"stop[{i}]"
            raise wrong_value(name, text, f"a string of 1 to {LONGEST_STOP} characters")
    return tuple(each)


def _read_grammar(form: object, grammar: object) -> Grammar | None:
    """Return the grammar of `response_format`, or of `grammar`, which has one in GBNF as for llama.cpp's server."""
    if grammar is not None:
        if not isinstance(grammar, str) or form is not None:
            raise wrong_value("grammar", grammar, "a string, without response_format")
        return _make_grammar("grammar", "gbnf", grammar)
    if form is None:
        return None
    fields = Fields(form, "response_format")
    kind, schema = fields.require("type"), {"type": "object"}
    if kind == "json_schema":
        inner = Fields(fields.require("json_schema"), "response_format.json_schema")
        schema = inner.require("schema")
        if not isinstance(schema, dict):
            raise inner.wrong("schema", schema, "a JSON schema, which is an object")
        for told in ("name", "description"):
            inner.text(told)
        inner.flag("strict")  # it always is
        inner.end()
    elif kind not in ("text", "json_object"):
        raise fields.wrong("type", kind, "text, json_object or json_schema")
    fields.end()
    return None if kind == "text" else _make_grammar("response_format", "json_schema", schema)


def _make_grammar(field: str, kind: str, given: Any) -> Grammar:
    try:
        return Grammar(kind, given)
    except InvalidArgument as error:
        raise ApiError(400, f"{field}: {error}", param=field, code="invalid_grammar") from None


def _read_bias(given: object) -> dict[int, float]:
    """Return `logit_bias`: from tokens, as strings, to numbers."""
    fields, found = Fields({} if given is None else given, "logit_bias"), {}
    for token in list(fields.left):
        if not (token.isascii() and token.isdigit() and len(token) < 10 and str(int(token)) == token):
            raise wrong_value("logit_bias", token, 'tokens, such as "13"')
        found[int(token)] = fields.number(token, 0.0, -100, 100)
    return found
