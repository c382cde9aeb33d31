"""Programs of PoCL are built without binaries, for which it would compile each of them once more."""

from collections.abc import Iterator

import pytest

import isokern


@pytest.fixture(scope="session", autouse=True)
def settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOKERN_OPENCL_BINARIES", "0")
        isokern.backends()
        yield
