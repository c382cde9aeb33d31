"""Faults planted in a kernel."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Planted:
    """An edit of the kernel in `file`, which includes `headers`, `old` to `new`.

    `told` matches the error, where {at} stands for the line.
    """

    file: str
    kernel: str
    name: str
    old: str
    new: str
    told: str = ""
    headers: tuple[Path, ...] = ()

    def plant(self, folder):
        """Write the faulty kernel to a folder, and return the folder."""
        assert self.kernel.count(self.old) == 1
        folder.mkdir(exist_ok=True)
        for header in self.headers:
            shutil.copy(header, folder)
        (folder / self.file).write_text(self.kernel.replace(self.old, self.new), encoding="utf-8")
        return folder

    @property
    def expected(self):
        line = self.kernel[: self.kernel.index(self.old)].count("\n") + 1
        return self.told.replace("{at}", rf"{self.file}:{line}".replace(".", r"\."))
