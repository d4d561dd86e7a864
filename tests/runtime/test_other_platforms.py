"""What a file does where the system calls of Linux are missing, as on macOS."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from trio_broker.runtime import real_disk
from trio_broker.runtime.disk import OpenMode
from trio_broker.runtime.real_disk import RealDisk


def test_a_sync_reaches_the_drive_where_fsync_ends_at_its_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = []
    monkeypatch.setattr(real_disk, "F_FULLFSYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda number, operation: asked.append((number, operation)))
    file = RealDisk().open(tmp_path / "a", OpenMode.CREATE)
    file.write(b"a", 0)
    file.sync()
    assert asked == [(file.number, 51)]


def test_space_is_taken_by_zeros_where_it_cannot_be_allocated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(real_disk, "HAS_FALLOCATE", False)
    file = RealDisk().open(tmp_path / "a", OpenMode.CREATE)
    file.write(b"kept", 0)
    size = 2 * len(real_disk.ZEROS) + 1
    file.preallocate(size)
    assert file.read(size + 1, 0) == b"kept".ljust(size, b"\0")
