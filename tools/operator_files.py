"""Print one of the two committed lists of operators: `python tools/operator_files.py index` or `… records`.

The index says which module declares each operator, so that a caller of one operator loads only that module. The records
are the layouts of the operators' attributes, which are stable: a layout that changes gets a new schema id.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from isokern.declare import registry
from isokern.declare.operator import Operator


def find_modules() -> dict[str, str]:
    """Return the module of `isokern.ops` that declares each operator, if nothing has imported `isokern.ops` before."""
    registered, modules = registry.register, {}

    def note(operator: Operator) -> None:
        frame = sys._getframe(1)
        while frame.f_globals.get("__package__") != "isokern.ops":
            if frame.f_back is None:
                raise LookupError(f"{operator.name} is not declared by a module of isokern.ops")
            frame = frame.f_back
        modules[operator.name] = frame.f_globals["__name__"].rpartition(".")[2]
        registered(operator)

    registry.register = note
    try:
        from isokern import ops

        ops.all_operators()
    finally:
        registry.register = registered
    return modules


def list_operators(modules: Mapping[str, str]) -> str:
    """Return the text of `index.tsv`."""
    from isokern.ops import all_operators

    rows = [
        ("name", "kind", "module", "record"),
        *((op.name, op.kind, modules[op.name], f"{op.attrs.fingerprint:x}") for op in all_operators()),
    ]
    return "".join("\t".join(row) + "\n" for row in rows)


def list_records() -> str:
    """Return the text of `golden/records.txt`: the offset and kind of each attribute of each operator."""
    from isokern.ops import all_operators

    lines = []
    for op in all_operators():
        fields = ", ".join(f"{name} {kind} @{offset}" for name, kind, offset in op.attrs.layout)
        lines.append(f"{op.name} {op.kind} {op.attrs.schema or '-'} {op.attrs.nbytes}: {fields}".rstrip(": "))
    return "\n".join(lines) + "\n"


def read_layouts(records: str) -> dict[str, tuple[str, str]]:
    """Return (operator, size and fields) by schema id; lines of another form are left out, as is what a merge left."""
    found = {}
    for line in records.splitlines():
        name, _kind, schema, layout = [*line.split(maxsplit=3), "", "", "", ""][:4]
        if layout and schema != "-":
            found[schema] = (name, layout)
    return found


def find_changed_layouts(before: str, now: str) -> list[str]:
    """Return a sentence for each schema id whose layout is another one than before."""
    earlier = read_layouts(before)
    return [
        f"the attributes of {name} have another layout than {schema} had; give the record a new schema id"
        for schema, (name, layout) in read_layouts(now).items()
        if schema in earlier and earlier[schema][1] != layout
    ]


def main(arguments: Sequence[str]) -> None:
    """Print the list."""
    match arguments:
        case ["index"]:
            print(list_operators(find_modules()), end="")
        case ["records"]:
            print(list_records(), end="")
        case _:
            raise SystemExit("give one of these: index, records")


if __name__ == "__main__":
    main(sys.argv[1:])
