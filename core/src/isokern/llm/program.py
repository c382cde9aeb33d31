"""A decoder's graph, compiled over the caches that its steps update, and captured."""

from __future__ import annotations

from collections.abc import Mapping

from ..process.garbage import hold_collections
from ..runtime import compile
from ..tensors import Tensor
from .decoder import decoder, updated_inputs
from .model import Model
from .places import Step


class DecoderProgram:
    """The program of a step of a model, whose caches are `caches`, by the names that the graph has for them.

    `inputs` are the others by name, `logits` its first result, and `compiled` the graph layer's program.
    """

    @hold_collections()
    def __init__(self, model: Model, step: Step, caches: Mapping[str, Tensor]) -> None:
        graph = decoder(model.gguf, model.config, step).graph
        updated = {name: caches.get(name) for name in updated_inputs(graph)}
        given = {v.name: model.parameters[v.name] for v in graph.parameters}
        self.compiled = compile(graph, model.device, parameters=given, mutable=updated, prepack=model.prepack)
        model.prepacked |= self.compiled.prepacked
        pairs = zip(self.compiled.graph.inputs, self.compiled.inputs, strict=True)
        self.inputs = {value.name: held for value, held in pairs if updated.get(value.name) is None}
        self.logits = self.compiled.outputs[0]
        self.recording = self.compiled.capture()

    @property
    def nbytes(self) -> int:
        """The bytes of activations, workspaces, inputs and results."""
        return self.compiled.nbytes
