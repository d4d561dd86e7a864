"""What the tests of storage share: batches as clients send them, and a log in a directory of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from kafka_wire.records.batch import RecordBatch, build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from tests.storage.followed_log import append_as_follower
from tests.storage.log_content import found_batches
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.append import AppendInfo, AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import OpenedLog, open_log

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


@pytest.fixture
def now_ms() -> int:
    return NOW_MS


def make_batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    key: bytes | None = b"key",
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of ``count`` equal records, each a millisecond after the one before."""
    records = [NewRecord(timestamp + index, key, value) for index in range(count)]
    return bytearray(
        build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


@pytest.fixture
def batch() -> Callable[..., bytearray]:
    return make_batch


def make_marker(producer_id: int, *, epoch: int = 0, committed: bool, coordinator_epoch: int = 0) -> bytearray:
    """The end of a transaction, as a coordinator writes it."""
    marker = EndTransactionMarker(committed, coordinator_epoch)
    return bytearray(build_control_batch(marker, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=epoch))


@pytest.fixture
def marker() -> Callable[..., bytearray]:
    return make_marker


@attrs.define
class LogBench:
    """A log and the ways to open it again: after a clean stop, or after a crash with nothing said to the disk."""

    disk: Disk
    directory: Path
    config: LogConfig
    log: Log
    now_ms: int = NOW_MS
    leader_epoch: int = 0

    def append(self, *args: object, **kwargs: object) -> AppendInfo:
        """Append a batch made by ``make_batch`` as a client."""
        return self.append_bytes(make_batch(*args, **kwargs))  # type: ignore[arg-type]

    def append_bytes(
        self, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT, epoch: int | None = None
    ) -> AppendInfo:
        leader_epoch = self.leader_epoch if epoch is None else epoch
        return self.log.append(memoryview(data), leader_epoch=leader_epoch, now_ms=self.now_ms, origin=origin)

    def replicate(self, data: bytes | bytearray) -> AppendInfo:
        """Append what a leader has sent."""
        return append_as_follower(self.log, data, self.now_ms)

    def end_transaction(self, producer_id: int, *, committed: bool, epoch: int = 0) -> AppendInfo:
        return self.append_bytes(make_marker(producer_id, epoch=epoch, committed=committed), AppendOrigin.COORDINATOR)

    def batches(self, offset: int | None = None, max_bytes: int = 1 << 30) -> list[RecordBatch]:
        """All batches from ``offset`` on, read as a consumer reads."""
        return found_batches(self.log, offset, max_bytes)

    def offsets(self) -> list[int]:
        """The offsets of all records."""
        return [record.offset for item in self.batches() for record in item.records()]

    def crash(self, recovery_point: int | None = None) -> OpenedLog:
        """Let go as a kill does, and open again."""
        self.log.release()
        return self.reopen(clean=False, recovery_point=recovery_point)

    def restart(self) -> OpenedLog:
        """Close properly and open again."""
        self.log.close()
        return self.reopen(clean=True)

    def reopen(
        self,
        *,
        clean: bool,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        leader_epoch: int | None = None,
        gaps_end: int | None = None,
    ) -> OpenedLog:
        """Open a log again that was let go or closed, with what the checkpoints say, or something else."""
        opened = open_log(
            self.disk,
            self.directory,
            TopicPartition("orders", 0),
            TOPIC_ID,
            self.config,
            recovery_point=self.log.recovery_point if recovery_point is None else recovery_point,
            log_start_offset=self.log.log_start_offset if log_start_offset is None else log_start_offset,
            clean=clean,
            now_ms=self.now_ms,
            leader_epoch=leader_epoch,
            gaps_end=gaps_end,
        )
        self.log = opened.log
        return opened

    def file(self, name: str) -> Path:
        return self.directory / name


@pytest.fixture
def disk() -> Disk:
    """What the logs lie on. A module whose tests need another one has a fixture of this name."""
    return RealDisk()


@pytest.fixture
def make_log(disk: Disk, tmp_path: Path) -> Callable[..., LogBench]:
    """Make a log; keyword arguments are those of ``LogConfig``, and ``log_start_offset``."""

    numbers = itertools.count()

    def make(*, log_start_offset: int = 0, **config: object) -> LogBench:
        directory = tmp_path / f"log-{next(numbers)}"
        bench = LogBench(disk, directory, LogConfig(**config), None)  # type: ignore[arg-type]
        bench.reopen(clean=False, recovery_point=0, log_start_offset=log_start_offset)
        return bench

    return make


@pytest.fixture
def bench(make_log: Callable[..., LogBench]) -> LogBench:
    """A log with Kafka's defaults."""
    return make_log()
