"""A language model as a graph: a few new tokens after those in its caches.

The parameters have the names of the GGUF file's tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.ir import INPUT, Graph, Value
from ..graph.model import Model
from ..status import InvalidArgument
from .altup import AltUpLayer, Merge, Spread, add_rows
from .architecture import Config
from .architectures import LOGITS_CAP
from .decoder_layer import DecoderLayer
from .gguf import GGUF, quote_name
from .layers import Norm, Origin, Product, Scaled, Sum, Table
from .parts import Mixing
from .places import KeyPlaces, StatePlaces, Step
from .recurrent import StateLayer
from .rwkv import MixingLayer


def decoder(gguf: GGUF, config: Config, step: Step) -> Model:
    """Return the graph of a file's model for a step.

    Its inputs are those of the step, and for each layer its caches; if the architecture has states in place of keys,
    `blk.N.conv` and `blk.N.ssm` F32, or `blk.N.shift` and `blk.N.wkv`. Results: logits F32, those of the step, and at
    last the states, all as they are afterwards. InvalidArgument, BadTensorShape or BadTensorDtype name the layer and
    the tensor that the file lacks or has in another shape or type.
    """
    c, made = config, Model(config.architecture)
    origin, places = Origin(gguf, config, step.activations), step.begin(made, c.windows)
    named = {c.rope(layer, step.length) for layer in range(len(c.turned))}
    turns = {name: made.builder.parameter(name, (c.rotated // 2,)) for name in c.ropes if name in named}
    table = Table(origin, c.vocabulary)
    x = made.add(table, places.tokens, name="token_embd")
    x = made.apply(Scaled(c.embedding_scale), [x], "token_embd")
    if not c.form.pairing and not c.recurrent:
        assert isinstance(places, KeyPlaces)  # whose step keeps keys
        learned = made.add(Table(origin, c.context), places.positions, name="position_embd")
        x = made.apply(Sum(), [x, learned], "position_embd")
    if c.form.first_norm:
        x = made.add(Norm(origin), x, name="token_embd_norm")
    states: list[Value] = []
    first: Value | None = None
    stored: dict[int, Sequence[Value]] = {}
    rows: list[Value] = []
    if c.altup:
        rows = [add_rows(made, origin, places.tokens, x)]
        x = made.add(Spread(origin), x, name="altup_proj")
    for layer in range(c.layers):
        own = f"blk.{layer}"
        kept = [made.input(f"{own}.{name}", *spec) for name, spec in c.keep(step, layer).items()]
        rope = c.rope(layer, step.length)
        given = [x, *rows, *(kept or stored[c.source(layer)])]
        given += [] if rope is None else [turns[rope]]
        if c.recurrent:
            assert isinstance(places, StatePlaces)  # whose step keeps states
            mixing = isinstance(c.recurrent, Mixing)
            spaces = MixingLayer(origin, places, first) if mixing else StateLayer(origin, places)
            x = made.add(spaces, *given, name=own)
            states += spaces.kept
            first = spaces.first if isinstance(spaces, MixingLayer) else None
        else:
            assert isinstance(places, KeyPlaces)
            kind = AltUpLayer if c.altup else DecoderLayer
            own_layer = kind(origin, layer, places, c.ropes.get(rope or ""))
            x = made.add(own_layer, *given, name=own)
            stored[layer] = own_layer.attention.kept
    if c.altup:
        x = made.add(Merge(origin), x, name="altup_unembd_proj")
    x = made.add(Norm(origin), x, name="output_norm")
    x = places.choose(made, x)
    tied = None if origin.has("output.weight") else table.weight
    output = Product(origin, c.vocabulary, bias="output" in c.form.biases, tied=tied)
    logits = made.add(output, x, name="output")
    logits = made.apply(Scaled(c.logit_scale, c.scales.get(LOGITS_CAP, 0.0)), [logits], "output")
    made.output(logits, *states)
    _check_all_used(gguf, {v.name for v in made.graph.parameters} | c.consumed)
    return made


def _check_all_used(gguf: GGUF, used: set[str]) -> None:
    """Refuse tensors that are not parameters: the model of the file would compute something else."""
    strange = [name for name in gguf.tensors if name not in used]
    if strange:
        given = f"{len(strange)} tensors are not used: {', '.join(quote_name(n) for n in strange[:8])}"
        raise InvalidArgument("GGUF", given, allowed="the tensors of its architecture")


def updated_inputs(graph: Graph) -> list[str]:
    """Return the names of the inputs that operators of a graph update: its state."""
    return list(dict.fromkeys(old.name for op in graph.ops for old, _ in op.updated if old.role == INPUT))
