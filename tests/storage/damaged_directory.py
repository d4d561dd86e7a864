"""A data directory on a simulated disk that is started after one of its files was damaged, beside what it held.

``Intact`` is made once by the storage that the broker has: partitions with several segments, leader epochs,
transactions and producers, deleted records, a compacted one, and one that nothing is done to; after a clean stop or a
kill. A case copies it, damages one file (``file_damage``), starts, and compares:

* what is served is what was written, at its offset and in its epoch; answers by time, leader epochs and aborted
  transactions are right, or refused;
* records that are not served were reported by a line at level ERROR, and the bytes of their batches are on the disk;
* no other partition has changed;
* a record can be appended, behind all that was there; or the partition was refused as a whole, with a line;
* the next two starts, after a stop and after a kill, find the same and have nothing new to tell.
"""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Sequence
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.errors import CorruptRecordBatch
from kafka_wire.records.record import NewRecord
from tests.storage.compaction_harness import compact
from tests.storage.file_damage import FileDamage, drawn
from tests.storage.log_content import fetched_data
from tests.storage.managed_logs import create_log, load_logs, remove_expired_files
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import OpenMode, write_all
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage import partition_metadata
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.errors import DataDirectoryError
from trio_broker.storage.log import Log
from trio_broker.storage.log_loading import KnownPartition
from trio_broker.storage.log_manager import LogManager

DATA = PurePath("/data")
PLAIN = TopicPartition("plain", 0)
TRIMMED = TopicPartition("trimmed", 0)
COMPACTED = TopicPartition("compacted", 0)
OTHER = TopicPartition("other", 0)
PARTITIONS = (PLAIN, TRIMMED, COMPACTED, OTHER)
CONFIG = LogConfig(
    internal_segment_bytes=1500,
    segment_index_bytes=240,
    index_interval_bytes=200,
    retention_ms=-1,
    retention_bytes=-1,
    file_delete_delay_ms=0,
)
CONFIGS = dict.fromkeys(PARTITIONS, CONFIG) | {
    COMPACTED: attrs.evolve(CONFIG, cleanup_policy=CleanupPolicy(delete=False, compact=True))
}
DIRECTORIES = 3
"""So many are made, each once, with other records in other segments."""

LEADER_EPOCHS = 4
"""Each partition has led in so many epochs; the metadata knows the last one."""


@attrs.frozen
class StoredRecord:
    """A record as a consumer sees it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    epoch: int


@attrs.frozen
class StoredLog:
    """What is in one partition. ``batches`` are the bytes of the batches by their base offset."""

    records: dict[int, StoredRecord]
    batches: dict[int, bytes]
    log_start_offset: int
    log_end_offset: int
    aborted: list[tuple[int, int, int]]
    sequences: dict[int, int]


def topic_id(partition: TopicPartition) -> bytes:
    """The id of the partition's topic, which looks like a random one."""
    return random.Random(partition.topic).randbytes(16)


def config_for(partition: TopicPartition, found: bytes) -> LogConfig | None:
    """As the broker has it: by the id in the directory."""
    if found != topic_id(partition):
        is_anothers = found in {topic_id(each) for each in PARTITIONS}
        partition_metadata.check_not_damaged(found, topic_id(partition), is_anothers=is_anothers)
        return None
    return CONFIGS.get(partition)


@attrs.define
class Server:
    """The logs of a broker on a disk."""

    disk: SimulatedDisk
    clock: ManualClock
    manager: LogManager

    @classmethod
    def start(cls, disk: SimulatedDisk, clock: ManualClock) -> Server:
        manager = LogManager([DATA], disk=disk, node_id=1, clock=clock, cluster_id="cluster", random=random.Random(0))
        manager.open()
        load_logs(manager, config_for, lambda partition: KnownPartition(topic_id(partition), LEADER_EPOCHS - 1))
        return cls(disk, clock, manager)

    def stop(self) -> None:
        ends = {partition: log.log_end_offset for partition, log in self.manager.logs.items()}
        self.manager.close(high_watermarks=ends)


def write_log(log: Log, clock: ManualClock, seed: int) -> None:
    """Append batches of all kinds, in several leader epochs."""
    chance = random.Random(seed)
    sequences: dict[int, int] = {}
    transactional = log.config.cleanup_policy.delete
    for number in range(56):
        clock.advance(chance.choice((0.001, 0.5, 2.0)))
        epoch = number * LEADER_EPOCHS // 56
        producer_id = chance.choice((-1, -1, 1, 2))
        if producer_id == 2 and 2 in sequences and chance.random() < 0.4:
            marker = EndTransactionMarker(chance.random() < 0.4, 0)
            data = build_control_batch(marker, timestamp=clock.now_ms(), producer_id=2, producer_epoch=0)
            now_ms = clock.now_ms()
            log.append(bytearray(data), leader_epoch=epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
            continue
        if producer_id == 2 and not transactional:
            producer_id = 1
        records = [
            # Not in the order of time, as clients send them.
            NewRecord(clock.now_ms() - chance.randrange(3000), b"k%d" % chance.randrange(6), chance.randbytes(30))
            for _ in range(chance.choice((1, 1, 2, 4)))
        ]
        sequence = sequences.get(producer_id, -1) + 1 if producer_id >= 0 else -1
        if producer_id >= 0:
            sequences[producer_id] = sequence + len(records) - 1
        data = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=producer_id == 2,
        )
        log.append(bytearray(data), leader_epoch=epoch, now_ms=clock.now_ms())


@attrs.frozen
class Intact:
    """A data directory as it was left, and what was in it."""

    files: dict[PurePath, bytes]
    logs: dict[TopicPartition, StoredLog]
    now_ms: int
    was_stopped: bool

    @classmethod
    def make(cls, seed: int, *, stop: bool) -> Intact:
        clock = ManualClock()
        server = Server.start(SimulatedDisk(clock, seed), clock)
        manager = server.manager
        for partition in PARTITIONS:
            log = create_log(manager, partition, topic_id(partition), CONFIGS[partition])
            write_log(log, clock, hash_of(partition, seed))
            log.sync()
        manager.logs[TRIMMED].advance_log_start(manager.logs[TRIMMED].segments[1].base_offset + 3)
        manager.logs[TRIMMED].delete_expired_segments(clock.now_ms(), manager.logs[TRIMMED].log_end_offset)
        manager.logs[TRIMMED].epochs.write()
        compact(manager.logs[COMPACTED], clock.now_ms())
        remove_expired_files(manager, clock.now_ms())
        manager.checkpoints.write()
        manager.checkpoints.write_high_watermarks({each: log.log_end_offset for each, log in manager.logs.items()})
        logs = {partition: stored(log) for partition, log in manager.logs.items()}
        if stop:
            server.stop()
        files = files_below(server.disk.crash(), DATA)
        return cls(files, logs, clock.now_ms(), stop)

    def disk(self, clock: ManualClock, damage: FileDamage, partitions: Sequence[TopicPartition]) -> SimulatedDisk:
        """A disk that holds these partitions of it, with one file damaged."""
        disk = SimulatedDisk(clock)
        directories = {DATA, *(DATA / str(partition) for partition in partitions)}
        files = {path: content for path, content in damage.applied(self.files).items() if path.parent in directories}
        for path in sorted(directories):
            disk.make_directory(path)
        for path, content in files.items():
            write_all(disk.open(path, OpenMode.REPLACE), content, 0)
        return disk


@functools.cache
def intact(seed: int, *, stop: bool) -> Intact:
    """Make it once."""
    return Intact.make(seed, stop=stop)


def hash_of(partition: TopicPartition, seed: int) -> int:
    """A seed for one partition."""
    return random.Random(f"{partition} {seed}").getrandbits(32)


def files_below(disk: SimulatedDisk, path: PurePath) -> dict[PurePath, bytes]:
    """The content of all files below a directory."""
    found: dict[PurePath, bytes] = {}
    for entry in sorted(disk.list_directory(path), key=lambda entry: entry.name):
        if entry.is_directory:
            found |= files_below(disk, path / entry.name)
        elif entry.name != ".lock":
            found[path / entry.name] = disk.read_file(path / entry.name)
    return found


def stored(log: Log) -> StoredLog:
    """What is in an intact log."""
    records: dict[int, StoredRecord] = {}
    batches: dict[int, bytes] = {}
    offset = log.log_start_offset
    while (fetched := log.read(offset, 1 << 20, end_offset=log.log_end_offset)).size:
        data = fetched_data(fetched)
        for batch in read_batches(data):
            batches[batch.header.base_offset] = bytes(batch.buffer)
            for record in batch.records():
                if record.offset >= log.log_start_offset:
                    epoch = batch.header.partition_leader_epoch
                    records[record.offset] = StoredRecord(record.key, record.value, record.timestamp, epoch)
        offset = fetched.next_offset
    return StoredLog(records, batches, log.log_start_offset, log.log_end_offset, aborted_of(log), sequences_of(log))


def aborted_of(log: Log) -> list[tuple[int, int, int]]:
    """The aborted transactions of a log."""
    found = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    return [(each.producer_id, each.first_offset, each.last_offset) for each in found]


def sequences_of(log: Log) -> dict[int, int]:
    """The last sequences of producers."""
    return {key: entry.last_sequence for key, entry in log.producers.producers.items()}


@attrs.define
class ServedLog:
    """What a log serves, and the offsets that it refuses as damaged."""

    records: dict[int, StoredRecord] = attrs.field(factory=dict)
    refused: set[int] = attrs.field(factory=set)


def served(log: Log) -> ServedLog:
    """Read a log as a consumer does who goes on behind what is refused."""
    found = ServedLog()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            fetched = log.read(offset, 400, end_offset=log.log_end_offset)
            if not fetched.size:
                break
            data = fetched_data(fetched)
            for batch in read_batches(data):
                batch.verify_crc()
                for record in batch.records():
                    if record.offset >= log.log_start_offset:
                        epoch = batch.header.partition_leader_epoch
                        found.records[record.offset] = StoredRecord(record.key, record.value, record.timestamp, epoch)
                # A damaged base offset that no start reads may lead back.
                offset = max(offset, batch.header.next_offset)
            offset = max(offset, fetched.next_offset)
        except CorruptRecordBatch:
            found.refused.add(offset)
            offset += 1
    return found


def read_anew(log: Log, expected: StoredLog, found: ServedLog) -> None:
    """Read from single offsets on, as consumers do that begin there; add what is refused to ``found``."""
    for offset in list(expected.records)[::7]:
        if offset in found.records and log.log_start_offset <= offset:
            try:
                fetched = log.read(offset, 1, end_offset=log.log_end_offset)
            except CorruptRecordBatch:
                found.refused.add(offset)
                continue
            data = fetched_data(fetched)
            first = next(iter(read_batches(data))).header
            assert first.base_offset <= offset <= first.last_offset, f"{first} for a read from {offset}"


class WarningLines(logging.Handler):
    """The lines at level WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))

    @property
    def has_error(self) -> bool:
        return any(level >= logging.ERROR for level, _ in self.lines)

    def __enter__(self) -> WarningLines:
        logger = logging.getLogger("trio_broker")
        logger.addHandler(self)
        logger.propagate = False
        return self

    def __exit__(self, *exc: object) -> None:
        logger = logging.getLogger("trio_broker")
        logger.removeHandler(self)
        logger.propagate = True


REPORTED_AGAIN = (
    "cannot be opened",
    "damage",
    "no records from",
    "producer snapshot",
    "lost",
    "clean stop",
    "rebuilding the indexes",
)
"""In the lines that a later start may write about the same damage."""


class DamagedStart:
    """A start on a damaged directory; see the head of the file."""

    def __init__(self, whole: Intact, damage: FileDamage) -> None:
        self.whole = whole
        self.damage = damage
        self.clock = ManualClock()
        self.clock.advance(max(0, (whole.now_ms - self.clock.now_ms()) / 1000) + 1)
        # The one that is hurt, and another.
        hurt = [each for each in PARTITIONS if damage.path.parent == DATA / str(each)]
        self.partitions = (*hurt, PLAIN if hurt == [OTHER] else OTHER) if hurt else PARTITIONS

    def check(self) -> None:
        disk = self.whole.disk(self.clock, self.damage, self.partitions)
        damaged = disk.read_file(self.damage.path) if disk.exists(self.damage.path) else None
        with WarningLines() as warnings:
            try:
                server = Server.start(disk, self.clock)
            except DataDirectoryError:
                assert self.damage.path.name == "meta.properties", "only that refuses a start"
                assert (disk.read_file(self.damage.path) if damaged is not None else None) == damaged
                return
            first = {each: self._check_log(server, each, warnings) for each in self.partitions}
            appended = self._append(server)
        self._check_kept(server, first)
        server.stop()
        for step in ("stop", "kill"):
            with WarningLines() as warnings:
                server = Server.start(disk, self.clock)
                for partition in filter(self._is_hurt, self.partitions):
                    self._check_again(server, partition, first[partition], appended.get(partition), step)
                # Of damage that stays, the broker tells at each start; an older snapshot may be met later, and an index
                # is looked at when it is used.
                new = [line for _, line in warnings.lines if not any(each in line for each in REPORTED_AGAIN)]
                # What the first start has not read, a later one may.
                assert not new or any(map(self._is_unread, self.partitions)), f"after a {step}: {new}"
            disk = disk.crash()

    def _log(self, server: Server, partition: TopicPartition) -> Log | None:
        return server.manager.logs.get(partition)

    def _is_hurt(self, partition: TopicPartition) -> bool:
        return self.damage.path.parent.name == str(partition) or self.damage.path.parent == DATA

    def _check_log(self, server: Server, partition: TopicPartition, warnings: WarningLines) -> ServedLog | None:
        expected = self.whole.logs[partition]
        log = self._log(server, partition)
        if log is None:
            assert self._is_hurt(partition), f"{partition} is gone"
            assert warnings.has_error, f"{partition} is gone without a word"
            return None
        if self._is_unread(partition):
            return self._check_unread(log, expected)
        found = served(log)
        read_anew(log, expected, found)
        start = log.log_start_offset
        for offset, record in found.records.items():
            if offset in expected.records:
                assert record == expected.records[offset], f"{record} at {offset}, was {expected.records[offset]}"
            else:
                # What was deleted may be there again if the file that says so is lost, and that is reported.
                assert offset < expected.log_start_offset, f"{record} at {offset} was never written"
                assert warnings.lines, f"deleted records are back: {offset}"
        missing = [offset for offset in expected.records if offset not in found.records]
        if missing:
            assert self._is_hurt(partition), f"{partition}: {missing} are missing"
            reported_by_the_log = self.damage.path.suffix == ".log" and found.refused
            assert warnings.has_error or reported_by_the_log, f"{partition}: {missing} are missing without a word"
        if not warnings.has_error:
            assert log.log_end_offset == expected.log_end_offset
        assert log.log_end_offset >= expected.log_end_offset or warnings.has_error
        assert log.log_end_offset <= expected.log_end_offset, f"ends at {log.log_end_offset}"
        self._check_times(log, expected, found, is_whole=not missing)
        for offset, record in found.records.items():
            known = log.epochs.epoch_for_offset(offset)
            assert known == record.epoch, f"{partition}: epoch {known} at {offset}, not {record.epoch}"
        if not missing and start == expected.log_start_offset:
            assert self.damage.path.suffix == ".txnindex" or aborted_of(log) == expected.aborted
            # An older snapshot is right as well, but for batches that are far before the newer one.
            is_older = self.damage.path.suffix == ".snapshot" and self.damage.what.startswith("replaced")
            assert is_older or sequences_of(log) == expected.sequences
        return found

    def _is_unread(self, partition: TopicPartition) -> bool:
        """Whether the damage is in records that no start reads: the scrubber and ``fsck`` look for that.

        Or in none: each batch of another partition's file is right, and says nothing of the partition.
        """
        path = self.damage.path
        if path.parent.name != str(partition) or path.suffix != ".log":
            return False
        if self.damage.what.startswith("replaced"):
            return True
        last = max(each for each in self.whole.files if each.parent == path.parent and each.suffix == ".log")
        return self.whole.was_stopped or path != last

    def _check_unread(self, log: Log, expected: StoredLog) -> ServedLog:
        """What has a right checksum was written, whatever the offset and the epoch before the checksum say."""
        found = served(log)
        written = {(record.key, record.value, record.timestamp) for record in expected.records.values()}
        # The segment may be that of another partition, and hold its records.
        is_another = self.damage.what.startswith("replaced")
        for record in found.records.values():
            is_marker = record.value is not None and len(record.value) == 6
            assert is_marker or is_another or (record.key, record.value, record.timestamp) in written, f"{record}"
        return found

    def _check_times(self, log: Log, expected: StoredLog, found: ServedLog, *, is_whole: bool) -> None:
        known = expected.records if is_whole else found.records
        known = {offset: record for offset, record in known.items() if offset >= log.log_start_offset}
        times = sorted({record.timestamp for record in known.values()})
        for timestamp in (*times[:: max(1, len(times) // 6)], *times[-1:]):
            try:
                answer = log.offset_for_timestamp(timestamp, log.log_end_offset)
            except CorruptRecordBatch:
                assert not is_whole or self.damage.path.suffix == ".log", "refused on a log that is whole"
                continue
            right = min(offset for offset, record in known.items() if record.timestamp >= timestamp)
            assert answer is not None, f"nothing from {timestamp} on, but {right}"
            if log.log_start_offset == expected.log_start_offset:
                assert answer.offset == right, f"{answer} for {timestamp}, not {right}"

    def _append(self, server: Server) -> dict[TopicPartition, int]:
        """Append a record to each partition; return where they are."""
        appended = {}
        for partition in self.partitions:
            if (log := self._log(server, partition)) is None:
                continue
            data = bytearray(build_batch([NewRecord(self.clock.now_ms(), b"new", b"new")]))
            info = log.append(data, leader_epoch=LEADER_EPOCHS - 1, now_ms=self.clock.now_ms())
            log.sync()
            appended[partition] = info.first_offset
        return appended

    def _check_kept(self, server: Server, first: dict[TopicPartition, ServedLog | None]) -> None:
        """The bytes of every batch that is not served and was not damaged itself are in some file."""
        files = files_below(server.disk, DATA)
        content = [files[path] for path in sorted(files)]
        untouched = self.damage.applied(self.whole.files)
        before = [untouched[path] for path in sorted(untouched)]
        for partition in self.partitions:
            found = first[partition]
            expected = self.whole.logs[partition]
            for base, batch in expected.batches.items():
                if found is not None and base in found.records:
                    continue
                # Less what may be put right: offset, length and epoch stand before the checksum.
                body = batch[21:]
                if any(body in each for each in before):
                    assert any(body in each for each in content), f"{partition}: the batch at {base} is not kept"

    def _check_again(
        self, server: Server, partition: TopicPartition, first: ServedLog | None, appended: int | None, step: str
    ) -> None:
        log = self._log(server, partition)
        if first is None:
            assert log is None, f"{partition} is back after a {step}"
            return
        assert log is not None, f"{partition} is gone after a {step}"
        found = served(log)
        if self._is_unread(partition):
            return
        read_anew(log, self.whole.logs[partition], found)
        if appended is not None:
            assert found.records.pop(appended).value == b"new"
        assert found.records == first.records, f"{partition}: other records after a {step}"


def run_case(seed: int) -> None:
    """Damage a file by ``seed``, and check; what was done is reported where that fails."""
    chance = random.Random(seed)
    whole = intact(chance.randrange(DIRECTORIES), stop=chance.random() < 0.6)
    damage = drawn(chance, whole.files)
    try:
        DamagedStart(whole, damage).check()
    except Exception as error:
        error.add_note(f"seed {seed}, after a {'stop' if whole.was_stopped else 'kill'}: {damage}")
        raise
