"""Cases that check only the answers of create: errors that it must raise, and claims that must be true."""

from __future__ import annotations

from ..backend import Device
from ..backend.dispatch import consider, refusal
from ..call.descriptor import Descriptor
from ..declare.samples import describe
from ..dtypes import DType
from ..layout import TensorDesc
from ..oracle.cases import Case, samples
from ..oracle.verdicts import Failure, Verdict
from ..status import IsokernError


def check_error(device: Device, case: Case) -> None:
    """Check that create refuses the call with the declared error, naming the operator and the problem."""
    wanted = case.error
    assert wanted is not None
    op = case.operator
    types = {v: wanted.dtypes.get(v, allowed[0]) for v, allowed in op.signature.types.items()}

    def dtype_of(name: str) -> DType:
        operand = next((o for o in (*op.signature.inputs, *op.signature.outputs) if o.name == name), None)
        plain = (
            next(iter(types.values()))
            if operand is None
            else types.get(operand.type) or op.signature.dtypes_of(operand)[0]
        )
        return wanted.dtypes.get(name, plain)

    inputs: list[TensorDesc | None] = []
    names = [o.name for o in op.signature.inputs]
    for name in [*names, *(n for n in wanted.shapes if n not in names)]:
        given = wanted.shapes.get(name)
        shapes = given if isinstance(given, list) else [given]
        inputs += [None if s is None else TensorDesc(dtype_of(name), s) for s in shapes]
    while inputs and inputs[-1] is None:
        inputs.pop()
    outputs = [
        TensorDesc(dtype_of(o.name), wanted.outputs[o.name]) for o in op.signature.outputs if o.name in wanted.outputs
    ]
    try:
        Descriptor.of(op, inputs, outputs or None, device=device, dtypes=types, **wanted.attrs)
    except wanted.error as error:
        if not error.problem or op.name not in str(error):
            raise Failure(
                Verdict.FAIL_ERROR, f"the message does not name the operator and the problem: {error}"
            ) from None
        return
    except IsokernError as error:
        raise Failure(
            Verdict.FAIL_ERROR, f"{type(error).__name__} instead of {wanted.error.__name__}: {error}"
        ) from None
    raise Failure(Verdict.FAIL_ERROR, f"create accepted what {wanted.error.__name__} must refuse")


def check_claim(device: Device, case: Case) -> None:
    """Check that the first sample's answer, which tables of supported dtypes show, holds for all samples.

    If the first is refused, no other sample may be accepted. Nothing is compiled: calls do that.
    """
    answers: dict[str, str] = {}
    for sample in samples(case.operator, "small", case.bound_types):
        resolved = case.operator.resolve(*describe(case.operator, sample, case.bound_types), sample.attrs)
        _, chosen, considered = consider(device, resolved)
        answers[sample.text] = refusal(device, case.operator.stem, considered) if chosen is None else ""
    first, reason = next(iter(answers.items()))
    taken = [text for text, no in answers.items() if not no]
    if reason and taken:
        raise Failure(
            Verdict.FAIL_CLAIM,
            f"{case.dtype} counts as refused, for {first} is ({reason}), and {len(taken)} other samples are taken:"
            f" {taken[0]}",
        )
    if reason:
        raise Failure(Verdict.UNSUPPORTED, reason)
