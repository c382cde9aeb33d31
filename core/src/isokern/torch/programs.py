"""Programs of one torch.fx graph: one for each set of dims and numbers, over parameters in PyTorch's own memory.

A parameter is a constant of the programs: passes fold it into others, kernels have it in packed layouts. So it is
compared before every run: one that is another tensor now, lies elsewhere or was written to (PyTorch counts that) makes
new programs. One that changes again and again is fed to each run like an input.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from .. import graph as graphs
from ..backend import Device
from ..graph.ir import INPUT, TensorSpec, Value
from ..importing.operand import Array
from ..passes import DEFAULT, run as run_passes
from ..process.forks import own_lock
from ..process.imports import wait_before_forks
from ..rewriting.rewriter import State
from ..rewriting.target import Target
from ..runtime import Program, compile
from ..status import InvalidArgument, IsokernError
from ..tensors import Tensor, from_dlpack, from_numpy
from .elements import check_plain, our_dtype, to_array, write_array
from .importer import ModuleImporter, Shared, Unreadable, outputs_of
from .library import library as torch
from .results import ModuleResult, ResultMemory, apply_steps, device_of, plan_results

KEPT = 8  # programs of a graph
CHANGES = 3  # of a parameter, after which it is fed to each run
_shared: WeakValueDictionary[Any, Tensor] = WeakValueDictionary()  # tensors over parameters that are in use

wait_before_forks()


@dataclass(frozen=True)
class Options:
    """How graphs are compiled: for which device, and whether parameters are constants of their programs."""

    device: Device
    passes: str | tuple[str, ...] = DEFAULT
    prepack: bool = True
    freeze: bool = True


@dataclass(frozen=True)
class BuiltModule:
    """A graph with its parameters, the arguments that feed its inputs, the memory of results, and what each is.

    `places` has, for each thing that PyTorch's graph returns, its number in `results`, which are different tensors.
    """

    model: graphs.Model
    feeds: tuple[int, ...]
    memories: tuple[ResultMemory, ...]
    results: tuple[ModuleResult, ...]
    places: tuple[int, ...]
    device: Any = None  # of the first tensor fed, as PyTorch captured it

    def allocate(self, memory: ResultMemory, args: Sequence[Any]) -> Any:
        """Return memory where PyTorch had it, but with what is fed if that was moved since."""
        if self.feeds and (given := args[self.feeds[0]].device) != self.device:
            return memory.allocate(given)
        return memory.allocate(memory.device)


@dataclass
class Held:
    """A parameter as it was when programs were made: the tensor, what PyTorch counts of it, and its memory."""

    tensor: Any
    version: int
    address: int
    changes: int = 0
    array: Array | None = None
    shared: Tensor | None = None


def version_of(tensor: Any) -> int:
    """Return how often a tensor was written to, as PyTorch counts it."""
    return int(tensor._version)


class ModulePrograms:
    """The programs of a graph. `static` are the arguments that are parameters; the others are fed to each run."""

    def __init__(self, module: Any, static: Collection[int], options: Options, name: str = "torch") -> None:
        self.module, self.options, self.name = module, options, name
        self.inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        (end,) = (n for n in module.graph.nodes if n.op == "output")
        self.listed = isinstance(end.args[0], (list, tuple))  # whether the graph gives several results
        self._static = set(static) if options.freeze else set()
        self._held: dict[int, Held] = {}
        self._programs: OrderedDict[Any, tuple[BuiltModule, Program | None]] = OrderedDict()
        self._lock = own_lock(self, "_lock", threading.Lock)
        self.built_times = 0

    @property
    def graph(self) -> Any:
        """The graph of the program that was used last."""
        with self._lock:
            if not self._programs:
                raise InvalidArgument(self.name, "no program was made yet", hint="run it once")
            return next(reversed(self._programs.values()))[0].model.graph

    def __call__(self, *args: Any) -> list[Any]:
        """Run on PyTorch's tensors and numbers, and return as many as the graph gives."""
        with self._lock:
            self._compare(args)
            built, program = self._find(args)
        bases = [built.allocate(memory, args) for memory in built.memories]
        outputs: list[Any] = []
        for memory, base in zip(built.memories, bases, strict=True):
            target = apply_steps(base, memory.steps)
            if memory.known is not None:
                write_array(target, memory.known)
            else:
                outputs.append(target)
        if program is not None:
            feeds = [_feed(self.name, args[n]) for n in built.feeds]
            program.run(feeds, out=[_target(self.name, y) for y in outputs])
        found = [_give(r, args, bases) for r in built.results]
        return [found[n] for n in built.places]

    def _compare(self, args: Sequence[Any]) -> None:
        """Forget the programs where a parameter is no more what it was."""
        changed = False
        uncounted = {n for n in self._static if args[n].is_inference()}  # whose writes PyTorch does not count
        self._static -= uncounted
        for n in self._static:
            held, tensor = self._held.get(n), args[n]
            if held is None:
                self._held[n] = Held(tensor, version_of(tensor), tensor.data_ptr())
            elif held.tensor is not tensor or held.version != version_of(tensor) or held.address != tensor.data_ptr():
                self._held[n] = Held(tensor, version_of(tensor), tensor.data_ptr(), held.changes + 1)
                changed = True
        if changed:
            self._static -= {n for n, h in self._held.items() if h.changes >= CHANGES}
            self._held = {n: h for n, h in self._held.items() if n in self._static}
            self._programs.clear()  # not closed: another thread may be about to run one

    def _find(self, args: Sequence[Any]) -> tuple[BuiltModule, Program | None]:
        key = tuple(_key(a) for n, a in enumerate(args) if n not in self._static)
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        built = self.build(args)
        program = self._compile(built) if built.model.graph.outputs else None
        self.built_times += 1
        self._programs[key] = built, program
        while len(self._programs) > KEPT:
            self._programs.popitem(last=False)
        return built, program

    def build(self, args: Sequence[Any]) -> BuiltModule:
        """Import the graph for arguments: tensors, of which dims and dtype count, and numbers."""
        importer = ModuleImporter(self.name)
        fed: dict[str, int] = {}
        for n, (node, given) in enumerate(zip(self.inputs, args, strict=True)):
            if isinstance(given, torch.Tensor):
                importer.found[node] = found = self._declare(importer, node.name, n, given)
                if isinstance(found, Value) and found.role == INPUT:
                    fed[node.name] = n
            else:
                importer.found[node] = given
        for node in self.module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                importer.run_node(self.module, node)
        returned = outputs_of(self.module.graph)
        keys = [x if isinstance(x, torch.fx.Node) else n for n, x in enumerate(returned)]
        different = dict(zip(keys, returned, strict=True))
        memories, results = plan_results(importer, self.module, list(different.values()))
        numbers = {key: n for n, key in enumerate(different)}
        model = graphs.Model(self.name)
        model.builder, model.parameters = importer.builder, importer.parameters
        feeds = tuple(fed[v.name] for v in model.graph.inputs)
        return BuiltModule(
            model,
            feeds,
            tuple(memories),
            tuple(results),
            tuple(numbers[key] for key in keys),
            device_of(self.inputs[feeds[0]]) if feeds else None,
        )

    def _declare(self, importer: ModuleImporter, name: str, n: int, given: Any) -> Any:
        """Return a parameter or an input for an argument; what cannot be read here may still be a result."""
        try:
            check_plain(name, given)
        except IsokernError as error:
            return Unreadable(error.problem)
        shared = self._share_parameter(name, n, given)
        if shared is not None:
            return importer.share(shared)
        return importer.input(name, tuple(given.shape), our_dtype(name, given.dtype))

    def _share_parameter(self, name: str, n: int, given: Any) -> Shared | None:
        """Return a parameter as an array, over PyTorch's memory if that is the host's; None for what is fed."""
        if n not in self._static:
            return None
        held = self._held.get(n)
        if held is None:
            return Shared(name, to_array(name, given.cpu()))
        if held.array is None:
            held.array = to_array(name, given.cpu())
        return Shared(name, held.array)

    def _compile(self, built: BuiltModule) -> Program:
        """Compile; parameters that passes leave as they are lie in PyTorch's memory where the device can use it."""
        options, device = self.options, self.options.device
        model = built.model
        state = run_passes(State(model.graph, model.parameters, Target.of_device(device)), options.passes)
        given = dict(state.parameters)
        arrays = {id(h.array): h for h in self._held.values() if h.array is not None}
        for name, array in given.items():
            held = arrays.get(id(array))
            if held is None:
                continue
            if not held.tensor.is_cpu:
                there = tuple(map(int, held.tensor.__dlpack_device__()))
                if device.dlpack_device == there and held.tensor.is_contiguous():
                    given[name] = from_dlpack(held.tensor.detach())
            elif device.memory.wraps and not device.asynchronous and array.flags.c_contiguous and array.flags.aligned:
                given[name] = held.shared = _share(held, array, device)
        return compile(state.graph, device, parameters=given, passes="", prepack=options.prepack)


def _share(held: Held, array: Array, device: Device) -> Tensor:
    """Return a dense tensor over a parameter's memory, whatever its strides of dims of 1 are.

    Graphs that have the same parameter get the same tensor, and so one packed layout of it.
    """
    key = (device, held.address, held.version, array.dtype, array.shape)
    found = _shared.get(key)
    if found is None:
        memory = from_numpy(array.reshape(-1), device=device).buffer
        _shared[key] = found = Tensor(TensorSpec(array.dtype, array.shape), memory)
    return found


def _key(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return tuple(argument.shape), argument.dtype
    return type(argument), repr(argument)


def _feed(where: str, tensor: Any) -> Any:
    return to_array(where, tensor) if tensor.is_cpu else tensor.detach()


def _target(where: str, tensor: Any) -> Any:
    return to_array(where, tensor) if tensor.is_cpu else tensor


def _give(result: ModuleResult, args: Sequence[Any], bases: Sequence[Any]) -> Any:
    if result.memory >= 0:
        return apply_steps(bases[result.memory], result.steps)
    if result.argument >= 0:
        return apply_steps(args[result.argument], result.steps)
    return result.value if result.constant is None else apply_steps(result.constant, result.steps)
