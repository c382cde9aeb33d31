"""A stand-in for cublasLt on this machine, with CUBLAS's documented interface on the emulated GPU's memory and streams.

It refuses what the real library refuses: attributes of the wrong size, unknown handles, addresses that are less aligned
than was promised, and a workspace that is too small.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import ml_dtypes
import numpy as np

OK, INVALID, UNSUPPORTED = 0, 7, 15
TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
SIZES = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8},
    "MatrixLayout": {5: 4, 6: 8},
    "MatmulPreference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}
EPILOGUES = {1, 2, 4, 6}  # plain, relu, bias, both
NEEDED = 640  # bytes of workspace for its only algorithm


class Library:
    """What ctypes.CDLL returns for libcublasLt; `log` lists the calls, and `refuse` maps a call to its failure."""

    def __init__(self, sim: Any) -> None:
        self.sim, self.log, self.refuse = sim, [], {}
        self._made: dict[int, dict[Any, Any]] = {}
        self._numbers = itertools.count(1)
        self.cublasLtGetStatusString = lambda status: f"status {status.value}".encode()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublasLt"):
            raise AttributeError(name)
        what = name.removeprefix("cublasLt")

        def call(*arguments: Any) -> int:
            self.log.append(what)
            if what in self.refuse:
                return self.refuse[what]
            for kind in SIZES:
                if (
                    what.startswith(kind)
                    and what != "MatmulAlgoGetHeuristic"
                    and what.removeprefix(kind) in ("Create", "SetAttribute", "Destroy")
                ):
                    return getattr(self, f"_{what.removeprefix(kind).lower()}")(kind, *arguments)
            return getattr(self, f"_{what.lower()}")(*arguments)

        return call

    @property
    def alive(self) -> int:
        """The number of objects that were created and not destroyed."""
        return len(self._made)

    def _create(self, kind: Any, out: Any = None, *given: Any) -> int:
        if out is None:  # cublasLtCreate has no kind in its name
            kind, out = "Handle", kind
        number = next(self._numbers)
        self._made[number] = {"kind": kind, "given": [g.value for g in given]}
        out._obj.value = number
        return OK

    def _destroy(self, kind: str, raw: Any) -> int:
        return OK if self._made.pop(raw.value)["kind"] == kind else INVALID

    def _setattribute(self, kind: str, raw: Any, attribute: Any, value: Any, size: Any) -> int:
        known = self._made[raw.value]
        if (
            known["kind"] != kind
            or SIZES[kind].get(attribute.value) != size.value
            or ctypes.sizeof(value._obj) != size.value
        ):
            return INVALID
        known[attribute.value] = value._obj.value
        return OK

    def _of(self, raw: Any, kind: str) -> dict[Any, Any]:
        found = self._made[raw.value]
        assert found["kind"] == kind
        return found

    def _matmulalgogetheuristic(
        self, handle: Any, desc: Any, a: Any, b: Any, c: Any, d: Any, wish: Any, asked: Any, found: Any, count: Any
    ) -> int:
        self._of(handle, "Handle")
        what, wanted = self._of(desc, "MatmulDesc"), self._of(wish, "MatmulPreference")
        if what[7] not in EPILOGUES or (what[7] & 4 and not what.get(8)):
            return INVALID
        if (
            wanted[3] != 3
            or wanted[1] < NEEDED
            or not self._fits(what, *(self._of(x, "MatrixLayout") for x in (a, b, c, d)))
        ):
            return UNSUPPORTED
        found._obj.algorithm.data[:] = [7, wanted[5], wanted[6], wanted[7], wanted[8], 0, 0, 0]
        found._obj.workspace, found._obj.state, count._obj.value = NEEDED, OK, 1
        return OK

    def _fits(self, what: Any, a: Any, b: Any, c: Any, d: Any) -> bool:
        (rows_a, cols_a), (rows_b, cols_b) = (
            (x["given"][1:3][::-1] if t else x["given"][1:3]) for x, t in ((a, what.get(3)), (b, what.get(4)))
        )
        leads = all(x["given"][3] >= x["given"][1] for x in (a, b, c, d))
        batches = {x.get(5, 1) for x in (a, b, c, d)}
        return (
            leads and len(batches) == 1 and cols_a == rows_b and d["given"][1:3] == [rows_a, cols_b] == c["given"][1:3]
        )

    def _matrices(self, address: int, layout: Any) -> Any:
        number, rows, cols, lead = layout["given"]
        batch, apart = layout.get(5, 1), layout.get(6, 0)
        item = np.dtype(TYPES[number]).itemsize
        most = ((batch - 1) * abs(apart) + (cols - 1) * lead + rows) * item
        low = address + min(0, (batch - 1) * apart) * item
        flat = np.frombuffer((ctypes.c_char * most).from_address(low), TYPES[number])
        start = flat[(address - low) // item :]
        return np.lib.stride_tricks.as_strided(
            start, (batch, rows, cols), (apart * item, item, lead * item), writeable=True
        )

    def _matmul(
        self, handle: Any, desc: Any, alpha: Any, a: Any, a_as: Any, b: Any, b_as: Any, beta: Any,
        c: Any, c_as: Any, d: Any, d_as: Any, algorithm: Any, workspace: Any, size: Any, stream: Any,
    ) -> int:  # fmt: skip
        self._of(handle, "Handle")
        what = dict(self._of(desc, "MatmulDesc"))
        layouts = [dict(self._of(x, "MatrixLayout")) for x in (a_as, b_as, c_as, d_as)]
        addresses = [x.value for x in (a, b, c, d)]
        seven, *alignments = algorithm._obj.data[:5]
        bias = what.get(8)
        if (
            seven != 7
            or any(at % by for at, by in zip(addresses, alignments, strict=True))
            or (bias or 0) % alignments[3]
        ):
            return INVALID
        if size.value < NEEDED or not workspace.value or workspace.value % 256:
            return INVALID
        scales = alpha._obj.value, beta._obj.value
        scratch = workspace.value
        # As on an H200: its kernels for 16-bit matrices that are not aligned add the bias to rounded products
        y_rounds = layouts[3]["given"][0] in (2, 14) and any(
            n * 2 % 16 for layout in layouts for n in (layout["given"][3], layout.get(6, 0))
        )

        @np.errstate(all="ignore")
        def run(*_: Any) -> None:
            ctypes.memset(scratch, 0xA5, NEEDED)
            m, n, k, made = (self._matrices(at, layout) for at, layout in zip(addresses, layouts, strict=True))
            wide = np.float64
            m, n = (
                x.astype(wide).swapaxes(1, 2) if t else x.astype(wide) for x, t in ((m, what.get(3)), (n, what.get(4)))
            )
            y = scales[0] * np.matmul(m, n)
            if scales[1]:
                y = y + scales[1] * k.astype(wide)
            if y_rounds:
                y = y.astype(made.dtype).astype(wide)
            if what[7] & 4:
                length, element = made.shape[1], made.dtype
                held = (ctypes.c_char * (length * element.itemsize)).from_address(bias)
                y = y + np.frombuffer(held, element).astype(wide)[:, None]
            if what[7] & 2:
                y = np.where(y < 0, 0, y)
            made[...] = y.astype(made.dtype)

        self.sim.launch(run, 1, 1, _Nothing(), stream.value)
        return OK


class _Nothing:
    address = 0
