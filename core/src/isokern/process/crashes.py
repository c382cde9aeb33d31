"""What is said when code of others ends the process: its name, which would not be told otherwise."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def name_at_exit(what: str) -> Iterator[None]:
    """While a block runs, have `os._exit` say on stderr that `what` ends the process; in this thread alone.

    Signals are left as they are: a host may handle them, and a library that the block loads may begin to.
    """
    owner, leave = (os.getpid(), threading.get_ident()), os._exit
    within = True

    def tell_and_leave(status: int) -> None:
        if within and (os.getpid(), threading.get_ident()) == owner:
            with contextlib.suppress(OSError):  # stderr is closed
                os.write(2, f"isokern: {what} ends the process by os._exit({status!r})\n".encode(errors="replace"))
        leave(status)

    os._exit = tell_and_leave  # type: ignore[assignment]
    try:
        yield
    finally:
        within = False
        if os._exit is tell_and_leave:
            os._exit = leave
