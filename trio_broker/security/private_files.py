"""Files with keys, passwords and tokens: what others may read is refused wherever one is named, and never written.

The rights of a group count as those of others, since it is not known who is in it.
"""

from __future__ import annotations

import errno
import os
import tempfile
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


def write_new_private_file(path: Path, text: str) -> None:
    """Write a file that was not there, in UTF-8.

    Raises:
        FileExistsError: it was there.
        OSError: it cannot be written.
    """
    # The mode is given with the creation: a file that is readable for a moment may be opened in that moment.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read, in place of the one that is there: readers see one of the two whole.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink()
        raise
