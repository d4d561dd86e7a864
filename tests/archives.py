"""Archives that tests unpack."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a gzipped tar file. Python 3.11 has filters since 3.11.4 only, and Debian 12 comes with 3.11.2."""
    with tarfile.open(archive, "r:gz") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(directory, filter="data")
        else:
            tar.extractall(directory)
