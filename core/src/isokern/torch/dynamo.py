"""The backend of torch.compile: graphs for inference, whose unknown operators run in PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backend.discovery import device as find_device
from ..passes import DEFAULT
from ..status import InvalidArgument
from .decompositions import list_decompositions
from .importer import name_of, read_results, value_of
from .judging import judge
from .library import library as torch
from .nodes_products import FUSED
from .programs import ModulePrograms, Options

WAY_OUT = "run it under torch.no_grad() or torch.inference_mode(), or call model.requires_grad_(False)"
NAMES = ("device", "freeze", "passes", "prepack")
# Operators of a part that are worth a program alone, and those that are not even together
WORTH = ("convolution", "mm", "addmm", "bmm", *FUSED)
VIEWS = ("alias.default", "clone.default", "detach.default", "expand.default", "permute.default", "select.int",
         "slice.Tensor", "squeeze.dims", "unsqueeze.default", "view.default")  # fmt: skip


@dataclass(frozen=True)
class PlacedOperator:
    """What becomes of one node: where it runs, and why not here."""

    graph: int
    name: str
    operator: str
    where: str
    reason: str = ""


@dataclass
class CaptureReport:
    """What the backend was asked for: a list of lines for each graph."""

    lines: list[PlacedOperator] = field(default_factory=list)
    graphs: int = 0


def read_options(options: Mapping[str, Any] | None) -> Options:
    """Return the options of torch.compile as ours; InvalidArgument for one that there is not."""
    given = dict(options or {})
    if strange := [n for n in given if n not in NAMES]:
        raise InvalidArgument("torch.compile", f"options {', '.join(map(repr, strange))}", allowed=", ".join(NAMES))
    passes = given.get("passes", DEFAULT)
    for name in ("freeze", "prepack"):
        if not isinstance(given.get(name, True), bool):
            raise InvalidArgument("torch.compile", f"{name} is {given[name]!r}", allowed="True or False")
    return Options(
        find_device(given.get("device")),
        passes if isinstance(passes, str) else tuple(passes),
        given.get("prepack", True),
        given.get("freeze", True),
    )


def compile_graph(
    module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Compile a graph that TorchDynamo captured: what torch.compile(…, backend="isokern") calls.

    `options` has `device`, the name of a device, and `freeze`, `passes` and `prepack`. InvalidArgument where the graph
    is to be differentiated, and for options that there are not.
    """
    if mode not in (None, "default"):
        raise InvalidArgument("torch.compile", f"mode {mode!r}", allowed="default")
    made: Callable[..., Any] = compile_with(read_options(options), CaptureReport())(module, inputs)
    return made


def compile_with(options: Options, report: CaptureReport) -> Callable[..., Any]:
    """Return the backend with these options; what it is asked for is added to a report."""

    def backend(module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        from torch._dynamo.backends.common import aot_autograd

        make = aot_autograd(
            fw_compiler=_refuse,
            bw_compiler=_refuse,
            inference_compiler=lambda graph, _: make_callable(graph, _find_static(), options, report),
            decompositions=list_decompositions(),
        )
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            _refuse(module, inputs)
        made: Callable[..., Any] = make(module, inputs)
        return made

    return backend


def _refuse(module: Any, inputs: Sequence[Any]) -> Any:
    given = "the graph has parameters or inputs that require gradients"
    raise InvalidArgument("torch.compile", given, allowed="inference", hint=WAY_OUT)


def _find_static() -> list[int]:
    """Return the arguments of the graph in work that are parameters and buffers, and that it does not write to."""
    context = torch._guards.TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    if found is None:
        return []
    return [n for n in found.static_input_indices or () if not found.input_info[n].mutates_data]


def make_callable(module: Any, static: Iterable[int], options: Options, report: CaptureReport) -> Any:
    """Return what runs a graph of ATen operators: one list of programs, or several between parts that PyTorch runs."""
    from torch._functorch.aot_autograd import make_boxed_func
    from torch.utils._python_dispatch import _disable_current_modes

    static = list(static)
    with _disable_current_modes():  # constants are read, which PyTorch's fake tensors are not
        reasons = judge(module, options.device)
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    named = {n: (n.name, name_of(n.target)) for n in calls}  # before parts are cut out
    number, report.graphs = report.graphs, report.graphs + 1
    if not any(node in reasons for node in calls):
        run: Any = ModulePrograms(module, static, options, f"graph{number}")
        here = set(calls)
    else:
        inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        here = partition(module, reasons, {inputs[n].name for n in static}, options, f"graph{number}")
        run = module
    report.lines += [
        PlacedOperator(number, *named[n], *_place(n in here, n, reasons, options.device.name)) for n in calls
    ]
    return make_boxed_func(run)


def _place(here: bool, node: Any, reasons: Mapping[Any, str], device: str) -> tuple[str, str]:
    if here:
        return device, ""
    of = node.args[0] if node.target is operator.getitem else node
    return "PyTorch", reasons.get(node) or reasons.get(of) or "alone between operators that run in PyTorch"


def partition(module: Any, reasons: Mapping[Any, str], static: set[str], options: Options, name: str) -> set[Any]:
    """Replace the parts of a graph that run here by calls of programs, and return their nodes."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    def supported(_modules: Any, node: Any) -> bool:
        if node.op == "call_function" and node.target is operator.getitem:
            return supported(_modules, node.args[0])
        return node.op == "call_function" and node not in reasons and _gives_tensors(node)

    partitioner = CapabilityBasedPartitioner(
        module,
        create_op_support(supported),
        allows_single_node_partition=False,
        non_compute_ops=[f"torch.ops.aten.{n}" for n in VIEWS],
        allowed_single_node_partition_ops=[f"torch.ops.aten.{n}.default" for n in WORTH],
    )
    parts = partitioner.propose_partitions()
    here = {node for part in parts for node in part.nodes}
    fused = partitioner.fuse_partitions(parts)
    for node in fused.graph.nodes:
        if node.op != "call_module":
            continue
        inner = getattr(fused, node.target)
        own = [n for n, argument in enumerate(node.args) if getattr(argument, "name", None) in static]
        setattr(fused, node.target, _Part(ModulePrograms(inner, own, options, f"{name}.{node.target}")))
    fused.recompile()
    return here


def _gives_tensors(node: Any) -> bool:
    """Return whether the results of a node that anything reads are tensors."""
    val = value_of(node)
    if not isinstance(val, (tuple, list)):
        return isinstance(val, torch.Tensor)
    read = read_results(node)
    return all(v is None or isinstance(v, torch.Tensor) for n, v in enumerate(val) if n in read)


class _Part(torch.nn.Module):  # type: ignore[misc]  # a type checker has no torch
    """A part of a graph that PyTorch calls like a module."""

    def __init__(self, programs: ModulePrograms) -> None:
        super().__init__()
        self.programs = programs

    def forward(self, *args: Any) -> Any:
        """Run the part."""
        found = self.programs(*args)
        return tuple(found) if self.programs.listed else found[0]
