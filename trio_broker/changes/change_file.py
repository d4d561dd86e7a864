"""``changes.jsonl`` in the first data directory: one JSON object a line, appended as changes are made.

A change is written again when more is known of it, its effect for example: the last line of a number counts. One other
line holds the static settings of the last start, which the next start compares its own with. A line that a crash cut
off is dropped at the next start; the file is bounded, and replaced by its newest half when it is full.

Everything here blocks.

Source: docs/formats/changes.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import attrs
import cattrs

from trio_broker.changes.change import Change
from trio_broker.runtime.disk import Disk, OpenMode, write_all, write_atomically
from trio_broker.runtime.workers import Workers

log = logging.getLogger(__name__)

FILE_NAME = "changes.jsonl"

PERMISSIONS = 0o600
"""A change names who made it and from where."""

MAX_FILE_BYTES = 10 * 1024 * 1024
"""About 20,000 changes, years of an operator's work; read in a second at a start, and kept in memory."""

SETTINGS = "static_settings"
"""The name that tells the line of the static settings from that of a change."""

# A line of a newer version may say more; what is unknown is left out.
converter = cattrs.Converter(detailed_validation=False)


@attrs.frozen
class StoredChanges:
    """What the file holds: the changes by number, oldest first, and the static settings of the last start."""

    changes: dict[int, Change]
    static_settings: Mapping[str, str] | None


class ChangeFile:
    """The file at ``path``, of which nothing need exist yet. ``workers`` write it."""

    def __init__(self, disk: Disk, path: PurePath, workers: Workers, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.disk = disk
        self.path = path
        self.workers = workers
        self.max_bytes = max_bytes
        self._size = 0

    def load(self) -> StoredChanges:
        """Read the file and cut off what is not a whole line; lines that cannot be understood are left out.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            content = self.disk.read_file(self.path)
        except FileNotFoundError:
            content = b""
        self._size = content.rfind(b"\n") + 1
        if self._size < len(content):
            log.warning("%s: dropped %d bytes of a line that was not finished", self.path, len(content) - self._size)
            self.disk.open(self.path, OpenMode.UPDATE).truncate(self._size)
        return self._decode(content[: self._size].splitlines())

    def _decode(self, lines: Iterable[bytes]) -> StoredChanges:
        changes: dict[int, Change] = {}
        settings: Mapping[str, str] | None = None
        unreadable = 0
        for line in lines:
            try:
                value = json.loads(line)
                if SETTINGS in value:
                    settings = converter.structure(value[SETTINGS], dict[str, str])
                else:
                    change = converter.structure(value, Change)
                    changes[change.number] = change
            except Exception:  # cattrs raises whatever the values make it raise
                unreadable += 1
        if unreadable:
            log.warning("%s: left out %d lines that could not be read", self.path, unreadable)
        return StoredChanges(dict(sorted(changes.items())), settings)

    def write(self, written: Sequence[Change], stored: StoredChanges, *, with_settings: bool) -> int | None:
        """Append ``written``, and the static settings if asked; replace a file that would get too large.

        Then it holds the settings and the newest changes of ``stored``, and this returns the number of the oldest.
        ``written`` is part of ``stored``.

        Raises:
            OSError: the disk is full or failed; the file is as it was, or ends in a line that the next start drops.
        """
        lines = b"".join([*map(encoded_change, written), *([encoded_settings(stored)] if with_settings else ())])
        if self._size + len(lines) <= self.max_bytes:
            self._append(lines)
            return None
        return self._replace(stored)

    def _append(self, lines: bytes) -> None:
        file = self.disk.open(self.path, OpenMode.CREATE, permissions=PERMISSIONS)
        try:
            write_all(file, lines, self._size)
            file.sync()
        except OSError:
            file.truncate(self._size)
            raise
        self._size += len(lines)

    def _replace(self, stored: StoredChanges) -> int | None:
        kept: list[bytes] = []
        size, oldest = 0, None
        for change in reversed(stored.changes.values()):
            line = encoded_change(change)
            size += len(line)
            if size > self.max_bytes // 2:
                break
            kept.append(line)
            oldest = change.number
        content = b"".join([encoded_settings(stored), *reversed(kept)])
        write_atomically(self.disk, self.path, content, permissions=PERMISSIONS)
        self._size = len(content)
        return oldest


def encoded_change(change: Change) -> bytes:
    return encoded(converter.unstructure(change))


def encoded_settings(stored: StoredChanges) -> bytes:
    return b"" if stored.static_settings is None else encoded({SETTINGS: dict(stored.static_settings)})


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
