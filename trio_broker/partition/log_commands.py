"""What changes the files of one partition beside appends: leader epochs, deletion, retention and compaction.

Everything that changes the files of a partition is a command of its ``PartitionWriter``, of which this is the lower
floor. Commands are executed on the event loop one at a time, in their order of arrival, and never overlap. Threads do
what waits for the disk: they read and write files, and return what came of it; the command applies that here. So no
thread changes what the loop reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from trio_broker.partition.command_queue import CommandQueue
from trio_broker.partition.delayed_operations import DelayedOperations
from trio_broker.partition.state import PartitionState
from trio_broker.storage.log import Log
from trio_broker.storage.retention import ExpiredSegment
from trio_broker.storage.segment_swap import SegmentSwap

T = TypeVar("T")


class InThread(Protocol):
    """Does work in a worker thread and returns its result, or raises what it raised."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class LogCommands(CommandQueue):
    """See the head of the file. ``delayed`` waits for what the partition shows, and ``in_thread`` works on its disk."""

    def __init__(self, log: Log, state: PartitionState, delayed: DelayedOperations, in_thread: InThread) -> None:
        super().__init__()
        self.log = log
        self.log_directory = log.directory.parent
        self.state = state
        log.bind_to_thread()
        # Whether ``write_epochs`` must run before the next append of a leader.
        self.needs_epoch_entry = False
        self._delayed = delayed
        self._in_thread = in_thread

    # ---- leader epochs --------------------------------------------------------------------------------------------

    async def ready_to_append(self) -> None:
        """Write down where the leader epoch begins, if that has not been done.

        Raises:
            OSError: the disk refused or failed.
        """
        await self.execute(self.write_epochs)

    async def write_epochs(self) -> None:
        """Make the file of leader epochs say what memory says. Part of a command.

        The entry of an epoch must be on disk before its first record, or a truncation after a crash would cut in the
        wrong place.
        """
        epochs = self.log.epochs
        if (unwritten := epochs.unwritten) is not None:
            await self._in_thread(partial(self.log.write_epochs, unwritten))
            epochs.note_written(unwritten)
        self.needs_epoch_entry = self.state.is_leader and self.log.needs_epoch_entry(self.state.leader_epoch)

    # ---- the log loses records ------------------------------------------------------------------------------------

    async def delete_before(self, offset: int) -> bool:
        """Move the log start up to ``offset``, at most the high watermark; return whether it moved.

        Raises:
            OSError: the file of leader epochs was not written; the log start has moved.
        """
        return await self.execute(partial(self._delete_before, offset))

    async def _delete_before(self, offset: int) -> bool:
        moved = self.log.advance_log_start(offset)
        if moved:
            await self._log_start_moved()
        return moved

    async def delete_expired_segments(self, now_ms: int) -> None:
        """Delete the segments whose time is over. Files are renamed, on the event loop: that waits for no disk.

        Raises:
            OSError: a file could not be renamed, or that of leader epochs not written.
        """
        await self.execute(partial(self._delete_expired_segments, now_ms))

    async def _delete_expired_segments(self, now_ms: int) -> None:
        if self.state.failure is None and (retired := self.log.retire_segments(now_ms, self.state.high_watermark)):
            await self._log_start_moved()
            self.log.remove_retired_segments(retired, now_ms)

    async def remove_segments(self, retire: Callable[[], Sequence[ExpiredSegment]], now_ms: int) -> None:
        """Have ``retire`` return segments of the log that may go, on the event loop, and rename their files.

        Raises:
            OSError: a file could not be made or renamed.
        """
        await self.execute(partial(self._remove_segments, retire, now_ms))

    async def _remove_segments(self, retire: Callable[[], Sequence[ExpiredSegment]], now_ms: int) -> None:
        if self.state.failure is None:
            self.log.remove_retired_segments(retire(), now_ms)

    async def _log_start_moved(self) -> None:
        self.state.log_start_moved(self.log.log_start_offset)
        # One may wait for what is no longer there.
        self._delayed.wake_fetches()
        await self.write_epochs()

    # ---- segments -------------------------------------------------------------------------------------------------

    async def roll(self, now_ms: int) -> None:
        """Seal the active segment.

        Raises:
            OSError: the disk refused or failed.
        """
        await self.execute(partial(at_once, partial(self._roll, now_ms)))

    def _roll(self, now_ms: int) -> None:
        if self.state.failure is None:
            self.log.roll(now_ms)

    # ---- the files ------------------------------------------------------------------------------------------------

    async def require_in_place(self) -> None:
        """``Log.require_in_place`` between two commands, none of which is about to give the files other names.

        Raises:
            OSError: as that.
        """
        await self.execute(partial(at_once, self._require_in_place))

    def _require_in_place(self) -> None:
        if self.state.failure is None:
            self.log.require_in_place()

    # ---- compaction -----------------------------------------------------------------------------------------------

    async def replace_segments(self, swap: SegmentSwap, now_ms: int) -> None:
        """Step 2 of a swap."""
        await self.execute(partial(at_once, partial(swap.replace_segments, now_ms)))

    async def finish_rename(self, swap: SegmentSwap) -> None:
        """Step 4 of a swap."""
        await self.execute(partial(at_once, swap.finish_rename))


async def at_once(work: Callable[[], T]) -> T:
    """A command that does ``work``, which waits for nothing."""
    return work()
