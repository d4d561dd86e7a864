"""Moves replicas from one data directory of this broker to another, while they are used.

A copy follows the log until little is missing. Then nobody appends for as long as the rest takes, and the copy takes
the place of the log, with which everything goes on: no client notices. Until then a move may be cancelled, or led
elsewhere. It is given up with its partition, or where a disk fails. Where there is no room, none is begun; one that
loses its room on the way gives it back, and waits for enough.

What is asked for lasts: after a start the copies that are there are begun anew.

Into each directory one replica moves at a time, so there are at most as many moves as Kafka has threads for them where
``num.replica.alter.log.dirs.threads`` is not set. The disks share the rate of copying.

Source: Kafka's ReplicaAlterLogDirsManager and ReplicaAlterLogDirsThread, which copy records; KIP-113.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Final

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.flusher import Flusher
from trio_broker.partition.log_commands import InThread
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Partition
from trio_broker.partition.replication_quota_manager import replication_rate
from trio_broker.runtime.randomness import random_uuid
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptCheckpoint, StorageFailed, is_shortage
from trio_broker.storage.future_log import FutureLog, LogEnd
from trio_broker.storage.log import Log
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.segmented_log import DeletedFile

log = logging.getLogger(__name__)

CAUGHT_UP_BYTES: Final = 4 << 20
"""So little is copied in a few milliseconds, for which producers wait then."""

QUOTA_CHECK_SECONDS: Final = 0.5
"""Between two looks whether a move may go on, or has been cancelled."""

SHORTAGE_SECONDS: Final = 30.0
"""Before a move is tried again whose directory was full."""


class MoveEnded(Exception):
    """The move is not wanted any more, or its partition is out of use."""


@attrs.define(eq=False)
class Move:
    """A replica on its way, or behind others into its directory. ``ended`` is set once nothing is done any more for one
    that ``is_cancelled``."""

    partition: Partition
    future: FutureLog
    is_under_way: bool = False
    is_cancelled: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def offset_lag(self) -> int:
        """How many offsets of the log are not copied yet."""
        return max(self.partition.log_end_offset - self.future.end_offset, 0)

    def require_wanted(self) -> None:
        """Go on only where there is a reason to.

        Raises:
            MoveEnded: there is none.
        """
        if self.is_cancelled:
            raise MoveEnded("it was cancelled")
        if (failure := self.partition.failure) is not None:
            raise MoveEnded(str(failure))


class ReplicaAlterLogDirsManager:
    """See the head of the file. ``run`` is a task of the owner; ``find`` returns a partition that is here."""

    def __init__(
        self,
        log_manager: LogManager,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        find: Callable[[TopicPartition], Partition | None],
        failures: LogDirFailures,
        flusher: Flusher,
        log_maintenance: LogMaintenance,
    ) -> None:
        self._log_manager = log_manager
        self._config = config
        self._clock = runtime.clock
        self._random = runtime.random
        self._workers = runtime.workers
        self._find = find
        self._failures = failures
        self._flusher = flusher
        self._maintenance = log_maintenance
        self._rate = replication_rate(runtime.clock, config)
        self.moves: dict[TopicPartition, Move] = {}
        # By directory, set when there is something to do about moves into it.
        self._changed = {each.path: trio.Event() for each in log_manager.directories}
        self.limiter = trio.CapacityLimiter(len(log_manager.directories))
        # Called with each partition that is in another directory now.
        self.on_moved: Callable[[TopicPartition], object] = lambda topic_partition: None

    # ---- what is asked for ----------------------------------------------------------------------------------------

    async def alter(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Have a replica be in ``directory``, some time later; a move that leads elsewhere is cancelled. One that is
        not here yet will be made there.

        Raises:
            KafkaError: ``INVALID_TOPIC_EXCEPTION``: its name leaves no room for that of a copy;
                ``KAFKA_STORAGE_ERROR``: its disk has failed, or has no room for it; ``REPLICA_NOT_AVAILABLE``: it is
                not here.
        """
        name = file_names.marked_directory_name(topic_partition, "future", random_uuid(self._random))
        if file_names.parse_future_directory(name) != topic_partition:
            raise KafkaError(f"topic name {topic_partition.topic} is too long", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        if directory.failure is not None:
            raise KafkaError(f"{directory.path} is offline", code=ErrorCode.KAFKA_STORAGE_ERROR)
        self._take_up()
        if (partition := self._find(topic_partition)) is not None:
            await self._require_room_to_begin(partition, directory)
        present = self.moves.get(topic_partition)
        # One of a partition that was deleted waits for its turn to end.
        if present is not None and (
            present.future.directory != directory.path or present.partition.failure is not None
        ):
            await self._cancel(present)
        partition = self._find(topic_partition)
        if partition is None:
            self._log_manager.prefer(topic_partition, directory)
            text = f"{topic_partition} is not here; once it is, it will be in {directory.path}"
            raise KafkaError(text, code=ErrorCode.REPLICA_NOT_AVAILABLE)
        partition.state.require_online()
        if partition.log.directory.parent != directory.path and topic_partition not in self.moves:
            self._begin(Move(partition, FutureLog(self._log_manager.disk, topic_partition, directory.path / name)))

    async def _require_room_to_begin(self, partition: Partition, directory: LogDirectory) -> None:
        move = self.moves.get(partition.topic_partition)
        if directory.path in (partition.log.directory.parent, move and move.future.directory):
            return
        try:
            await self._maintenance.run_in_thread(partial(require_room, directory, partition.log.size_bytes))
        except OSError as error:
            raise KafkaError(f"{partition} is not moved: {error}", code=ErrorCode.KAFKA_STORAGE_ERROR) from error

    def _take_up(self) -> None:
        """Begin the moves anew whose copies the last stop has left: before anybody asks for other ones."""
        orphans = []
        for future in self._log_manager.future_logs:
            partition = self._find(future.topic_partition)
            if partition is None or future.topic_partition in self.moves:
                orphans.append(future)
            else:
                self._begin(Move(partition, future))
        self._log_manager.future_logs = orphans

    def _begin(self, move: Move) -> None:
        log.info("%s moves from %s to %s", move.partition, move.partition.log.directory.parent, move.future.directory)
        self.moves[move.future.topic_partition] = move
        self._changed[move.future.directory].set()

    async def _cancel(self, move: Move) -> None:
        move.is_cancelled = True
        if move.is_under_way:
            self._changed[move.future.directory].set()
            await move.ended.wait()
        else:
            # Those before it may take hours.
            del self.moves[move.future.topic_partition]
            await self._remove(move)
            move.ended.set()

    # ---- the task -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Move what is to be moved, until cancelled."""
        self._take_up()
        orphans, self._log_manager.future_logs = self._log_manager.future_logs, []
        for future in orphans:
            await self._maintenance.run_in_thread(future.remove)
        async with trio.open_nursery() as nursery:
            for directory in self._changed:
                start_background(nursery, f"moves into {directory}", partial(self._move_all_into, directory))

    async def _move_all_into(self, directory: PurePath) -> None:
        while True:
            changed = self._changed[directory] = trio.Event()
            moves = (each for each in self.moves.values() if each.future.directory == directory)
            # One that is to end comes first: somebody waits for it.
            move = min(moves, key=lambda each: not each.is_cancelled, default=None)
            if move is None:
                await changed.wait()
            elif not await self._carry_out(move):
                with trio.move_on_after(SHORTAGE_SECONDS):
                    await changed.wait()

    async def _carry_out(self, move: Move) -> bool:
        """Do it, or give it up; return False where it has to wait for room."""
        topic_partition, move.is_under_way = move.future.topic_partition, True
        try:
            await self._move(move)
        except StorageFailed as error:
            # The copy stays: it may be all there is.
            self._failures.storage_failed(move.partition, error)
        except (OSError, KafkaError, MoveEnded, CorruptCheckpoint) as error:
            if is_shortage(error):
                log.warning("%s: its move waits: %s", topic_partition, error)
                await self._give_room_back(move)
                # Others may find room.
                self.moves[topic_partition] = self.moves.pop(topic_partition)
                return False
            log.warning("%s is not moved: %s", topic_partition, error)
            await self._remove(move)
        finally:
            move.is_under_way = False
        self.moves.pop(topic_partition, None)
        move.ended.set()
        return True

    async def _give_room_back(self, move: Move) -> None:
        """A disk that the copy has filled would serve nobody while the move waits, and it is begun anew in any case."""
        try:
            await self._maintenance.run_in_thread(move.future.give_room_back)
        except OSError as error:
            log.warning("%s: its room is not given back: %s", move.future.path, error)

    async def _remove(self, move: Move) -> None:
        try:
            await self._maintenance.run_in_thread(move.future.remove)
        except OSError as error:
            log.error("%s is not removed: %s", move.future.path, error)

    async def _move(self, move: Move) -> None:
        await self._begin_copy(move)
        while await self._copy(move) > CAUGHT_UP_BYTES:
            if not move.future.is_beginning_of(move.partition.log):
                await self._begin_copy(move)
        writer = move.partition.writer
        with trio.CancelScope(shield=True):
            try:
                async with writer.rest:
                    await self._flusher.wait_idle(writer)
                    await self._maintenance.log_cleaner.wait_idle(move.partition)
                    move.require_wanted()
                    await self._maintenance.with_directories(partial(self._take_place, move))
            finally:
                self._flusher.request(writer)
        self.on_moved(move.future.topic_partition)

    async def _begin_copy(self, move: Move) -> None:
        move.require_wanted()
        await self._maintenance.run_in_thread(partial(move.future.begin, move.partition.log))
        directory = self._log_manager.directory(move.future.directory)
        await self._maintenance.run_in_thread(partial(require_room, directory, move.partition.log.size_bytes))

    async def _copy(self, move: Move) -> int:
        """Copy what has been appended since the last time; return how many bytes that was."""
        source, copied = move.partition.log, 0
        await move.partition.writer.roll(self._clock.now_ms())
        names, work = source.name_changes, move.future.copy(source.segments[:-1])
        try:
            while True:
                while self._rate.per_second > self._config.replication.replica_alter_log_dirs_io_max_bytes_per_second:
                    move.require_wanted()
                    await trio.sleep(QUOTA_CHECK_SECONDS)
                move.require_wanted()
                size_bytes = await self._workers.run(partial(next, work, None), limiter=self.limiter)
                if size_bytes is None:
                    return copied
                self._rate.record(size_bytes)
                copied += size_bytes
        except FileNotFoundError:
            # Retention or compaction has taken a segment.
            if names == source.name_changes:
                raise
            return CAUGHT_UP_BYTES + 1

    # ---- the end --------------------------------------------------------------------------------------------------

    async def _take_place(self, move: Move, in_thread: InThread) -> None:
        """Put the copy in the place of the log, while nothing else happens to either."""
        partition, future = move.partition, move.future
        before = partition.log
        arriving = self._log_manager.checkpoints.arriving

        async def moved(end: LogEnd) -> Log:
            if not future.is_beginning_of(before):
                raise MoveEnded("its log was cut in the last moment")
            arriving[future.directory] = before
            after = await in_thread(partial(self._replace, future, before, end))
            remove_at_ms = self._clock.now_ms() + before.config.file_delete_delay_ms
            self._log_manager.deleted_logs.note_marked([DeletedFile(future.retired(before.directory), remove_at_ms)])
            return after

        def adopt(after: Log) -> None:
            partition.log = self._log_manager.logs[future.topic_partition] = after

        try:
            await partition.writer.move_log(moved, adopt, self._clock.now_ms())
        finally:
            arriving.pop(future.directory, None)

    def _replace(self, future: FutureLog, before: Log, end: LogEnd) -> Log:
        """Complete the copy, give it the name of the log, and return what it has become. Blocks.

        Raises:
            StorageFailed: the log has lost its name, and the copy has not got it, or cannot be opened.
            OSError: a disk refused or failed, and nothing has changed.
        """
        future.complete(end, before.directory)
        # Before the log is there: a start after a crash would take what compaction has removed for damage.
        if error := self._log_manager.checkpoints.write().get(future.directory):
            raise error
        try:
            future.replace(before.directory)
            moved = self._log_manager.open_moved(future, before, end)
        except (OSError, CorruptCheckpoint) as error:
            if not self._log_manager.disk.exists(before.directory):
                raise StorageFailed(f"{future.path} has not taken the place of {before.directory}: {error}") from error
            raise
        self._log_manager.directory(before.directory.parent).forget(future.topic_partition)
        return moved


def require_room(directory: LogDirectory, size_bytes: int) -> None:
    """Refuse to copy a log to where it does not fit. Blocks.

    Raises:
        OSError: it does not, by ``ENOSPC``; or the disk failed.
    """
    if (usable_bytes := directory.volume_space().usable_bytes) < size_bytes:
        raise OSError(errno.ENOSPC, f"{directory.path} has {usable_bytes} bytes left, of {size_bytes} that are needed")
