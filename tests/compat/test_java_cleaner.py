"""Kafka's own Cleaner and ours on the same directories: they leave the same files.

``CleanLog`` of ``tests/compat/java`` runs ``org.apache.kafka.storage.internals.log.Cleaner``. Both get copies of logs
with keys that come again, tombstones, records without keys, every codec, idempotent producers, transactions that end
either way, LogAppendTime, and both then go over them several times, with time passing in between.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from kafka_wire.records.batch import BatchHeader, RecordBatch, TimestampType, build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from tests.java_programs import Java
from tests.storage.compaction_harness import compact, planned
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log

PARTITION = TopicPartition("compacted", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = int(time.time() * 1000)
"""Kafka's code forgets producers by the real clock."""

DELETE_RETENTION_MS = 1000
ROUNDS = 4


@attrs.define
class Writer:
    """Fills a log by chance, the same for the same seed."""

    log: Log
    chance: random.Random
    codecs: tuple[Codec, ...]
    sequences: dict[int, int] = attrs.field(factory=dict)
    open_transactions: set[int] = attrs.field(factory=set)
    clock_ms: int = NOW_MS - 600_000

    def write(self, batches: int) -> None:
        compacted = self.log.config
        self.log.config = attrs.evolve(compacted, cleanup_policy=CleanupPolicy())  # which takes records without a key
        try:
            self._write(batches)
        finally:
            self.log.config = compacted

    def _write(self, batches: int) -> None:
        for _ in range(batches):
            self.clock_ms += self.chance.randrange(50)
            if self.open_transactions and self.chance.random() < 0.2:
                self.end_transaction(self.chance.choice(sorted(self.open_transactions)))
            else:
                self.append()
        for producer_id in sorted(self.open_transactions):
            self.end_transaction(producer_id)

    def record(self) -> NewRecord:
        chance = self.chance
        key = None if chance.random() < 0.05 else b"key-%d" % chance.randrange(30)
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randrange(40)) + b"text" * 10
        headers = (("h", b"x"), ("null", None)) if chance.random() < 0.2 else ()
        return NewRecord(self.clock_ms + chance.randrange(-20, 20), key, value, headers)

    def append(self) -> None:
        chance = self.chance
        kind = chance.choice(("plain", "idempotent", "transactional", "transactional", "one-off"))
        producer_id = {"plain": -1, "idempotent": 1, "transactional": chance.choice((10, 11, 12))}.get(
            kind, chance.randrange(100, 10_000)
        )
        records = [self.record() for _ in range(chance.randrange(1, 8))]
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        self.put(
            build_batch(
                records,
                codec=chance.choice(self.codecs),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
                transactional=kind == "transactional",
            )
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        if kind == "transactional":
            self.open_transactions.add(producer_id)

    def end_transaction(self, producer_id: int) -> None:
        marker = EndTransactionMarker(committed=self.chance.random() < 0.5, coordinator_epoch=0)
        data = build_control_batch(marker, timestamp=self.clock_ms, producer_id=producer_id, producer_epoch=0)
        self.put(data, AppendOrigin.COORDINATOR)
        self.open_transactions.discard(producer_id)

    def put(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        self.log.append(bytearray(data), leader_epoch=0, now_ms=self.clock_ms, origin=origin)


@attrs.frozen
class Case:
    name: str
    codecs: tuple[Codec, ...] = (Codec.NONE,)
    timestamp_type: TimestampType = TimestampType.CREATE_TIME

    @property
    def config(self) -> LogConfig:
        return LogConfig(
            segment_bytes=4000,
            index_interval_bytes=600,
            cleanup_policy=CleanupPolicy(delete=False, compact=True),
            delete_retention_ms=DELETE_RETENTION_MS,
            message_timestamp_type=self.timestamp_type,
        )

    @property
    def kafka_config(self) -> dict[str, str]:
        return {
            "internal.segment.bytes": "4000",
            "index.interval.bytes": "600",
            "cleanup.policy": "compact",
            "delete.retention.ms": str(DELETE_RETENTION_MS),
        }


CASES = (
    Case("plain"),
    Case("codecs", codecs=tuple(Codec)),
    Case("log-append-time", timestamp_type=TimestampType.LOG_APPEND_TIME),
)


def opened(directory: Path, config: LogConfig, *, clean: bool = True) -> Log:
    return open_log(
        RealDisk(),
        directory,
        PARTITION,
        TOPIC_ID,
        config,
        recovery_point=0,
        log_start_offset=0,
        clean=clean,
        now_ms=NOW_MS,
    ).log


def batches(path: Path) -> list[RecordBatch]:
    return list(read_batches(path.read_bytes()))


def content_of(path: Path) -> Any:
    """What a file says: its bytes, but for compressed batches, whose encoders differ, the header and the records, and
    without the zeros that Kafka 4.4 leaves behind the entries of the last segment's indexes when it closes a log.
    """
    if path.suffix != ".log":
        return path.read_bytes().rstrip(b"\0")
    found: list[Any] = []
    for batch in batches(path):
        batch.verify_crc()
        if batch.header.codec is Codec.NONE:
            found.append(bytes(batch.buffer))
        else:
            found.append((attrs.evolve(batch.header, batch_length=0, crc=0), batch.payload()))
    return found


def contents(directory: Path, *suffixes: str) -> dict[str, Any]:
    return {path.name: content_of(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes}


@attrs.frozen
class Pass:
    """One compaction by our cleaner, and what Kafka's is to be asked in order to do the same on a copy."""

    kafkas: Path
    request: dict[str, Any]
    facts: dict[str, int]
    """What Kafka's is to answer."""

    left: dict[str, Any]
    """What the files said afterwards."""


@attrs.define
class Passes:
    """All compactions of one case."""

    case: Case
    done: list[Pass] = attrs.field(factory=list)
    headers: list[BatchHeader] = attrs.field(factory=list)
    dropped: int = 0
    keyless: int = 0
    indexed: int = 0

    @property
    def exact(self) -> tuple[str, ...]:
        """Suffixes of the files that are to be the same."""
        whole = (".log", ".index", ".timeindex", ".txnindex")
        return whole if self.case.codecs == (Codec.NONE,) else (".log", ".txnindex")

    def run(self, directory: Path) -> None:
        """Write and compact in turn, and copy for Kafka's cleaner what ours found."""
        case, ours = self.case, directory / "ours" / str(PARTITION)
        ours.parent.mkdir(parents=True)
        log = opened(ours, case.config, clean=False)
        writer = Writer(log, random.Random(case.name), case.codecs)
        first_dirty, now_ms = 0, NOW_MS
        for number in range(ROUNDS):
            writer.log = log
            writer.write(150)
            log.close()
            kafkas = Path(shutil.copytree(ours, directory / f"kafkas-{number}" / str(PARTITION)))
            log = opened(ours, case.config)
            log.first_dirty_offset = first_dirty
            compacted = planned(log, now_ms)
            request = {
                "directory": str(kafkas),
                "config": case.kafka_config,
                "firstDirtyOffset": first_dirty,
                "stableOffset": log.producers.transactions.last_stable_offset(log.log_end_offset),
                "nowMs": now_ms,
            }
            done = compact(log, now_ms)
            first_dirty = log.first_dirty_offset
            facts = {
                "uncleanable": compacted.end_offset,
                "cleanBytes": compacted.clean_bytes,
                "cleanableBytes": compacted.dirty_bytes,
                "endOffset": first_dirty,
            }
            log.close()
            self.done.append(Pass(kafkas, request, facts, contents(ours, *self.exact)))
            self.dropped += done.records_read - done.records_kept
            self.headers += [batch.header for path in ours.glob("*.log") for batch in batches(path)]
            self.indexed += sum(len(path.read_bytes()) for path in ours.glob("*.txnindex"))
            self.keyless += done.records_without_key
            now_ms += DELETE_RETENTION_MS + 1
            log = opened(ours, case.config)
        log.close()


@pytest.fixture(scope="module")
def passes_by_case(java: Java, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Passes]:
    """The compactions of every case, each by both cleaners; all of Kafka's are in one JVM."""
    found = {case.name: Passes(case) for case in CASES}
    for name, passes in found.items():
        passes.run(tmp_path_factory.mktemp(name))
    every = [each for passes in found.values() for each in passes.done]
    answers = java.run("CleanLog", given=[each.request for each in every])
    for each, answer in zip(every, answers, strict=True):
        assert "result" in answer, answer
        assert {name: answer["result"][name] for name in each.facts} == each.facts
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kafkas_cleaner_and_ours_leave_the_same(case: Case, passes_by_case: dict[str, Passes]) -> None:
    """Batch by batch and byte by byte where nothing is compressed; indexes too then, which name positions."""
    passes = passes_by_case[case.name]
    for each in passes.done:
        assert each.left == contents(each.kafkas, *passes.exact)
    assert len(passes.done) == ROUNDS
    assert passes.dropped > 1000
    assert passes.keyless
    assert passes.indexed, "some aborted transaction still had batches"
    assert any(header.has_delete_horizon and not header.is_control for header in passes.headers)
    assert any(header.has_delete_horizon and header.is_control for header in passes.headers)
    assert any(not header.record_count for header in passes.headers)
