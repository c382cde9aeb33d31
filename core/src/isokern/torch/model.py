"""Model: an exported program that runs here as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ..backend import Device
from ..backend.discovery import device as find_device
from ..importing.emission import UnsupportedModel
from ..passes import DEFAULT
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .decompositions import list_decompositions
from .importer import describe, outputs_of, value_of
from .judging import judge
from .library import library as torch
from .programs import ModulePrograms, Options
from .results import Steps, ViewStep, apply_steps, storage_of, trace_back

RESULTS = ("USER_OUTPUT",)
UPDATES = [kind for kind in torch.export.graph_signature.OutputKind if kind.name.endswith("_MUTATION")]


def decompose(program: Any) -> Any:
    """Return an exported program of the operators that the table has."""
    if not isinstance(program, torch.export.ExportedProgram):
        given = f"a {type(program).__name__}"
        raise InvalidArgument("load", given, allowed="an ExportedProgram", hint="torch.export.export(model, inputs)")
    return program.run_decompositions(list_decompositions())


class Model:
    """An exported program on a device; `load` makes it.

    It has the parameters of the program that was loaded, which is kept: what is written to them is seen by the next
    run. Each set of dims that a run brings has a program of its own, and the last eight are kept.
    """

    def __init__(self, program: Any, options: Options) -> None:
        self._exported = exported = decompose(program)
        self.device = options.device
        self.module, self._signature = exported.graph_module, exported.graph_signature
        reasons = judge(self.module, options.device)
        unknown = [f"{describe(node)}: {why}" for node, why in reasons.items()]
        if unknown:
            given = f"{len(unknown)} nodes do not run here: {'; '.join(unknown)}"
            raise UnsupportedModel("load", given, hint="torch.compile(…, backend='isokern') runs them in PyTorch")
        self._holders = [self._holder(spec) for spec in self._signature.input_specs]
        written = {o.target for o in self._signature.output_specs if o.kind in UPDATES}
        if strange := {o.kind.name for o in self._signature.output_specs} - {*RESULTS, *(k.name for k in UPDATES)}:
            raise UnsupportedModel(
                "load", f"results that are {', '.join(sorted(strange))}", allowed="those of inference"
            )
        specs = zip(self._signature.input_specs, self._holders, strict=True)
        self._static = [n for n, (s, (_, held)) in enumerate(specs) if held is not None and s.target not in written]
        self._parts = list(self._find_parts(program, written))
        self._users = [n for n, (_, held) in enumerate(self._holders) if held is None]
        self.programs = ModulePrograms(self.module, self._static, options, "exported")

    def _holder(self, spec: Any) -> tuple[Any, Any]:
        """Return the kind of an input, and the parameter, buffer or constant that it is; None for a user's."""
        kinds, kind = torch.export.graph_signature.InputKind, spec.kind
        if kind == kinds.USER_INPUT:
            return kind, None
        if kind in (kinds.PARAMETER, kinds.BUFFER, kinds.CONSTANT_TENSOR):
            held = self._exported.state_dict.get(spec.target)
            return kind, self._exported.constants[spec.target] if held is None else held
        raise UnsupportedModel("load", f"an input that is a {kind.name}", allowed="tensors and numbers")

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run on the program's inputs; see `run`."""
        return self.run(*args, **named)

    def run(self, *args: Any, **named: Any) -> Any:
        """Run on tensors, given as to the module that was exported, and return what that returns.

        What the module writes to its buffers and inputs is written to them. InvalidArgument, BadTensorShape or
        BadTensorDtype, with the input's name, for inputs that are not as they were exported.
        """
        spec = self._exported.call_spec
        flat, given = torch.utils._pytree.tree_flatten((args, named))
        if given != spec.in_spec:
            raise InvalidArgument(
                "run", f"inputs {_describe_arguments(given)}", allowed=_describe_arguments(spec.in_spec)
            )
        bound: dict[Any, int] = {}
        arguments = [held for _, held in self._holders]
        nodes = self.programs.inputs
        for n, value in zip(self._users, flat, strict=True):
            arguments[n] = self._check(nodes[n], self._signature.input_specs[n].arg, value, bound)
        results = self.programs(*arguments)
        outputs, updates = [], []
        for out, result in zip(self._signature.output_specs, results, strict=True):
            if out.kind in UPDATES:
                updates.append((arguments[self._find_argument(out.target)], result))
            else:
                outputs.append(result)
        with torch.no_grad():
            held = {storage_of(argument) for argument, _ in updates}
            updates = [(a, y.clone() if storage_of(y) in held else y) for a, y in updates]  # all are read before
            for argument, result in updates:
                argument.copy_(result)
            for n, argument, steps in self._parts:
                outputs[n] = apply_steps(arguments[argument], steps)
        return torch.utils._pytree.tree_unflatten(outputs, spec.out_spec)

    def _find_argument(self, name: str) -> int:
        """Return the number of the buffer or input of a name."""
        specs = enumerate(self._signature.input_specs)
        return next(n for n, s in specs if name in (s.target, getattr(s.arg, "name", None)))

    def _find_parts(self, program: Any, written: Collection[str]) -> Iterator[tuple[int, int, Steps]]:
        """Return which results are parts of buffers and inputs that are written to, of which, and the steps there.

        A program without decompositions writes to them in place. In another, what is to be written is a result.
        """
        signature, returned = program.graph_signature, outputs_of(program.graph)
        names = {s.arg.name: s.target or s.arg.name for s in signature.input_specs if hasattr(s.arg, "name")}
        outs = list(zip(signature.output_specs, returned, strict=True))
        roots: dict[Any, str] = {n: names.get(n.name, "") for n in program.graph.nodes if n.op == "placeholder"}
        roots |= {x: out.target for out, x in outs if out.kind in UPDATES}
        for n, x in enumerate(x for out, x in outs if out.kind not in UPDATES):
            root, views = trace_back(x, roots)
            if roots.get(root) in written and all(len(v.all_input_nodes) == 1 for v in views):  # without open dims
                steps = tuple(ViewStep(v.target, v.args[1:], v.kwargs) for v in views)
                yield n, self._find_argument(roots[root]), steps

    def _check(self, node: Any, arg: Any, value: Any, bound: dict[Any, int]) -> Any:
        """Return an input of a run, if it is what the program was exported for."""
        where, told = f"run: input {node.name}", value_of(node)
        if not isinstance(told, torch.Tensor):
            constant = getattr(arg, "value", told)
            if isinstance(constant, (int, float, bool, str, type(None))) and value != constant:
                raise InvalidArgument(where, f"{value!r}", allowed=f"{constant!r}, as it was exported")
            return value
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(where, f"a {type(value).__name__}", allowed="a tensor", hint="torch.as_tensor(…)")
        if value.requires_grad and torch.is_grad_enabled():
            hint = "x.detach(), or run it under torch.no_grad()"
            raise InvalidArgument(where, "it requires gradients", allowed="inference", hint=hint)
        if value.dtype != told.dtype:
            raise BadTensorDtype(where, f"{value.dtype}", allowed=f"{told.dtype}", hint=f"x.to({told.dtype})")
        fits = value.dim() == told.dim()
        for dim, said in zip(value.shape, told.shape, strict=False):
            fits = fits and dim == (said if type(said) is int else bound.setdefault(str(said), dim))
        if not fits:
            raise BadTensorShape(where, f"shape {list(value.shape)}", allowed=f"{list(told.shape)}")
        return value


def _describe_arguments(spec: Any) -> str:
    """Return how many arguments there are, and the names of those by name."""
    args, named = spec.child(0), spec.child(1)
    names = ", ".join(map(str, named.context or ()))
    return f"{args.num_children} by position" + (f", and {names}" if names else "")


def load(
    program: Any,
    device: str | Device | None = None,
    *,
    passes: str | Iterable[str] = DEFAULT,
    prepack: bool = True,
    freeze: bool = True,
) -> Model:
    """Load a program that torch.export.export made.

    On the CPU its parameters stay where they are, and are not copied, but for those that kernels have in packed layouts
    (`prepack`) or that passes fold into others. With `freeze` false, parameters are fed to each run.

    Raises UnsupportedModel where nodes do not run on the device, with all of them and the reasons.
    """
    passes = passes if isinstance(passes, str) else tuple(passes)
    return Model(program, Options(find_device(device), passes, prepack, freeze))


__all__ = ["Model", "decompose", "load"]
