"""Which leader epoch began at which offset of one partition: the ``leader-epoch-checkpoint`` file.

A follower, and a consumer after a change of leader, ask "where does epoch e end in your log?" and cut their own idea
of the log at the answer; this table gives it. Entries are (epoch, start offset), both strictly increasing. An entry
is in memory from the beginning of its epoch, so that an empty partition has an epoch too, and on disk before the first
batch of its epoch is appended, since a batch without its entry could not be truncated by epoch. An epoch without a
batch may be forgotten: no reader holds a record of it.

Source: Kafka's LeaderEpochFileCache; KIP-101, KIP-279; docs/formats/checkpoints.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import PurePath

import attrs

from trio_broker.runtime.disk import Disk, write_atomically
from trio_broker.storage import checkpoints, file_names
from trio_broker.storage.errors import CorruptCheckpoint

UNDEFINED_EPOCH = -1
"""Stands for no epoch, in requests and answers."""

UNDEFINED_EPOCH_OFFSET = -1
"""The end offset of an epoch nobody knows."""


@attrs.frozen
class EpochEntry:
    """``epoch`` began with the batch at ``start_offset``."""

    epoch: int
    start_offset: int


@attrs.frozen
class EpochEndOffset:
    """The largest known epoch not above the one asked for, and where it ends (exclusive); -1 and -1 if unknown."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log, in memory, and their file.

    The list of entries is replaced and never changed, so ``is_written`` is a comparison of lists by identity, and a
    worker thread may write one (``write_file``) while others are made.
    """

    def __init__(self, disk: Disk, directory: PurePath, entries: Iterable[EpochEntry] = ()) -> None:
        self.disk = disk
        self.directory = directory
        self._entries: list[EpochEntry] = list(entries)
        self._written = self._entries

    @classmethod
    def load(cls, disk: Disk, directory: PurePath) -> LeaderEpochs:
        """Read the checkpoint in a partition's directory; no file means no epochs yet.

        Raises:
            CorruptCheckpoint: the file is malformed, or its epochs and offsets do not both grow.
        """
        path = directory / file_names.LEADER_EPOCH_CHECKPOINT
        entries: list[EpochEntry] = []
        for line in checkpoints.read_checkpoint(disk, path):
            try:
                epoch, start_offset = (int(word) for word in line.split())
            except ValueError as error:
                raise CorruptCheckpoint(f"{path}: {line!r} is not an epoch and an offset") from error
            if entries and (epoch <= entries[-1].epoch or start_offset <= entries[-1].start_offset):
                raise CorruptCheckpoint(f"{path}: {line!r} does not follow {entries[-1]}")
            entries.append(EpochEntry(epoch, start_offset))
        return cls(disk, directory, entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch, None before the first one."""
        return self._entries[-1].epoch if self._entries else None

    @property
    def is_written(self) -> bool:
        """Whether the file says what memory says."""
        return self._written is self._entries

    def has(self, epoch: int) -> bool:
        """Whether ``epoch`` is one of them."""
        return any(entry.epoch == epoch for entry in self._entries)

    @property
    def written_start_offset(self) -> int | None:
        """Where the epochs in the file begin, None where it has none."""
        written = self._written
        return written[0].start_offset if written else None

    def is_latest_written(self, epoch: int) -> bool:
        """Whether ``epoch`` is the newest, in the file too; an epoch that was only noted is in memory alone."""
        entries, written = self._entries, self._written
        return bool(entries) and bool(written) and entries[-1].epoch == epoch == written[-1].epoch

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that ``epoch`` begins at ``start_offset``; the file is durable when this returns. Blocks on fsync.

        Entries that contradict the new one (an epoch or a start offset not below it) are dropped: they belong to a
        history that was truncated. Returns whether anything was written.

        Raises:
            OSError: the file could not be written; nothing has changed.
        """
        assert epoch >= 0, f"epoch {epoch}"
        assert start_offset >= 0, f"start offset {start_offset}"
        entries = _with(self._entries, EpochEntry(epoch, start_offset))
        if entries is self._written:
            return False
        self.write_file(entries)
        self._entries = self._written = entries
        return True

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """Let these be all epochs; ``write`` is the caller's."""
        self._entries = list(entries)

    def note(self, epoch: int, start_offset: int) -> None:
        """As ``assign``, but only in memory: what needs the entry on disk assigns it again, or calls ``write``."""
        self._entries = _with(self._entries, EpochEntry(epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return where ``epoch`` ends: the start of the next larger one, or the log end for the latest."""
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        if epoch == self._entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if higher == len(self._entries):
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        if higher == 0:
            # An epoch older than all we know: everything of it lies before the first entry.
            return EpochEndOffset(epoch, self._entries[0].start_offset)
        return EpochEndOffset(self._entries[higher - 1].epoch, self._entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which ``offset`` was or will be written, None before the first epoch."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].epoch if index else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or behind ``end_offset``. Returns whether any did; ``write`` is the caller's."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) == len(self._entries):
            return False
        self._entries = kept
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that end at or before ``start_offset``; the one that spans it begins there now."""
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return False
        spanning = EpochEntry(self._entries[index - 1].epoch, start_offset)
        self._entries = [spanning, *self._entries[index:]]
        return True

    def write(self) -> None:
        """Make the file say what memory says. Blocks on fsync."""
        if (unwritten := self.unwritten) is not None:
            self.write_file(unwritten)
            self.note_written(unwritten)

    @property
    def unwritten(self) -> list[EpochEntry] | None:
        """What the file has yet to say, for ``write_file`` and then ``note_written``; None when it does."""
        return None if self.is_written else self._entries

    def note_written(self, entries: list[EpochEntry]) -> None:
        """The file says ``entries``, by ``write_file``."""
        self._written = entries

    def write_file(self, entries: list[EpochEntry]) -> None:
        """Make the file say ``entries``, and change nothing here. Blocks on fsync: for a worker thread.

        Raises:
            OSError: the file says what it said before.
        """
        path = self.directory / file_names.LEADER_EPOCH_CHECKPOINT
        lines = (f"{entry.epoch} {entry.start_offset}" for entry in entries)
        write_atomically(self.disk, path, checkpoints.encode_checkpoint(lines))


def _with(entries: list[EpochEntry], beginning: EpochEntry) -> list[EpochEntry]:
    """Return ``entries`` with the epoch that begins now at their end, less those it contradicts; the same list if it is
    the latest already."""
    if entries and entries[-1].epoch == beginning.epoch:
        return entries
    keep = entries
    while keep and (keep[-1].epoch >= beginning.epoch or keep[-1].start_offset >= beginning.start_offset):
        keep = keep[:-1]
    return [*keep, beginning]
