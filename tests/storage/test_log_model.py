"""The log against a list: whatever is appended, rolled, retired, stopped, killed and torn, both say the same.

A kill is a copy of the files as they are at that moment, opened without a word from the old log. Torn tails are cut at
the last whole batch, and only what had not been synced may be torn.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from tests.storage.followed_log import truncate
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.real_disk import RealDisk, RealFileRegion
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("model", 0)


@attrs.frozen
class Written:
    """A batch the model knows of: its first offset and the values of its records."""

    offset: int
    values: tuple[bytes, ...]
    size: int

    @property
    def end(self) -> int:
        return self.offset + len(self.values)


class LogMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([300, 1000, 100_000]),
        index_interval_bytes=st.sampled_from([0, 100, 4096]),
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
        self.written: list[Written] = []
        self.start = 0
        self.synced = 0
        self.begin_producer()
        self.log = self.open(clean=False, recovery_point=0)

    def begin_producer(self) -> None:
        """A new producer id: what was cut may have held the old one's last batch."""
        self.producer_id = getattr(self, "producer_id", 0) + 1
        self.sequence = 0

    @property
    def directory(self) -> Path:
        return self.root / str(self.generation)

    def open(self, *, clean: bool, recovery_point: int) -> Log:
        return open_log(
            RealDisk(),
            self.directory,
            PARTITION,
            bytes(range(16)),
            self.config,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            clean=clean,
            now_ms=NOW_MS,
        ).log

    @property
    def end(self) -> int:
        return self.written[-1].end if self.written else self.start

    @rule(
        values=st.lists(st.binary(max_size=60), min_size=1, max_size=4),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
        idempotent=st.booleans(),
    )
    def append(self, values: list[bytes], codec: Codec, idempotent: bool) -> None:
        records = [NewRecord(NOW_MS + len(self.written), None, value) for value in values]
        extra: dict[str, Any] = (
            {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": self.sequence} if idempotent else {}
        )
        data = build_batch(records, codec=codec, **extra)
        info = self.log.append(data, leader_epoch=0, now_ms=NOW_MS)
        assert info.first_offset == self.end
        self.written.append(Written(info.first_offset, tuple(values), len(data)))
        if idempotent:
            self.sequence += len(values)
            again = self.log.append(data, leader_epoch=0, now_ms=NOW_MS)
            assert (again.duplicate, again.first_offset) == (True, info.first_offset)

    @rule()
    def sync(self) -> None:
        assert self.log.sync() == self.end
        self.synced = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start(offset)
        self.log.epochs.write()
        self.start = offset
        self.log.delete_expired_segments(NOW_MS, self.end)
        self.log.remove_deleted_files(NOW_MS + 10**9)
        self.written = [written for written in self.written if written.end > self.start]

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offsets = [written.offset for written in self.written if written.offset >= self.start]
        if offsets:
            offset = data.draw(st.sampled_from(offsets))
            truncate(self.log, offset, NOW_MS)
            self.written = [written for written in self.written if written.offset < offset]
            self.synced = min(self.synced, offset)
            self.begin_producer()

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = self.open(clean=True, recovery_point=self.end)
        self.synced = self.end

    @rule(torn=st.integers(0, 400), garbage=st.binary(max_size=20))
    def kill(self, torn: int, garbage: bytes) -> None:
        old = self.directory
        recovery_point = self.log.recovery_point
        self.generation += 1
        shutil.copytree(old, self.directory)
        path = self.directory / self.log.active_segment.file.path.name
        self.log.release()
        content = path.read_bytes()
        path.write_bytes(content[: len(content) - self.tear(torn, path)] + garbage)
        self.log = self.open(clean=False, recovery_point=recovery_point)
        assert not list(self.directory.glob("*.corrupt-*")), "a torn tail is no damage"

    def tear(self, torn: int, path: Path) -> int:
        """Forget the batches that lose bytes; return how many bytes the active segment loses."""
        base = int(path.stem)
        unsynced = sum(item.size for item in self.written if item.offset >= max(base, self.synced))
        torn = min(torn, unsynced)
        left = torn
        while left > 0:
            left -= self.written.pop().size
        if torn:
            self.begin_producer()
        return torn

    @rule()
    def read_everything_by_time(self) -> None:
        if self.start < self.end:
            found = self.log.offset_for_timestamp(0, self.end)
            assert found is not None
            assert found.offset == self.start

    @rule(data=st.data(), max_bytes=st.integers(0, 1000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        fetched = self.log.read(offset, max_bytes, end_offset=self.end).records
        if offset == self.end:
            assert not len(fetched)
            return
        assert isinstance(fetched, RealFileRegion)
        batches = list(read_batches(fetched.read()))
        expected = next(index for index, item in enumerate(self.written) if item.end > offset)
        for batch, item in zip(batches, self.written[expected:], strict=False):
            assert batch.header.base_offset == item.offset
            batch.verify_crc()
            assert tuple(record.value for record in batch.records()) == item.values
        assert batches
        assert len(batches) == 1 or len(fetched) <= max_bytes

    @invariant()
    def both_say_the_same(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert self.log.recovery_point <= self.end

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.release()
            shutil.rmtree(self.root)


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(stateful_step_count=25)
