"""`isokern demo`: a trained network reads handwritten digits through the descriptor API, on one device or on all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..status import DeviceNotAvailable, InvalidArgument, NotImplementedOnDevice
from ._output import Json, complain, console, emit, note, quiet, table

if TYPE_CHECKING:
    from ..demo.network import Classification

AT_LEAST = 0.96  # held-out accuracy below which a device has computed something else
FAILED = 1


def demo(
    device: Annotated[str, typer.Option("--device", help="A device, or 'all' for all that are available.")] = "all",
    batch: Annotated[int | None, typer.Option("--batch", help="Images in a batch; else all at once.")] = None,
    json: Json = False,
) -> None:
    """Classify 450 held-out images of handwritten digits; exit 1 if a device gets less than 96 % right."""
    if batch is not None and batch < 1:
        raise InvalidArgument("demo", f"--batch {batch}", allowed="from 1")
    with quiet(json):
        outcomes = run(device, batch)
    if json:
        emit([row(o, outcomes) for o in outcomes])
    else:
        _show(outcomes)
    wrong = [o for o in outcomes if not o.accuracy >= AT_LEAST]
    for o in wrong:
        complain(
            f"demo: {o.device} classifies {o.accuracy:.2%} of the held-out images rightly;"
            f" at least {AT_LEAST:.0%} is due"
        )
    if wrong:
        raise typer.Exit(FAILED)


def run(device: str, batch: int | None) -> list[Classification]:
    """Return one outcome for each device; of `all`, those that lack an operator are noted and left out.

    If none remains, that is an error.
    """
    from ..backend.discovery import device as find_device, devices
    from ..demo.network import classify

    if device != "all":
        return [classify(find_device(device), batch)]
    outcomes, refused = [], []
    for candidate in devices() or [find_device(None)]:  # without devices, this raises with every backend's reason
        try:
            outcomes.append(classify(candidate, batch))
        except NotImplementedOnDevice as error:
            refused.append(error)
            note(f"demo: {candidate.name} is left out: {error}")
    if not outcomes:
        raise DeviceNotAvailable("demo", "no available device has the network's operators", hint=str(refused[-1]))
    return outcomes


def row(outcome: Classification, others: list[Classification]) -> dict[str, Any]:
    """Return the JSON object of one device; `differences` is the largest |logit difference| from each other device."""
    from ..demo.network import difference

    return {
        "device": outcome.device,
        "accuracy": outcome.accuracy,
        "images": outcome.images,
        "ms_per_image": 1e3 * outcome.seconds / outcome.images,
        "max_abs_diff": outcome.max_abs_diff,
        "differences": {o.device: difference(outcome.logits, o.logits) for o in others if o is not outcome},
    }


def _show(outcomes: list[Classification]) -> None:
    from ..demo.digits import load_weights

    lines = []
    for o in outcomes:
        data = row(o, outcomes)
        right = round(o.accuracy * o.images)
        between = ", ".join(f"{v:.1e} from {k}" for k, v in data["differences"].items()) or "-"
        lines.append(
            [
                o.device,
                f"{o.accuracy:.2%}",
                f"{right} of {o.images}",
                f"{data['ms_per_image']:.4f}",
                f"{o.max_abs_diff:.1e}",
                between,
            ]
        )
    columns = ["device", "accuracy", "right", "ms per image", "logits off float64 by", "off other devices by"]
    table("Handwritten digits, held-out images", columns, lines, right=columns[1:5])
    console().print(f"the training run reached {float(load_weights()['accuracy']):.2%}")
