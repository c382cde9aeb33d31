"""Test `isokern generate`, `chat` and `serve` with types mixed as stock quantisers mix them, and a real vocabulary."""

import pytest
from quantised_files import check_commands, choose_q4_k_m, write

for package in ("tokenizers", "jinja2", "starlette", "uvicorn"):
    pytest.importorskip(package)


def test_the_commands_write_what_float64_does(cpu, tmp_path):
    gguf = write(tmp_path / "q4_k_m.gguf", choose_q4_k_m)
    assert [t.type for t in gguf.tensors.values()].count("Q6_K") == 3
    check_commands(tmp_path / "q4_k_m.gguf")
