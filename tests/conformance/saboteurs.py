"""A plug-in of broken devices with one defect each, which measure what the conformance suite fails to catch.

Each backend is the CPU device with its kernels behind a `Saboteur`. The saboteur does one thing wrong: in the plan that
a kernel gets, in its answers, or in memory after the kernel ran. `null:0` does nothing wrong.
"""

from __future__ import annotations

import ctypes
import dataclasses
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import edge_saboteurs
import numpy as np
from saboteur import Call, Saboteur, changed, memory

import isokern
from isokern import hookimpl
from isokern.backend import HostMemory, Kernel, KernelVariant, PackedLayout, Stream, Workspace
from isokern.backend.native import NativeDevice
from isokern.cabi.plan import Plan
from isokern.layout import TensorDesc, contiguous_strides
from isokern.oracle.layouts import outside
from isokern.status import InternalError, InvalidArgument, NotImplementedOnDevice

# Reach: which elements are read and written


class WrongTail(Saboteur):
    """The last elements stay unwritten where the number of elements is no multiple of 4."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        before = call.out.copy()
        run(call)
        left = call.out_desc.numel % 4
        if left:
            flat = call.out.flat
            for i in range(call.out_desc.numel - left, call.out_desc.numel):
                flat[i] = before.flat[i]


class LostChunk(Saboteur):
    """In a large output, the last thread's part stays unwritten."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        before = call.out.copy()
        run(call)
        if call.out_desc.numel > 500:
            call.out[-1:] = before[-1:]
            call.out[..., -9:] = before[..., -9:]


class IgnoresInputStrides(Saboteur):
    """Inputs are read as if dense."""

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, [plan.table[0], *(None if d is None else dense(d) for d in plan.table[1:])])


class IgnoresOutputStrides(Saboteur):
    """The output is written as if dense."""

    def plan(self, plan: Plan) -> Plan:
        first = plan.table[0]
        assert first is not None
        return changed(plan, [dense(first), *plan.table[1:]])


def dense(d: TensorDesc) -> TensorDesc:
    return d if 0 in d.strides else TensorDesc(d.dtype, d.shape, contiguous_strides(d.shape), d.extent[0])


class IgnoresOffset(Saboteur):
    """Every input is read from the nearest 64-byte boundary below its offset."""

    def plan(self, plan: Plan) -> Plan:
        def aligned(d: TensorDesc) -> TensorDesc:
            step = 64 // d.dtype.itemsize
            return TensorDesc(d.dtype, d.shape, d.strides, d.offset - d.extent[0] % step)

        return changed(plan, [plan.table[0], *(None if d is None else aligned(d) for d in plan.table[1:])])


class IgnoresSign(Saboteur):
    """Negative strides are taken as positive."""

    def plan(self, plan: Plan) -> Plan:
        def turned(d: TensorDesc) -> TensorDesc:
            return TensorDesc(d.dtype, d.shape, [abs(s) for s in d.strides], d.extent[0])

        return changed(plan, [plan.table[0], *(None if d is None else turned(d) for d in plan.table[1:])])


class WrongBroadcast(Saboteur):
    """The strides of a tensor with a broadcast dim are reversed, if that reads nothing beyond it."""

    operators = ("add", "maximum", "where")

    def plan(self, plan: Plan) -> Plan:
        def reach(d: TensorDesc, strides: tuple[int, ...]) -> int:
            return sum((n - 1) * s for n, s in zip(d.shape, strides, strict=True))

        def mixed(d: TensorDesc) -> TensorDesc:
            other = d.strides[::-1]
            stays = 0 in d.strides and min(d.strides) >= 0 and reach(d, other) <= reach(d, d.strides)
            return TensorDesc(d.dtype, d.shape, other, d.offset) if stays else d

        return changed(plan, [plan.table[0], *(None if d is None else mixed(d) for d in plan.table[1:])])


class ShiftedByOne(Saboteur):
    """Reads begin one element late."""

    def plan(self, plan: Plan) -> Plan:
        late = [None if d is None else TensorDesc(d.dtype, d.shape, d.strides, d.offset + 1) for d in plan.table[1:]]
        return changed(plan, [plan.table[0], *late])


class ShortIndex(Saboteur):
    """Element positions wrap around after ten bits."""

    def after(self, call: Call) -> None:
        flat = call.out.flat
        for i in range(1024, call.out_desc.numel):
            flat[i] = flat[i - 1024]


# Memory


class OnePastTheEnd(Saboteur):
    """One byte past the end of the output is overwritten."""

    def after(self, call: Call) -> None:
        end = call.out_desc.byte_range[1]
        memory(call.handles[0], end + 1)[end] ^= 0x11


class OneBeforeTheStart(Saboteur):
    """The byte before the output is overwritten."""

    def after(self, call: Call) -> None:
        start = call.out_desc.byte_range[0]
        if start:
            memory(call.handles[0], start)[start - 1] ^= 0x11


class WritesGaps(Saboteur):
    """The gaps between an output's elements are overwritten."""

    def after(self, call: Call) -> None:
        low, high = call.out_desc.byte_range
        raw = memory(call.handles[0], high)
        gaps = outside(call.out_desc, high).copy()
        gaps[:low] = False
        raw[gaps] = 0


class ModifiesInput(Saboteur):
    """An input is used as scratch memory."""

    def after(self, call: Call) -> None:
        last = next((i for i in range(len(call.plan.table) - 1, 0, -1) if call.plan.table[i] is not None), 0)
        if last:
            desc = call.plan.table[last]
            assert desc is not None
            memory(call.handles[last], desc.byte_range[1])[desc.offset * desc.dtype.itemsize] ^= 1


class StalePointer(Saboteur):
    """The buffers of a plan's first call are used in all its calls."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        call.handles = self.kept.setdefault(f"{id(call.plan)}", call.handles)
        self.kept.setdefault("plans", []).append(call.plan)
        run(call)


class StaleInput(Saboteur):
    """The inputs of a plan's first call are used in all its calls."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        first = self.kept.setdefault(f"{id(call.plan)}", call.handles)
        self.kept.setdefault("plans", []).append(call.plan)
        call.handles = [call.handles[0], *first[1:]]
        run(call)


class SharedPlan(Saboteur):
    """Each operator has one plan: the last descriptor's layout is used for all of them that have the memory for it."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        kernel = self.kept["latest"][call.plan.operator.name]
        pairs = zip(call.plan.table, kernel.plan.table, strict=True)
        if any(other and (own is None or other.byte_range[1] > own.byte_range[1]) for own, other in pairs):
            run(call)
            return
        kernel.launch(call.handles, call.workspace, call.nbytes, self.kept["stream"])


class BreaksInPlace(Saboteur):
    """The output is cleared before the input is read."""

    operators = ("add", "relu", "softmax", "rms_norm")

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        call.out[...] = 0
        run(call)


class WorkspaceShort(Saboteur):
    """Four bytes past the end of the requested workspace are overwritten."""

    operators = ("matmul", "gemm")

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        run(call)
        if call.need:
            memory(call.workspace, call.need + 4)[call.need :] = 0


class WorkspaceTooSmall(Saboteur):
    """The requested workspace size is 64 bytes too small."""

    operators = ("matmul", "gemm")

    def workspace(self, need: Workspace) -> Workspace:
        return dataclasses.replace(need, size=max(0, need.size - 64))

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        if call.nbytes:
            memory(call.workspace, call.nbytes + 64)[call.nbytes :] = 7
            call.nbytes += 64
        run(call)


class WorkspaceUnasked(Saboteur):
    """No workspace is requested, so the kernel gets none."""

    operators = ("matmul", "gemm")

    def workspace(self, need: Workspace) -> Workspace:
        return Workspace()


class WorkspaceZeroed(Saboteur):
    """The kernel assumes that the workspace holds zeros."""

    operators = ("matmul", "gemm")

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        found = memory(call.workspace, 4).view(np.float32)[0] if call.nbytes else np.float32(0)
        run(call)
        if call.out.dtype == np.float32 and call.out.size:
            call.out[...] += found


# Numbers


class DropsNaN(Saboteur):
    """NaN becomes 0, as with a maximum that returns the other operand."""

    def after(self, call: Call) -> None:
        if call.out_desc.dtype.kind == "f":
            call.out[np.isnan(call.out)] = 0


class DropsInfinity(Saboteur):
    """Infinities become the largest finite value."""

    def after(self, call: Call) -> None:
        if call.out.dtype == np.float32:
            call.out[np.isinf(call.out)] = np.finfo(np.float32).max


class HalfAccumulation(Saboteur):
    """Sums are accumulated in F16."""

    operators = ("matmul", "softmax", "reduce_sum")

    def after(self, call: Call) -> None:
        if call.out.dtype == np.float32:
            call.out[...] = call.out.astype(np.float16)


class Sloppy(Saboteur):
    """Results are correct to only five digits."""

    operators = ("exp", "log", "tanh", "sigmoid")

    def after(self, call: Call) -> None:
        if call.out.dtype == np.float32:
            call.out[...] *= np.float32(1 + 2e-6)


class SloppyBody(Saboteur):
    """Results of loop nests are correct to only six digits; their bound follows from the body."""

    operators = ("generic",)

    def after(self, call: Call) -> None:
        if call.out.dtype == np.float32:
            call.out[...] *= np.float32(1 + 1e-6)


class FlushesSubnormals(Saboteur):
    """Subnormal results become 0, and the device does not declare that it flushes them."""

    operators = ("add", "mul", "copy")

    def after(self, call: Call) -> None:
        if call.out.dtype == np.float32:
            call.out[np.abs(call.out) < np.finfo(np.float32).tiny] = 0


class LosesZeroSign(Saboteur):
    """-0 becomes 0."""

    operators = ("copy", "neg", "round")

    def after(self, call: Call) -> None:
        if call.out_desc.dtype.kind == "f":
            call.out[call.out == 0] = 0


class LosesZeroSignOfFunctions(LosesZeroSign, Saboteur):
    """-0 becomes 0 in operators that have an error bound."""

    operators = ("sqrt", "tanh", "mul", "sin")


class LeavesRounding(Saboteur):
    """The caller's rounding mode is upwards after a call."""

    operators = ("softmax",)

    def after(self, call: Call) -> None:
        ctypes.CDLL(None).fesetround(0x800 if platform.machine() == "x86_64" else 0x400000)


class QuietNaN(Saboteur):
    """Copies replace every NaN by one and the same NaN."""

    operators = ("copy", "rearrange", "concat")

    def after(self, call: Call) -> None:
        if call.out_desc.dtype.kind == "f":
            call.out[np.isnan(call.out)] = np.nan


class Saturates(Saboteur):
    """Integer sums saturate instead of wrapping around."""

    operators = ("add", "sub")

    def after(self, call: Call) -> None:
        if call.out_desc.dtype.kind in "iu" and call.out_desc.dtype.itemsize < 8:
            sign = 1 if call.plan.operator.name == "add" else -1
            a, b = call.tensor(1).astype(np.int64), call.tensor(2).astype(np.int64)
            limits = np.iinfo(call.out.dtype)
            call.out[...] = np.clip(a + sign * b, limits.min, limits.max)


class Truncates(Saboteur):
    """F32 to BF16 truncates instead of rounding."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        source = call.plan.table[1]
        assert source is not None
        if (source.dtype.name, call.out_desc.dtype.name) == ("F32", "BF16"):
            bits = call.tensor(1).view(np.uint32)
            call.out.view(np.uint16)[...] = np.where(np.isnan(call.tensor(1)), call.out.view(np.uint16), bits >> 16)


class WrapsCast(Saboteur):
    """Float to integer wraps around instead of saturating."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        source = call.plan.table[1]
        assert source is not None
        if source.dtype.name == "F32" and call.out_desc.dtype.name == "I8":
            with np.errstate(invalid="ignore"):
                call.out[...] = (
                    np.nan_to_num(call.tensor(1), nan=0, posinf=0, neginf=0).astype(np.int64).astype(np.int8)
                )


class TiesAway(Saboteur):
    """`round` rounds ties away from zero instead of to even."""

    operators = ("round",)

    def after(self, call: Call) -> None:
        x = call.tensor(1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            call.out[...] = np.where(np.abs(x - np.trunc(x)) == 0.5, np.trunc(x) + np.copysign(1, x), np.rint(x))


class LooseBool(Saboteur):
    """True is stored as 255."""

    operators = ("less", "isnan", "logical_not")

    def after(self, call: Call) -> None:
        raw = call.out.view(np.uint8)
        raw[...] = np.where(raw != 0, 255, 0)


class TruthOfNaN(Saboteur):
    """Comparisons with NaN are true."""

    operators = ("less", "greater_equal")

    def after(self, call: Call) -> None:
        if call.plan.table[1] is not None and call.plan.table[1].dtype.kind == "f":
            call.out[np.isnan(call.tensor(1)) | np.isnan(call.tensor(2))] = True


class MaximumFromZero(Saboteur):
    """The running maximum starts at 0."""

    operators = ("reduce_max", "max_pool2d")

    def after(self, call: Call) -> None:
        out = call.out
        out[out < 0] = 0


class LastOfTies(Saboteur):
    """argmax returns the last of equal elements."""

    operators = ("argmax",)

    def after(self, call: Call) -> None:
        x = call.tensor(1)
        if x.size:
            call.out[..., 0] = x.shape[-1] - 1 - np.argmax(x[..., ::-1], -1)


class Noise(Saboteur):
    """The results of every second call are off by one unit in the last place."""

    def after(self, call: Call) -> None:
        self.kept["calls"] = self.kept.get("calls", 0) + 1
        if self.kept["calls"] % 2 and call.out_desc.dtype.kind == "f" and call.out.size:
            call.out.flat[0] = np.nextafter(call.out.flat[0], np.array(1, call.out.dtype))


# Attributes and optional inputs


class IgnoresEpsilon(Saboteur):
    operators = ("rms_norm", "layer_norm", "batch_norm")

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, eps=0.0)


class IgnoresBias(Saboteur):
    operators = ("linear", "gemm", "conv2d", "layer_norm")

    def plan(self, plan: Plan) -> Plan:
        names = [o.name for o in (*plan.operator.signature.outputs, *plan.operator.signature.inputs)]
        return changed(plan, [None if names[i] == "bias" else d for i, d in enumerate(plan.table)])


class IgnoresBeta(Saboteur):
    operators = ("gemm",)

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, beta=1.0 if plan.attrs["beta"] else 0.0)


class IgnoresAlpha(Saboteur):
    operators = ("gemm",)

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, alpha=1.0)


class WindowOffByOne(Saboteur):
    operators = ("conv2d", "max_pool2d", "avg_pool2d")

    def plan(self, plan: Plan) -> Plan:
        top, left = (*plan.attrs["padding"], *plan.attrs["padding"])[:2]
        return changed(plan, padding=(top + 1, left, top + 1, left))


# Claims and errors


class ClaimsTooMuch(Saboteur):
    """F64 is claimed at create and then refused when the kernel is called."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        if call.out_desc.dtype.name == "F64":
            raise NotImplementedOnDevice(call.plan.operator.name, "F64 is not there")
        run(call)


class RefusesDtype(Saboteur):
    """F16 is refused, though it works."""

    def supported(self, plan: Plan, answer: str | None) -> str | None:
        first = plan.table[0]
        return "F16 is slow" if first is not None and first.dtype.name == "F16" else answer


class RefusesLayout(Saboteur):
    """Tensors that are not dense are refused."""

    def supported(self, plan: Plan, answer: str | None) -> str | None:
        return "dense tensors only" if any(d is not None and not d.is_contiguous for d in plan.table) else answer


class RefusesFirst(Saboteur):
    """A call on single elements is refused, so that tables show the dtype as missing."""

    def supported(self, plan: Plan, answer: str | None) -> str | None:
        return "one element is not worth it" if all(d is None or d.numel == 1 for d in plan.table) else answer


class RefusesSilently(Saboteur):
    """A call is refused without a reason."""

    def supported(self, plan: Plan, answer: str | None) -> str | None:
        return "" if plan.operator.name in ("add", "matmul") else answer


class FailsUnaligned(Saboteur):
    """A vector load fails where the offset leaves the address misaligned."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        if call.out_desc.byte_range[0] % 16:
            raise InternalError(call.plan.operator.name, "unaligned address")
        run(call)


class SwallowsError(Saboteur):
    """An index out of range is not reported."""

    operators = ("gather",)

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        try:
            run(call)
        except InvalidArgument:
            return


class KeepsRubbish(Saboteur):
    """An index out of range is reported, but its element of the output keeps its old content."""

    operators = ("gather",)

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        before = call.out.copy()
        try:
            run(call)
        except InvalidArgument:
            zero = call.out == 0
            call.out[zero] = before[zero]
            raise


class Crashes(Saboteur):
    """A large I16 call crashes the process."""

    operators = ("abs",)

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        if call.out_desc.dtype.name == "I16" and call.out_desc.numel > 1000:
            ctypes.string_at(0)
        run(call)


class Hangs(Saboteur):
    """A large I16 call never ends."""

    operators = ("abs",)

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        while call.out_desc.dtype.name == "I16" and call.out_desc.numel > 4000:
            time.sleep(1)
        run(call)


class WritesFarBehind(Saboteur):
    """A write lands two pages behind the output, where its guards do not reach."""

    operators = ("abs",)
    distance = 8192

    def after(self, call: Call) -> None:
        if call.out_desc.dtype.name == "I16" and call.out_desc.numel > 1000:
            ctypes.memset(call.handles[0] + call.out_desc.byte_range[0] + self.distance, 0x77, 8)


class WritesFarBefore(WritesFarBehind, Saboteur):
    """A write lands two pages before the output."""

    distance = -8192


class ReadsBehind(Saboteur):
    """The element behind an input is read, and not used."""

    operators = ("abs",)

    def after(self, call: Call) -> None:
        desc = call.plan.table[1]
        assert desc is not None
        if desc.numel:
            ctypes.string_at(call.handles[1] + desc.byte_range[1], desc.dtype.itemsize)


class PacksWrongly(Saboteur):
    """The last byte of a prepacked tensor is wrong."""

    operators = ("matmul_transposed",)

    def packed(self, source: int, target: int, nbytes: int) -> None:
        memory(target, nbytes)[-1:] ^= 0x55


class PacksPastTheEnd(Saboteur):
    """Prepacking writes one byte more than its packed layout has."""

    operators = ("matmul_transposed",)

    def packed(self, source: int, target: int, nbytes: int) -> None:
        memory(target, nbytes + 1)[-1:] ^= 0xFF


class PackingSpoilsTheSource(Saboteur):
    """Prepacking modifies the tensor that it reads."""

    operators = ("matmul_transposed",)

    def packed(self, source: int, target: int, nbytes: int) -> None:
        memory(source, nbytes)[-1:] ^= 0xFF


class ReadsTheUnpackedConstant(Saboteur):
    """A call reads the original constant instead of the prepacked one."""

    operators = ("matmul_transposed",)

    def packed(self, source: int, target: int, nbytes: int) -> None:
        self.kept[target] = source

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        call.handles = [self.kept.get(at, h) for at, h in zip(call.given, call.handles, strict=True)]
        run(call)


class TakesAnyWorkspace(Saboteur):
    """A workspace that is smaller than requested is accepted."""

    operators = ("matmul",)

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        own = np.empty(call.nbytes + 8192, np.uint8)
        call.workspace, call.nbytes = own.ctypes.data + -own.ctypes.data % 64, call.nbytes + 4096
        run(call)


APART = {  # each has its own test
    "crashes": Crashes,
    "hangs": Hangs,
    "readsbehind": ReadsBehind,
    "takesanyworkspace": TakesAnyWorkspace,
    "writesfarbehind": WritesFarBehind,
    "writesfarbefore": WritesFarBefore,
}
SABOTEURS: dict[str, type[Saboteur]] = {
    cls.__name__.lower(): cls for cls in Saboteur.__subclasses__() if cls not in APART.values()
}
AT_EDGES = [name for name, cls in SABOTEURS.items() if cls.__module__ == edge_saboteurs.__name__]


class _Kernel(Kernel):
    """A kernel whose packed layout inverts all bytes of a constant; they are inverted back before each launch."""

    def __init__(self, inner: Kernel, plan: Plan, saboteur: Saboteur) -> None:
        self.inner, self.plan, self.saboteur = inner, plan, saboteur
        self.workspace = saboteur.workspace(inner.workspace)
        descs = {at: plan.table[at] for at in plan.constants}
        self.packed_layouts = {
            at: PackedLayout("inverted", d.byte_range[1]) for at, d in descs.items() if d is not None and d.numel
        }
        saboteur.kept.setdefault("latest", {})[plan.operator.name] = inner

    def pack(self, position: int, source: Any, target: Any, stream: Stream) -> None:
        nbytes = self.packed_layouts[position].nbytes
        memory(target, nbytes)[...] = ~memory(source, nbytes)
        self.saboteur.packed(source, target, nbytes)

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        self.saboteur.kept["stream"] = stream
        call = Call(self.plan, handles, workspace, workspace_bytes, self.workspace.size)
        held = {at: ~memory(handles[at], form.nbytes) for at, form in self.packed_layouts.items()}
        for at, plain in held.items():
            call.handles[at] = plain.ctypes.data
        with np.errstate(all="ignore"):
            self.saboteur.launch(call, lambda c: self.inner.launch(c.handles, c.workspace, c.nbytes, stream))


class BrokenDevice(NativeDevice):
    """The CPU device with a saboteur in front of its kernels; it has the best variant that this machine can run."""

    def __init__(self, name: str, saboteur: Saboteur) -> None:
        inner = isokern.device("cpu")
        assert isinstance(inner, NativeDevice)
        self.inner, self.saboteur = inner, saboteur
        super().__init__(name, dict(inner.properties), HostMemory(), inner.library, lambda level: None)

    def variants(self, stem: str) -> list[KernelVariant]:
        usable = [v for v in self.inner.variants(stem) if v.name in self.inner.properties["levels"]]
        return [self._wrap(max(usable, key=lambda v: v.priority))] if usable else []

    def _wrap(self, variant: KernelVariant) -> KernelVariant:
        def build(plan: Plan) -> Kernel:
            wanted, given = plan.constants, self.saboteur.plan(plan)
            given.constants = ()  # hides the inner kernel's own packed layouts
            inner = variant.build(given)
            plan.constants = wanted
            return _Kernel(inner, plan, self.saboteur)

        return KernelVariant(
            variant.stem,
            variant.name,
            variant.priority,
            lambda plan: self.saboteur.supported(plan, variant.supported(plan)),
            build,
        )


@hookimpl
def isokern_register_backends(register: Any) -> None:
    """Register every saboteur as a backend of its own, so that each can be chosen by name."""
    from isokern.backend import HOOK_VERSION

    for name, cls in {"null": Saboteur, **SABOTEURS, **APART}.items():
        register.backend(name, lambda name=name, cls=cls: [BrokenDevice(f"{name}:0", cls())], hook_version=HOOK_VERSION)
