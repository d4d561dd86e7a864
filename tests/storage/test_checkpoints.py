"""Checkpoint files: Kafka's text format, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import write_atomically
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import checkpoints
from trio_broker.storage.errors import CorruptCheckpoint


def test_offset_checkpoint_is_kafkas_text(tmp_path: Path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    checkpoints.write_offsets(RealDisk(), path, {TopicPartition("b-c", 1): 7, TopicPartition("a", 0): 12345678901})
    assert path.read_bytes() == b"0\n2\na 0 12345678901\nb-c 1 7\n"
    assert checkpoints.read_offsets(RealDisk(), path) == {
        TopicPartition("a", 0): 12345678901,
        TopicPartition("b-c", 1): 7,
    }


def test_missing_and_empty_checkpoints_have_no_entries(tmp_path: Path):
    path = tmp_path / "checkpoint"
    assert checkpoints.read_offsets(RealDisk(), path) == {}
    path.write_bytes(b"")
    assert checkpoints.read_offsets(RealDisk(), path) == {}


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"0\n", b"\xff\n0\n", b"0\nx\n", b"0\n0\na 0 1\n"],
)
def test_malformed_checkpoints_are_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_offsets(RealDisk(), path)


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "checkpoint"
    write_atomically(RealDisk(), path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(5, "no disk")

    monkeypatch.setattr("os.fdatasync", fail)
    with pytest.raises(OSError, match="no disk"):
        write_atomically(RealDisk(), path, b"new")
    assert path.read_bytes() == b"old"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import os

    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda fd, data, position: real(fd, bytes(data[:3]), position))
    path = tmp_path / "checkpoint"
    write_atomically(RealDisk(), path, b"0123456789")
    assert path.read_bytes() == b"0123456789"
