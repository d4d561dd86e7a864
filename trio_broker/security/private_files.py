"""Files with keys, passwords and tokens: what others may read is refused, wherever one is named.

The rights of a group count as those of others, since it is not known who is in it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

OTHERS: Final = 0o077
"""The rights of anybody but the owner of a file."""


def read_private_file(path: str | Path) -> bytes:
    """Return what is in a file that its owner alone may read.

    Raises:
        PermissionError: others may read it; ``strerror`` says what to do.
        OSError: it cannot be read.
    """
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & OTHERS:
            raise PermissionError(errno.EACCES, f"others may read it (mode {mode & 0o777:o}): chmod 600", str(path))
        return file.read()
