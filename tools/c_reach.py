"""Write docs/c_reach.tsv: how a host in C reaches each operator on the named devices, by a kernel or by its parts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import isokern
from isokern.backend.native import NativeDevice
from isokern.cabi.plan import _pack
from isokern.declare.operator import Operator
from isokern.declare.samples import assignments, describe, first_sample
from isokern.ops import all_operators
from isokern.status import Status

TABLE = Path(__file__).resolve().parents[1] / "docs" / "c_reach.tsv"
LOWERED = 2**32 - 1  # the variant of a plan that is several kernels


def find_way(op: Operator, ffi: Any, lib: Any) -> str:
    """Return "kernel", "parts" or "-" of an operator's first sample, in the first dtypes that are taken."""
    for types in assignments(op):
        sample = first_sample(op, types)
        inputs, outputs = describe(op, sample, types)
        descs = [*outputs, *inputs]
        tensors, plan = ffi.new("ik_tensor[]", max(1, len(descs))), ffi.new("ik_plan **")
        for i, desc in enumerate(descs):
            ffi.memmove(ffi.addressof(tensors, i), bytes(_pack(desc)), ffi.sizeof("ik_tensor"))
        blob = op.attrs.pack(op.attrs.check(op.name, sample.attrs)) if op.attrs.attrs else b""
        packed = ffi.new("char[]", blob or b"\0")
        given = ffi.new("ik_attributes *", [op.attrs.schema_id, len(blob), packed] if blob else [0, 0, ffi.NULL])
        status = lib.ik_op_create(op.kind_id, tensors, len(descs), given, plan)
        if status == Status.SUCCESS:
            way = "parts" if plan[0].variant == LOWERED else "kernel"
            lib.ik_op_destroy(plan[0])
            return way
        if status != Status.NOT_IMPLEMENTED:
            raise SystemExit(f"{op.name}: {ffi.string(lib.ik_last_error()).decode()}")
    return "-"


def main(*names: str) -> None:
    """Ask the devices of these names, which a host in C can have."""
    devices = [isokern.device(name) for name in names]
    for device in devices:
        if not isinstance(device, NativeDevice):
            raise SystemExit(f"{device.name} is reached from Python alone")
    lines = ["\t".join(["operator", *(d.name.partition(":")[0] for d in devices)])]
    for op in sorted(all_operators(), key=lambda o: o.name):
        ways = [find_way(op, d.library.ffi, d.library.lib) for d in devices]
        lines.append("\t".join([op.name, *ways]))
    TABLE.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(TABLE, *(d.name for d in devices), file=sys.stderr)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ("cpu:0",)))
