"""Test attribute records: packing, defaults, refusals, and the golden file of all layouts."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from isokern import BadAttrSchema, BadAttrSize, InvalidArgument, ops
from isokern.declare.attributes import Record, attrs, choice, flag, fourcc, integer, integers, number

RECORD = attrs(
    "TST1",
    integer("axis", -1),
    number("eps", 1e-5, minimum=0),
    flag("keep", False),
    choice("mode", ("a", "b"), "a"),
    integers("pads", ()),
)
GOLDEN = Path(__file__).parent / "golden" / "records.txt"


def test_packing_is_little_endian_in_declared_order():
    blob = RECORD.pack(RECORD.check("op", {"axis": 3, "mode": "b", "pads": (1, 2)}))
    assert blob == struct.pack("<qdqqq8q", 3, 1e-5, 0, 1, 2, 1, 2, 0, 0, 0, 0, 0, 0)
    assert RECORD.nbytes == len(blob)


def test_schema_0_without_bytes_means_defaults():
    assert RECORD.unpack("op", 0, b"") == RECORD.check("op", {})


def test_wrong_id_and_length_are_never_a_guess():
    blob = RECORD.default_blob()
    with pytest.raises(BadAttrSchema, match="XXXX"):
        RECORD.unpack("op", fourcc("XXXX"), blob)
    with pytest.raises(BadAttrSize, match=str(RECORD.nbytes)):
        RECORD.unpack("op", RECORD.schema_id, blob[:-1])
    with pytest.raises(BadAttrSchema):
        RECORD.unpack("op", 0, blob)


@pytest.mark.parametrize(
    "given",
    [
        {"axis": 1.5},
        {"axis": "1"},
        {"axis": 2**63},
        {"eps": -1},
        {"eps": "x"},
        {"keep": 2},
        {"mode": "c"},
        {"pads": (1,) * 9},
        {"pads": (1.5,)},
        {"other": 1},
    ],
)
def test_refusals_name_the_attribute(given):
    with pytest.raises(InvalidArgument, match=next(iter(given))):
        RECORD.check("op", given)


def test_required_attribute():
    record = attrs("TST2", integers("kernel"))
    with pytest.raises(InvalidArgument, match="kernel is missing"):
        record.check("op", {})
    assert record.default_blob() is None


def test_fingerprint_changes_with_the_layout():
    other = attrs("TST1", number("eps", 1e-5), integer("axis", -1))
    assert other.fingerprint != RECORD.fingerprint
    assert 0 < RECORD.fingerprint < 2**63


def test_a_record_without_attributes_is_empty():
    assert Record().pack({}) == b""
    assert Record().unpack("op", 0, b"") == {}


def test_layouts_in_the_golden_file_have_not_changed():
    """A record's layout changes only together with its schema id.

    After changing both, run `python tests/core/test_records.py` and commit the file. A new operator passes without a
    line in the file, so that adding an operator edits nothing else; a release adds the lines.
    """
    assert sorted(set(GOLDEN.read_text().splitlines()) - set(layouts().splitlines())) == []


def layouts() -> str:
    lines = []
    for op in ops.all_operators():
        fields = ", ".join(f"{name} {kind} @{offset}" for name, kind, offset in op.attrs.layout)
        lines.append(f"{op.name} {op.kind} {op.attrs.schema or '-'} {op.attrs.nbytes}: {fields}".rstrip(": "))
    return "\n".join(lines) + "\n"


def index():
    """Return the lines of `index.tsv`, of the operators that each module declares."""
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    return done.stdout


LIST = """
import sys
from isokern.declare import registry
registered, home = registry.register, {}

def note(operator):
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") != "isokern.ops":
        frame = frame.f_back
    home[operator.name] = frame.f_globals["__name__"].rpartition(".")[2]
    registered(operator)

registry.register = note
import isokern.ops
print("name", "kind", "module", "record", sep="\\t")
for op in isokern.ops.all_operators():
    print(op.name, op.kind, home[op.name], f"{op.attrs.fingerprint:x}", sep="\\t")
"""


def test_the_index_says_where_operators_are_declared():
    """A line that is wrong is mended by `python tests/core/test_records.py`; a new operator is found without one."""
    assert sorted(set(ops.INDEX.read_text().splitlines()) - set(index().splitlines())) == []


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(layouts())
    ops.INDEX.write_text(index())
