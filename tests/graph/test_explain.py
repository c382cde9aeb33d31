"""Test what a program reports about itself: slots, times, shares of limits, and a trace."""

import json

import numpy as np
import pytest
from graph_models import command

from isokern import InvalidArgument
from isokern.demo.zoo import digits, mlp
from isokern.graph import Builder
from isokern.runtime import compile


def test_slots(devices):
    program = compile(digits(2), devices[0], passes="")
    (arena,) = [b for b in program._context.buffers if b.nbytes == program.arena_bytes]
    lines = program.explain()
    assert all(x.time_us is None and x.share is None for x in lines)
    for line, op in zip(lines, program.graph.ops, strict=True):
        (slot,) = line.slots
        (value,) = op.outputs
        tensor = program._context.tensors[value]
        assert slot.value == value.vid and slot.nbytes == value.spec.nbytes and line.memory == str(slot)
        if slot.memory == "arena":
            assert tensor.span == (arena.address + slot.offset, arena.address + slot.offset + slot.nbytes)
        if slot.alias is not None:
            assert program._context.tensors[program.graph.values[slot.alias]].span[0] == tensor.span[0]
            assert slot.how == ("view" if op in program.memory_plan.views else "in place")
    assert lines[-1].slots[0].memory == "own" and {s.how for x in lines for s in x.slots} == {"", "view", "in place"}


def test_times_and_shares(device_group):
    for device in device_group:
        program = compile(digits(2), device)
        lines = program.explain(timed=True)
        called = [x for x in lines if x.variant != "(nothing to do)"]
        assert (
            called and all(x.time_us > 0 for x in called) and all(x.time_us is None for x in lines if x not in called)
        )
        if device.memory.wraps:  # such a device measures its own limits or uses the host's
            assert all(x.share > 0 for x in called)
        conv = next(x for x in lines if x.kind == "conv2d")
        assert "F32[2, 1, 8, 8]" in conv.inputs and conv.nbytes > 4 * (2 * 64 + 2 * 16 * 64)


def test_a_trace(devices, tmp_path):
    program = compile(digits(2), devices[0])
    wanted = program.run(np.zeros((2, 1, 8, 8)))
    lines = program.trace(tmp_path / "trace.json")
    np.testing.assert_array_equal(program.outputs[0].numpy(), wanted)
    document = json.loads((tmp_path / "trace.json").read_text())
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    timed = [x for x in lines if x.time_us is not None]
    assert [e["name"] for e in events] == [f"{x.name}: {x.kind}" for x in timed] and len(events) > 3
    end = 0.0
    for event, line in zip(events, timed, strict=True):
        assert event["ts"] >= end and event["dur"] == line.time_us > 0
        assert event["pid"] == event["tid"] == 0
        assert event["args"]["variant"] == line.variant and event["args"]["bytes"] == line.nbytes
        assert event["args"]["outputs"] == line.outputs
        end = event["ts"] + event["dur"]
    names = {e["name"]: e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M"}
    assert names == {"process_name": devices[0].name, "thread_name": "default stream"}
    with pytest.raises(InvalidArgument, match="a file to write"):
        program.trace(tmp_path / "none" / "trace.json")


def test_a_graph_that_calls_nothing(devices):
    b = Builder("nothing")
    x = b.input("x", (2,))
    b.output(x)
    program = compile(b.graph, devices[0])
    assert program.explain(timed=True) == []


def test_the_command_line(devices, tmp_path, capsys, monkeypatch):
    file = tmp_path / "t.json"
    code, out, _ = command(capsys, "explain", "mlp", "--device", devices[0].name, "--json", "--trace", file, "--check")
    found = json.loads(out)
    assert code == 0 and found["first_wrong"] is None and len(found["checked"]) == len(found["operators"])
    assert all(x["time_us"] > 0 and x["memory"] and x["slots"][0]["nbytes"] for x in found["operators"])
    assert json.loads(file.read_text())["traceEvents"]
    code, out, err = command(capsys, "explain", "mlp", "--device", devices[0].name, "--time", "--check")
    assert code == 0 and "of limit" in out and "agree with their references" in err and "µs in all" in err
    from isokern.runtime.program import Program

    step = Program.step

    def wrong(self, op):
        step(self, op)
        if op.kind == "linear":
            self._context.tensors[op.outputs[0]].copy_from(np.ones(op.outputs[0].spec.shape))

    monkeypatch.setattr(Program, "step", wrong)
    code, out, err = command(capsys, "explain", "mlp", "--device", devices[0].name, "--check")
    assert code == 1 and "the first wrong operator is net.4" in err and "worst at [0, " in err
    code, out, _ = command(capsys, "explain", "mlp", "--device", devices[0].name, "--check", "--json")
    assert code == 1 and json.loads(out)["first_wrong"].startswith("net.4: linear by")
    assert mlp().graph.name == json.loads(out)["model"]
