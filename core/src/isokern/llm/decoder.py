"""A language model as a graph: a few new tokens after those in its caches.

The parameters have the names of the GGUF file's tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..graph.ir import INPUT, Graph, Value
from ..graph.model import Model
from ..status import InvalidArgument
from .architecture import Config
from .architectures import LOGITS_CAP
from .decoder_layer import DecoderLayer
from .gguf import GGUF, quote_name
from .layers import Norm, Origin, Places, Product, Scaled, Sum, Table
from .recurrent import StateLayer

HISTORY = 64  # tokens that a repetition penalty looks back on


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: the attributes of `random_sample`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class TokenStep:
    """What a graph of the model computes: `tokens` new tokens, over caches of `length` positions and the dtype `cache`.

    Its result is the logits of the last token, or of all with `every`. With `sampling` the graph also draws the next
    token and leaves it, and its position, in its inputs `tokens` and `start`: run again, it computes the next step.
    `activations` is how activations enter products with quantised weights.
    """

    length: int
    tokens: int = 1
    cache: object = "F16"
    activations: str = "float"
    every: bool = False
    sampling: Sampling | None = None


def decoder(gguf: GGUF, config: Config, step: TokenStep) -> Model:
    """Return the graph of a file's model for a step.

    Inputs: `tokens` I64 [n], `start` I64 [1] (their first position), for each layer `blk.N.keys` and `blk.N.values` [1,
    length, heads, dim], or its states, `blk.N.conv` and `blk.N.ssm` F32, and with a repetition penalty `history` I64
    [1, HISTORY]. Results: logits F32 [1 or n, vocabulary], with sampling also `tokens` and `start`, and at last the
    states, all as they are afterwards. InvalidArgument, BadTensorShape or BadTensorDtype name the layer and the tensor
    that the file lacks or has in another shape or type.
    """
    c, n, made = config, step.tokens, Model(config.architecture)
    emit, origin = made.builder.emit, Origin(gguf, config, step.activations)
    tokens, start = made.input("tokens", (n,), "I64"), made.input("start", (1,), "I64")
    (count,) = emit("fill", [], {"value": n, "shape": (1,)}, name="count", dtypes={"T": "I64"})
    (lengths,) = emit("add", [start, count], name="lengths")
    positions = start
    if n > 1:
        (numbers,) = emit("iota", [], {"shape": (n,)}, name="positions", dtypes={"T": "I64"})
        (positions,) = emit("add", [numbers, start], name="positions")
    named = {c.rope(layer, step.length) for layer in range(len(c.turned))}
    turns = {name: made.builder.parameter(name, (c.rotated // 2,)) for name in c.ropes if name in named}
    table = Table(origin, c.vocabulary)
    x = made.add(table, tokens, name="token_embd")
    x = made.apply(Scaled(c.embedding_scale), [x], "token_embd")
    if not c.form.pairing and not c.recurrent:
        x = made.apply(Sum(), [x, made.add(Table(origin, c.context), positions, name="position_embd")], "position_embd")
    places = Places(positions, start, lengths)
    states: list[Value] = []
    for layer in range(c.layers):
        own = f"blk.{layer}"
        kept = [made.input(f"{own}.{k}", *spec) for k, spec in c.states(step.length, step.cache).items()]
        rope = c.rope(layer, step.length)
        given = [x, *kept] if rope is None else [x, *kept, turns[rope]]
        if c.recurrent:
            spaces = StateLayer(origin)
            x = made.add(spaces, *given, name=own)
            states += spaces.kept
        else:
            x = made.add(DecoderLayer(origin, layer, places, c.ropes.get(rope or "")), *given, name=own)
    x = made.add(Norm(origin), x, name="output_norm")
    if n > 1 and not step.every:
        (x,) = emit("slice", [x], {"starts": (n - 1,), "ends": (n,), "axes": (0,)}, name="last")
    tied = None if origin.has("output.weight") else table.weight
    output = Product(origin, c.vocabulary, bias="output" in c.form.biases, tied=tied)
    logits = made.add(output, x, name="output")
    logits = made.apply(Scaled(c.logit_scale, c.scales.get(LOGITS_CAP, 0.0)), [logits], "output")
    made.output(logits)
    if step.sampling is not None:
        made.output(*_draw(made, step.sampling, logits, tokens, start, lengths))
    made.output(*states)
    _check_all_used(gguf, {v.name for v in made.graph.parameters} | c.consumed)
    return made


def _check_all_used(gguf: GGUF, used: set[str]) -> None:
    """Refuse tensors that are no parameters: the file's model would compute something else."""
    strange = [name for name in gguf.tensors if name not in used]
    if strange:
        given = f"{len(strange)} tensors are not used: {', '.join(quote_name(n) for n in strange[:8])}"
        raise InvalidArgument("GGUF", given, allowed="the tensors of its architecture")


def _draw(
    made: Model, sampling: Sampling, logits: Value, tokens: Value, start: Value, lengths: Value
) -> Sequence[Value]:
    """Return the inputs `tokens` and `start`, updated with the token that is drawn and its position."""
    emit, rows = made.builder.emit, logits.spec.shape[0]
    history = made.input("history", (1, HISTORY), "I64") if sampling.penalty != 1 else None
    if rows > 1:
        (logits,) = emit("slice", [logits], {"starts": (rows - 1,), "ends": (rows,), "axes": (0,)}, name="last")
    (token,) = emit("random_sample", [logits, history, lengths], asdict(sampling), name="sample")
    at = {"count": 1, "y_offset": tokens.spec.shape[0] - 1}
    (drawn,) = emit("copy_slice", [token, tokens], at, name="tokens")
    (moved,) = emit("copy_slice", [lengths, start], {"count": 1}, name="start")
    return drawn, moved


def updated_inputs(graph: Graph) -> list[str]:
    """Return the names of the inputs that operators of a graph update: its state."""
    return list(dict.fromkeys(old.name for op in graph.ops for old, _ in op.updated if old.role == INPUT))
