"""Files that are made once and found again by key: whole or not there, whoever else writes them, and checked before they are believed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

DIGEST = 32  # bytes


class Store:
    """A folder of files by key (letters and digits). `damaged` counts those that were not what was written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged = 0

    def get(self, key: str) -> bytes | None:
        """What was put there; None where nothing was, or where it is damaged or of another key."""
        try:
            kept = (self.folder / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            kept = b""
        if kept[:DIGEST] == _digest(key, kept[DIGEST:]):
            return kept[DIGEST:]
        self.damaged += 1
        return None

    def put(self, key: str, content: bytes) -> None:
        """Write it, over whatever is there; a folder that cannot be written to costs time later, nothing else."""
        name = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                name = file.name
                file.write(_digest(key, content) + content)
            os.replace(name, self.folder / key)
        except OSError:
            if name is not None:
                Path(name).unlink(missing_ok=True)


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()
