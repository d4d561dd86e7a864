"""The file of a segment: whole writes or none, and regions that outlive it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trio_broker.runtime.real_disk import RealDisk, RealFileRegion
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log_file import LogFile


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    file = LogFile(RealDisk(), tmp_path / "0.log")
    file.create()
    return file


def test_a_short_write_is_continued(file: LogFile, monkeypatch: pytest.MonkeyPatch):
    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: real(fd, bytes(data)[: max(1, len(data) // 2)], at))
    file.append(b"0123456789", 0)
    file.append(b"abc", 10)
    assert Path(file.path).read_bytes() == b"0123456789abc"


def test_after_a_failed_write_the_file_ends_where_it_did(file: LogFile, monkeypatch: pytest.MonkeyPatch):
    real = os.pwrite
    file.append(b"good", 0)
    calls = []

    def half_then_full_disk(fd: int, data: bytes, position: int) -> int:
        calls.append(position)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:2], position)

    monkeypatch.setattr("os.pwrite", half_then_full_disk)
    with pytest.raises(OSError, match="No space") as caught:
        file.append(b"lost", 4)
    assert not isinstance(caught.value, StorageFailed)
    assert Path(file.path).read_bytes() == b"good"
    monkeypatch.undo()
    file.append(b"more", 4)
    assert Path(file.path).read_bytes() == b"goodmore"


def test_a_write_that_cannot_be_taken_back_is_final(file: LogFile, monkeypatch: pytest.MonkeyPatch):
    def broken(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.pwrite", broken)
    monkeypatch.setattr("os.ftruncate", broken)
    with pytest.raises(StorageFailed):
        file.append(b"x", 0)


def test_a_region_is_readable_after_the_file_was_released_and_deleted(file: LogFile):
    file.append(b"0123456789", 0)
    region = file.region(2, 5)
    assert isinstance(region, RealFileRegion)
    number = region.file.number
    file.release()
    Path(file.path).unlink()
    assert (len(region), region.read()) == (5, b"23456")
    assert os.pread(number, 1, 0) == b"0"
    del region
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_deleted_file_does_not_come_back_empty(file: LogFile):
    file.release()
    Path(file.path).unlink()
    with pytest.raises(FileNotFoundError):
        file.append(b"x", 0)
    assert not Path(file.path).exists()


def test_reading_without_waiting_gives_what_is_cached(file: LogFile):
    file.append(b"0123456789", 0)
    assert bytes(file.read(100, 4, nowait=True)) == b"456789"
    assert file.read(3, 0) == b"012"


def test_a_file_system_that_cannot_tell_what_is_cached_has_it_read_in_a_thread(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
):
    """As tmpfs: an error would take the whole data directory offline with the first read."""

    def unsupported(*args: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    file.append(b"0123456789", 0)
    monkeypatch.setattr("os.preadv", unsupported)
    with pytest.raises(BlockingIOError):
        file.read(3, 0, nowait=True)
    assert file.read(3, 0) == b"012"


def test_reading_a_segment_that_retention_has_just_renamed_makes_no_new_file(file: LogFile):
    file.release()
    Path(file.path).rename(file.path.with_name("0.log.deleted"))
    with pytest.raises(FileNotFoundError):
        file.read(10, 0)
    with pytest.raises(FileNotFoundError):
        file.region(0, 10)
    assert not Path(file.path).exists()
