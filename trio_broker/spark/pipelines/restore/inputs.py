"""The files that a restore reads, as they were when it began: a resumed job must read the same ones.

    <checkpoint>/inputs.json        {"version": 1, "files": {"/backup/orders/a.parquet": 4711}, "digest": "…"}

Files are identified by their full names and sizes. The digest covers their footers: which rows are where.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import attrs

from trio_broker.runtime.disk import write_atomically
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.pipelines.restore.parquet_parts import RestoreError, RowGroupPart

INPUTS_FILE: Final = "inputs.json"

VERSION: Final = 1


@attrs.frozen
class Inputs:
    """Names and sizes (bytes) of files, and the digest of the parts in them."""

    sizes: Mapping[str, int]
    digest: str

    @classmethod
    def read(cls, checkpoint: Path) -> Self:
        """Return the inputs that a job stored when it began.

        Raises:
            RestoreError: it cannot be read.
        """
        path = checkpoint / INPUTS_FILE
        try:
            found = json.loads(path.read_bytes())
            if found["version"] != VERSION:
                raise RestoreError(f"{path}: version {found['version']!r}, expected {VERSION}")
            return cls({str(name): int(size) for name, size in found["files"].items()}, str(found["digest"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RestoreError(f"{path}: damaged: {error!r}") from error

    def write(self, checkpoint: Path) -> None:
        """Store the inputs.

        Raises:
            RestoreError: they cannot be written.
        """
        path = checkpoint / INPUTS_FILE
        document = {"version": VERSION, "files": dict(self.sizes), "digest": self.digest}
        try:
            write_atomically(RealDisk(), path, json.dumps(document, indent=1).encode() + b"\n")
        except OSError as error:
            raise RestoreError(f"{path}: {error.strerror}") from error

    def require_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise ``RestoreError`` unless ``sizes``, those of the files now, are the same."""
        for name in sorted(self.sizes.keys() | sizes.keys()):
            before, now = self.sizes.get(name), sizes.get(name)
            if before is None:
                raise _changed(f"{name} was not there")
            if now is None:
                raise _changed(f"{name} is gone")
            if before != now:
                raise _changed(f"{name} has {now} bytes, not {before}")

    def require_digest(self, digest: str) -> None:
        """Raise ``RestoreError`` unless ``digest``, that of the files now, is the same."""
        if digest != self.digest:
            raise _changed("their row groups are others")


def _changed(how: str) -> RestoreError:
    return RestoreError(f"the files have changed since this restore began: {how}; name another checkpoint directory")


def sizes_of(files: Iterable[Path]) -> dict[str, int]:
    """Return the size of each file in bytes, by its name.

    Raises:
        RestoreError: one is gone.
    """
    try:
        return {str(path): path.stat().st_size for path in files}
    except OSError as error:
        raise RestoreError(f"{error.filename}: {error.strerror}") from error


def digest_of(groups: Sequence[tuple[RowGroupPart, ...]]) -> str:
    """Return a digest of all parts in their order."""
    digest = hashlib.sha256()
    for group in groups:
        for part in group:
            digest.update(repr(attrs.astuple(part)).encode())
        digest.update(b"\n")
    return digest.hexdigest()
