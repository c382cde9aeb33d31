"""Test several devices in one process and one context."""

CODE = """
import numpy as np, isokern
from isokern.backend.discovery import devices

every = devices()
assert len(every) == 3 and len({d.context.int_ptr for d in every}) == 1
x = np.random.default_rng(1).standard_normal((64, 100)).astype(np.float32)
w = np.linspace(0.5, 2, 100, dtype=np.float32)
first = isokern.tensor(x, device=every[0])
weights = isokern.tensor(w, device=every[0])
copied = [d.memory.copied for d in every]
streams = [d.stream() for d in every]
results = []
for device, stream in zip(every, streams):
    with stream:
        y = isokern.softmax(first.to_device(device))
        results.append(isokern.rms_norm(y, weights.to_device(device)))
back = [r.to_device(every[0]) for r in results]
chain = first
for device in (*every, *every):
    chain = isokern.add(chain.to_device(device), 1.0)
assert [d.memory.copied - c for d, c in zip(every, copied)] == COUNTED, "copies went by the host"
values = [b.numpy() for b in back]
assert all((v == values[0]).all() for v in values) and np.isfinite(values[0]).all()
assert np.allclose(chain.numpy(), x + 6, atol=1e-5)
for d in every:
    d.synchronize()
try:
    isokern.add(first, results[1])
    raise SystemExit("not refused")
except isokern.InvalidArgument as error:
    assert "opencl:1" in str(error)
event = streams[1].record()
streams[2].wait(event)
print("done")
"""


def test_devices_of_one_context_copy_to_each_other(run):
    # the host writes the scalar of `add` to each device, 4 bytes that are kept
    status, text = run(CODE.replace("COUNTED", "[4, 4, 4]"), POCL_DEVICES="basic basic pthread")
    assert (status, text) == (0, "done\n"), text


def test_in_buffers_of_the_driver_too(run):
    code = "from isokern_opencl import devices; devices.computes_in_host_memory = lambda *a: False\n"
    status, text = run(code + CODE.replace("COUNTED", "[4, 4, 4]"), POCL_DEVICES="basic basic pthread")
    assert (status, text) == (0, "done\n"), text
