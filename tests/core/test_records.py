"""Test attribute records: packing, defaults and refusals."""

import struct

import pytest

from isokern import BadAttrSchema, BadAttrSize, InvalidArgument
from isokern.declare.attributes import Record, attrs, choice, flag, fourcc, integer, integers, number

RECORD = attrs(
    "TST1",
    integer("axis", -1),
    number("eps", 1e-5, minimum=0),
    flag("keep", False),
    choice("mode", ("a", "b"), "a"),
    integers("pads", ()),
)


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
