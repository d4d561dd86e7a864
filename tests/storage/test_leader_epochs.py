"""Leader epochs: where each began, and Kafka's answers to "where does it end?"."""

from __future__ import annotations

import errno
from pathlib import Path, PurePath

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.leader_epochs import EpochEndOffset, EpochEntry, LeaderEpochs

UNKNOWN = EpochEndOffset(-1, -1)


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    epochs = LeaderEpochs(RealDisk(), tmp_path)
    for epoch, start in ((2, 10), (3, 20), (7, 30)):
        epochs.assign(epoch, start)
    return epochs


def test_file_is_kafkas_text(epochs: LeaderEpochs, tmp_path: Path):
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n3\n2 10\n3 20\n7 30\n"
    assert LeaderEpochs.load(RealDisk(), tmp_path).entries == epochs.entries


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, UNKNOWN),
        (1, EpochEndOffset(1, 10)),
        (2, EpochEndOffset(2, 20)),
        (3, EpochEndOffset(3, 30)),
        (5, EpochEndOffset(3, 30)),
        (7, EpochEndOffset(7, 99)),
        (8, UNKNOWN),
    ],
)
def test_end_offsets_are_those_kafka_gives(epochs: LeaderEpochs, epoch: int, answer: EpochEndOffset):
    assert epochs.end_offset_for(epoch, 99) == answer


def test_without_entries_every_epoch_is_unknown(tmp_path: Path):
    assert LeaderEpochs(RealDisk(), tmp_path).end_offset_for(0, 5) == UNKNOWN
    assert LeaderEpochs(RealDisk(), tmp_path).latest_epoch is None


def test_assigning_the_latest_epoch_again_changes_nothing(epochs: LeaderEpochs):
    assert not epochs.assign(7, 50)
    assert epochs.entries[-1] == EpochEntry(7, 30)


def test_assigning_drops_entries_that_contradict(epochs: LeaderEpochs):
    epochs.assign(5, 25)
    assert list(epochs.entries) == [EpochEntry(2, 10), EpochEntry(3, 20), EpochEntry(5, 25)]
    epochs.assign(8, 15)
    assert list(epochs.entries) == [EpochEntry(2, 10), EpochEntry(8, 15)]


def test_an_epoch_that_could_not_be_written_is_not_known(
    epochs: LeaderEpochs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the next try would find nothing to do, and batches of an epoch without an entry would follow."""
    before = epochs.entries

    def full(disk: RealDisk, old: PurePath, new: PurePath) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "rename", full)
        with pytest.raises(OSError, match="No space"):
            epochs.assign(9, 40)
    assert epochs.entries == before
    assert epochs.assign(9, 40)
    assert LeaderEpochs.load(RealDisk(), tmp_path).latest_epoch == 9


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (19, 2), (20, 3), (1000, 7)])
def test_epoch_for_offset(epochs: LeaderEpochs, offset: int, epoch: int | None):
    assert epochs.epoch_for_offset(offset) == epoch


def test_a_noted_epoch_is_written_by_the_next_assignment(epochs: LeaderEpochs, tmp_path: Path):
    epochs.note(9, 40)
    assert epochs.latest_epoch == 9
    assert not epochs.is_written
    assert LeaderEpochs.load(RealDisk(), tmp_path).latest_epoch == 7
    assert epochs.assign(9, 40)
    assert epochs.is_written
    assert LeaderEpochs.load(RealDisk(), tmp_path).latest_epoch == 9
    assert not epochs.assign(9, 40)


def test_truncating_the_end_forgets_what_begins_there(epochs: LeaderEpochs):
    assert epochs.truncate_from_end(30)
    assert epochs.latest_epoch == 3
    assert not epochs.truncate_from_end(21)


def test_truncating_the_start_keeps_the_spanning_epoch(epochs: LeaderEpochs):
    assert epochs.truncate_from_start(25)
    assert epochs.entries == (EpochEntry(3, 25), EpochEntry(7, 30))
    assert not epochs.truncate_from_start(25)
    assert not epochs.truncate_from_start(3)


@pytest.mark.parametrize("content", [b"0\n1\n5\n", b"0\n2\n5 10\n4 20\n", b"0\n2\n5 10\n6 10\n", b"0\n1\na b\n"])
def test_malformed_files_are_refused(tmp_path: Path, content: bytes):
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs.load(RealDisk(), tmp_path)
