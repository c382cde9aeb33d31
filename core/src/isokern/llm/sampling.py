"""How the next token of a text is drawn from its logits: which rules, and in what order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..eager import calls
from ..ops import find
from ..status import InvalidArgument, quote
from ..tensors import Tensor

HISTORY = 64  # tokens that penalties look back on
FUSED = ("temperature", "top_k", "top_p", "min_p")  # as `random_sample` has it
RULES = (*FUSED, "typical")
LARGEST = 1e36  # the largest number in rules and biases: F32 holds HISTORY times as much
COLDEST = 1e-30  # a temperature below it would divide by what F32 hardly holds, and leaves the largest logit alone


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    Penalties come first: `penalty` divides the logits of the last HISTORY tokens if they are above 0 and multiplies
    others, and `frequency` for each time and `presence` once are subtracted. Then come rules in the order `order`:
    logits are divided by `temperature`, and what is left is the `top_k` largest (0: all), the fewest that weigh
    `top_p`, those that weigh `min_p` times what the largest does, and the `typical` ones (Meister et al. 2023; 1: all),
    which the order has to name. One is drawn by `seed` and its position; at temperature 0, which one below COLDEST
    becomes, it is the largest. The default order is `random_sample`'s; llama.cpp's is LLAMA_CPP. Raises InvalidArgument
    for values that are not numbers, and for an order that does not name each rule that is used once; other mistakes are
    those of the operators.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    seed: int = 0
    frequency: float = 0.0
    presence: float = 0.0
    typical: float = 1.0
    order: tuple[str, ...] = FUSED

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "order"):
            given, whole = getattr(self, name), name in ("top_k", "seed")
            if not (is_integer(given) if whole else is_number(given)):
                allowed = "an integer" if whole else f"a number up to {LARGEST:g}"
                raise InvalidArgument("Sampling", f"{name}={quote(given)}", allowed=allowed)
        order = tuple(self.order) if isinstance(self.order, Iterable) else ()
        used = {*FUSED, *(["typical"] if self.typical != 1 else [])}
        names = {rule for rule in order if isinstance(rule, str)}
        if not used <= names <= {*RULES} or len(names) != len(order):
            allowed = f"each of {', '.join(r for r in RULES if r in used)} once"
            raise InvalidArgument("Sampling", f"order={quote(order or self.order)}", allowed=allowed)
        object.__setattr__(self, "order", order)
        if 0 < self.temperature < COLDEST:
            object.__setattr__(self, "temperature", 0.0)

    @property
    def penalised(self) -> bool:
        """Whether earlier tokens matter."""
        return self.penalty != 1 or self.frequency != 0 or self.presence != 0

    @property
    def fused(self) -> bool:
        """Whether `random_sample` alone does it."""
        plain = not self.frequency and not self.presence and self.typical == 1
        return plain and (self.temperature == 0 or tuple(r for r in self.order if r in FUSED) == FUSED)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of `random_sample`, if it does all of the sampling."""
        names = ("temperature", "top_k", "top_p", "min_p", "penalty", "seed")
        return {name: getattr(self, name) for name in names}

    def of_sample(self, i: int) -> Sampling:
        """Return how sample `i` of a prompt is drawn: by the seed that is so much higher, modulo 2^64."""
        return replace(self, seed=(self.seed + i + (1 << 63)) % (1 << 64) - (1 << 63)) if i else self

    def draw(self, logits: Tensor, history: Tensor | None, position: Tensor) -> Tensor:
        """Return the token I64 [1] drawn from logits [1, vocabulary], at a position [1] after the tokens `history`."""
        given, how = logits, self.attributes
        if not self.fused:
            given, how, history = self._filter(logits, history), {"seed": self.seed, "temperature": 1.0}, None
        drawn: Tensor = calls.call(find("random_sample"), [given, history, position], **how)
        return drawn

    def _filter(self, x: Tensor, history: Tensor | None) -> Tensor:
        """Return logits after all penalties and rules, as they are drawn from at temperature 1."""
        if history is not None:
            penalties = {"penalty": self.penalty, "frequency": self.frequency, "presence": self.presence}
            x = calls.call(find("repetition_penalty"), [x, history], **penalties)
        if self.temperature == 0:
            return calls.call(find("top_k_filter"), [x], k=1)  # type: ignore[no-any-return]
        for rule in self.order:
            if rule == "temperature" and self.temperature != 1:
                x = calls.call(find("scale"), [x], value=1 / self.temperature)
            elif rule == "top_k" and 0 < self.top_k < x.shape[-1]:
                x = calls.call(find("top_k_filter"), [x], k=self.top_k)
            elif rule == "top_p" and self.top_p != 1:
                x = calls.call(find("top_p_filter"), [x], p=self.top_p)
            elif rule == "min_p" and self.min_p != 0:
                x = calls.call(find("min_p_filter"), [x], p=self.min_p)
            elif rule == "typical" and self.typical != 1:
                x = calls.call(find("typical_filter"), [x], mass=self.typical)
        return x


def is_number(given: Any) -> bool:
    """Return whether a value is a number up to LARGEST; True and False are not."""
    number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    return number and bool(-LARGEST <= given <= LARGEST)


def check_sampling(given: object) -> Sampling:
    """Return the sampling, by default greedy; InvalidArgument if it is not a `Sampling`."""
    if not isinstance(given, Sampling | None):
        raise InvalidArgument("generate", f"sampling={quote(given)}", allowed="a Sampling")
    return Sampling() if given is None else given


LLAMA_CPP = ("top_k", "typical", "top_p", "min_p", "temperature")


def pad_history(tokens: Sequence[int]) -> Any:
    """Return the last HISTORY tokens as I64 [1, HISTORY], filled up with -1 in front."""
    last = list(tokens)[-HISTORY:]
    return np.array([[-1] * (HISTORY - len(last)) + last], np.int64)
