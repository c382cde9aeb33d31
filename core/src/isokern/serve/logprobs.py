"""How likely tokens were, as OpenAI's API shows it: API reference, completions and chat completions."""

from __future__ import annotations

from typing import Any

from ..llm import Tokenizer
from .choices import TextChoice

LEAST = -9999.0  # OpenAI's number for what cannot be


def show_chat_logprobs(choice: TextChoice) -> dict[str, Any] | None:
    """Return `logprobs` of a choice of a chat completion, for the tokens since the last call; None if not requested."""
    found = choice.take_logprobs()
    if found is None:
        return None

    def show(token: int, logprob: float) -> dict[str, Any]:
        piece = choice.tokenizer.piece(token, special=True)
        return {"token": piece.decode(errors="replace"), "logprob": _limit(logprob), "bytes": list(piece)}

    content = [
        {**show(each.token, each.logprob), "top_logprobs": [show(*other) for other in each.top]} for each, _ in found
    ]
    return {"content": content, "refusal": None}


def show_text_logprobs(choice: TextChoice) -> dict[str, Any] | None:
    """Return `logprobs` of a choice of a completion; as `show_chat_logprobs`."""
    found = choice.take_logprobs()
    if found is None:
        return None
    top = []
    for each, _ in found:
        named = dict[str, float]()
        for token, logprob in (*each.top, (each.token, each.logprob)):  # the token itself is there, too
            named.setdefault(name_token(choice.tokenizer, token), _limit(logprob))
        top.append(named)
    return {
        "tokens": [name_token(choice.tokenizer, each.token) for each, _ in found],
        "token_logprobs": [_limit(each.logprob) for each, _ in found],
        "top_logprobs": top if choice.request.top else None,
        "text_offset": [begin for _, begin in found],
    }


def name_token(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token, or, if its bytes are not UTF-8, `bytes:` and them, so that others differ from it."""
    piece = tokenizer.piece(token, special=True)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _limit(logprob: float) -> float:
    return logprob if logprob > LEAST else LEAST  # also NaN
