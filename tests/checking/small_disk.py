"""A file system of its own for one broker, in memory and small, which a test fills. Only root may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

MEGABYTES: Final = 64

PIECE: Final = bytes(64 * 1024)


class SmallDisk:
    """Mounted on ``directory``, which is made; ``is_mounted`` is false where that is not allowed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(directory)]
        self.is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    @property
    def _filler(self) -> Path:
        return self.directory / "filler"

    def fill(self) -> None:
        """Take all the room that is left."""
        with self._filler.open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                os.write(filler.fileno(), PIECE)

    def empty(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", str(self.directory)], check=True)
