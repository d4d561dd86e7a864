"""What is no regular file is refused by the disk, and nobody waits for it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from trio_broker.runtime.disk import OpenMode, write_atomically
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import is_disk_failure


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


KINDS = {pipe: errno.EINVAL, unix_socket: errno.EINVAL, device: errno.EINVAL, directory: errno.EISDIR}


@pytest.fixture(params=KINDS, ids=lambda make: make.__name__)
def make(request):
    return request.param


@pytest.fixture
def special(tmp_path: Path, make) -> Path:
    make(tmp_path / "special")
    return tmp_path / "special"


@pytest.mark.parametrize(
    "use",
    [
        lambda disk, path: disk.read_file(path),
        lambda disk, path: disk.open(path, OpenMode.READ),
        lambda disk, path: disk.open(path, OpenMode.UPDATE),
        lambda disk, path: disk.open(path, OpenMode.CREATE),
        lambda disk, path: disk.lock(path),
    ],
    ids=["read_file", "read", "update", "create", "lock"],
)
def test_it_is_refused_by_an_error_that_names_it_and_blames_no_disk(
    special: Path, make, use: Callable[[RealDisk, Path], object]
):
    with pytest.raises(OSError, match="special") as raised:
        use(RealDisk(), special)
    assert raised.value.errno == KINDS[make]
    assert not is_disk_failure(raised.value)


def test_its_length_is_not_that_of_an_empty_file(tmp_path: Path):
    pipe(tmp_path / "special")
    with pytest.raises(OSError, match="Not a regular file"):
        RealDisk().status(tmp_path / "special")


def test_no_checkpoint_is_written_into_a_pipe(tmp_path: Path):
    pipe(tmp_path / "checkpoint.tmp")
    with pytest.raises(OSError, match="Not a regular file"):
        write_atomically(RealDisk(), tmp_path / "checkpoint", b"0\n")
    assert not (tmp_path / "checkpoint").exists()


def test_a_whole_file_is_read_however_it_is_reached(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert RealDisk().read_file(tmp_path / "link") == b"x" * 100_000
