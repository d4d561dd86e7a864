"""Where files are made that need no disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""


def directory_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a new directory in memory, or on the disk where the machine has none there."""
    return tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
