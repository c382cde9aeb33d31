"""One entry point for every operator, for hosts that hold numbers and bytes.

It takes the operator's kind, tensors, an attribute blob and a stream's handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import by_kind
from ..status import InvalidArgument, quote
from ..tensors import Tensor
from .calls import cached_descriptor


def op_call(
    kind: int,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    schema_id: int = 0,
    attrs: bytes = b"",
    stream_handle: int | None = None,
) -> None:
    """Enqueue the operator of that kind (`Operator.kind_id`; IK_KIND_… in C) on the outputs' device.

    `attrs` is what `Record.pack` returns, under its `schema_id`; 0 without bytes means defaults. `stream_handle` is the
    handle of a stream, an integer: `Stream.handle`, or on a device that takes the host's streams a cudaStream_t or the
    address of a cl_command_queue. It has no default, so that nothing runs on a stream by accident; 0 is the
    thread's current one, which may be that of the library whose memory the tensors are. Tensors are checked as by
    `create` and `calculate`; the workspace is "auto".
    """
    operator = by_kind(kind)
    where = operator.name
    if stream_handle is None:
        raise InvalidArgument(
            where, "stream_handle is missing", allowed="a stream's handle, or 0 for the current stream"
        )
    for name, given in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(given, (list, tuple)) or not all(isinstance(t, Tensor) or t is None for t in given):
            raise InvalidArgument(where, f"{name}={quote(given)}", allowed="a list of tensors")
    if not outputs or outputs[0] is None:
        raise InvalidArgument(where, f"{len(outputs)} outputs, the first of them {outputs[:1]}", allowed="tensors")
    values: dict[str, Any] = operator.attrs.unpack(where, schema_id, attrs)
    device = outputs[0].device
    libraries = {t.buffer.library for t in (*inputs, *outputs) if t is not None}
    stream = device.stream_of(stream_handle, libraries)
    inputs_of, outputs_of = [None if t is None else t.desc for t in inputs], [t.desc for t in outputs]
    descriptor = cached_descriptor(operator, device, inputs_of, outputs_of, values)
    descriptor.calculate(inputs, outputs, workspace="auto", stream=stream)
