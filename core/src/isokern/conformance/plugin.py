"""The pytest plug-in: `pytest --pyargs isokern.conformance --isokern-device cpu` runs each case as a test."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("isokern", "Isokern's conformance suite")
    group.addoption(
        "--isokern-device",
        action="append",
        default=[],
        metavar="D",
        help="device to judge, cpu or cpu:0; repeatable; all available by default",
    )
    group.addoption("--isokern-op", action="append", default=[], metavar="OP", help="only this operator; repeatable")
    group.addoption("--isokern-quick", action="store_true", help="a representative part of the cases")
    group.addoption(
        "--isokern-require",
        metavar="FILE",
        help="(operator, dtype) pairs that must run; `all` for every one",
    )
    group.addoption("--isokern-claimed", action="store_true", help="what the backend claims must run")


def pytest_sessionstart(session: pytest.Session) -> None:
    """End before collection if a named device (exit code 3) or operator (exit code 4) does not exist."""
    from ..status import DeviceNotAvailable, IsokernError

    if session.config.getoption("--isokern-device") or session.config.getoption("--isokern-op"):
        try:
            _choose(session.config)
        except IsokernError as error:
            pytest.exit(str(error), returncode=3 if isinstance(error, DeviceNotAvailable) else 4)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test per case for functions with a parameter `conformance_case`."""
    if "conformance_case" in metafunc.fixturenames:
        metafunc.parametrize("conformance_case", _parameters(metafunc.config))


def _choose(config: pytest.Config) -> tuple[list[Any], list[Any] | None]:
    """Return the devices and the operators (None: all) that the options name."""
    from ..backend.discovery import device, devices
    from ..ops import find

    named = config.getoption("--isokern-device")
    judged = [device(n) for n in named] if named else devices()
    return judged, [find(n) for n in config.getoption("--isokern-op")] or None


def _parameters(config: pytest.Config) -> list[Any]:
    from .derive import device_cases
    from .items import Item
    from .runtime.every import runtime_checks
    from .suite import quick

    judged, operators = _choose(config)
    parameters = []
    for d in judged:
        cases: list[Item] = [*device_cases(d, operators), *(runtime_checks() if operators is None else ())]
        chosen = quick(cases) if config.getoption("--isokern-quick") else cases
        parameters += [pytest.param((d, c), id=f"{d.name}/{c.id}") for c in chosen]
    if not parameters:
        skipped = pytest.mark.skip(reason="no device is available: install a backend, for instance isokern-cpu")
        parameters.append(pytest.param(None, marks=skipped, id="no-device"))
    return parameters
