"""fsck finds every kind of damage that is planted, says what it is, and mends what it is asked to."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from kafka_wire.records.batch import build_batch
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import NewRecord
from tests.storage.data_directories import OFFSETS, ORDERS, batches_in, write_data_directory
from tests.storage.directory_findings import findings_in
from trio_broker.cli import main
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import producer_snapshot
from trio_broker.storage.findings import FindingKind

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template") / "data"
    write_data_directory(RealDisk(), directory)
    return directory


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "data"))


def fsck(*arguments: str | Path) -> tuple[int, Any]:
    result = CliRunner().invoke(main, ["fsck", "--json", "--processes", "1", *map(str, arguments)])
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


def orders(data: Path, suffix: str, number: int = 0) -> Path:
    return sorted((data / str(ORDERS)).glob(f"0*{suffix}"))[number]


def flip(path: Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def in_batch(number: int, at: int, bit: int = 0) -> Damage:
    """Turn over a bit in a batch of the third segment; ``at`` counts from the beginning of the batch."""

    def damage(data: Path) -> None:
        path = orders(data, ".log", 2)
        position = batches_in(path.read_bytes())[number][0]
        flip(path, position + at, bit)

    return damage


def in_file(suffix: str, at: int, bit: int = 0, number: int = 0) -> Damage:
    return lambda data: flip(orders(data, suffix, number), at, bit)


def in_text(name: str, old: str, new: str) -> Damage:
    def damage(data: Path) -> None:
        content = (data / name).read_text()
        assert old in content, content
        (data / name).write_text(content.replace(old, new, 1))

    return damage


def without(suffix: str, number: int) -> Damage:
    return lambda data: orders(data, suffix, number).unlink()


def cut_log(data: Path) -> None:
    path = orders(data, ".log", -1)
    path.write_bytes(path.read_bytes()[:-7])


def put_wrong_count(data: Path) -> None:
    """A batch with a right checksum that counts more records than it has."""
    path = orders(data, ".log", 2)
    content = bytearray(path.read_bytes())
    position, batch = next(each for each in batches_in(bytes(content)) if not each[1].header.codec)
    struct.pack_into(">i", content, position + 57, 2)
    end = position + batch.header.size_bytes
    struct.pack_into(">I", content, position + 17, crc32c(content[position + 21 : end]))
    path.write_bytes(content)


def in_snapshot(number: int, **changed: Any) -> Damage:
    """Change what a snapshot says of its first producer, under a right checksum; of its last batch too."""

    def damage(data: Path) -> None:
        path = orders(data, ".snapshot", number)
        entry, *others = producer_snapshot.decode(path.read_bytes(), "")
        of_batch = {name: value for name, value in changed.items() if hasattr(entry.batches[-1], name)}
        batch = attrs.evolve(entry.batches[-1], **of_batch)
        fields = {name: value for name, value in changed.items() if name not in of_batch}
        path.write_bytes(producer_snapshot.encode([attrs.evolve(entry, batches=[batch], **fields), *others]))

    return damage


def put_older_snapshot(data: Path) -> None:
    """The last snapshot is the one before it, whole and of another offset."""
    orders(data, ".snapshot", -1).write_bytes(orders(data, ".snapshot", -3).read_bytes())


def replace_records(directory: str, key: bytes | None, value: bytes) -> Damage:
    def damage(data: Path) -> None:
        path = data / directory / f"{0:020d}.log"
        content = path.read_bytes()
        base = batches_in(content)[-1][1].header.next_offset
        batch = bytearray(build_batch([NewRecord(1_700_000_000_000, key, value)], base_offset=base))
        path.write_bytes(content + batch)

    return damage


def move_last_batch(partition: TopicPartition) -> Damage:
    def damage(data: Path) -> None:
        path = max((data / str(partition)).glob("*.log"))
        flip(path, batches_in(path.read_bytes())[-1][0] + 6)

    return damage


KIND = FindingKind
PLANTED: dict[str, tuple[Damage, FindingKind]] = {
    "a value": (in_batch(1, 90, 3), KIND.BATCH),
    "a checksum": (in_batch(1, 18), KIND.BATCH),
    "a batch length": (in_batch(1, 9), KIND.BATCH),
    "a magic": (in_batch(1, 16, 6), KIND.BATCH),
    "a magic of old": (in_batch(1, 16, 1), KIND.BATCH),
    "a codec": (in_batch(2, 22, 2), KIND.BATCH),
    "a base offset, upward": (in_batch(2, 5, 4), KIND.BATCH),
    "the last base offset, upward": (move_last_batch(ORDERS), KIND.LOST_BATCHES),
    "the last base offset of a compacted log, upward": (move_last_batch(OFFSETS), KIND.LOST_BATCHES),
    "a leader epoch, upward": (in_batch(2, 13, 1), KIND.LEADER_EPOCHS),
    "a leader epoch below zero": (in_batch(2, 12, 7), KIND.BATCH),
    "a leader epoch, downward": (lambda data: flip(orders(data, ".log", -1), 15, 1), KIND.BATCH),
    "a record count": (put_wrong_count, KIND.BATCH),
    "the end of the last log": (cut_log, KIND.BATCH),
    "a log that is gone": (without(".log", 3), KIND.LOST_BATCHES),
    "an index position": (in_file(".index", 7, 4, 2), KIND.OFFSET_INDEX),
    "a negative index position": (in_file(".index", 4, 7, 2), KIND.OFFSET_INDEX),
    "an index offset": (in_file(".index", 3, 0, 2), KIND.OFFSET_INDEX),
    "an index that is gone": (without(".index", 2), KIND.OFFSET_INDEX),
    "a time": (in_file(".timeindex", 6, 3, 2), KIND.TIME_INDEX),
    "an offset of a time": (in_file(".timeindex", 11, 3, 2), KIND.TIME_INDEX),
    "a last time": (lambda data: flip(orders(data, ".timeindex", 2), -5, 1), KIND.TIME_INDEX),
    "an aborted transaction's producer": (in_file(".txnindex", 9, 1), KIND.TRANSACTION_INDEX),
    "an aborted transaction's beginning": (in_file(".txnindex", 17, 0), KIND.TRANSACTION_INDEX),
    "aborted transactions that are gone": (without(".txnindex", 0), KIND.TRANSACTION_INDEX),
    "a producer snapshot": (in_file(".snapshot", 20, 0, -1), KIND.SNAPSHOT),
    "an older producer snapshot": (in_file(".snapshot", 20, 0, 3), KIND.SNAPSHOT),
    "a snapshot's sequence": (in_snapshot(-1, last_sequence=7), KIND.SNAPSHOT),
    "a snapshot's offset": (in_snapshot(3, last_offset=1), KIND.SNAPSHOT),
    "a snapshot's producer epoch": (in_snapshot(3, producer_epoch=4), KIND.SNAPSHOT),
    "a snapshot's producer": (in_snapshot(3, producer_id=77), KIND.SNAPSHOT),
    "a snapshot's transaction": (in_snapshot(-1, transaction_first_offset=3), KIND.SNAPSHOT),
    "a snapshot of another offset": (put_older_snapshot, KIND.SNAPSHOT),
    "an epoch": (in_text("orders-0/leader-epoch-checkpoint", "\n3 ", "\n2 "), KIND.LEADER_EPOCHS),
    "the start of an epoch": (in_text("orders-0/leader-epoch-checkpoint", "\n3 6", "\n3 1"), KIND.LEADER_EPOCHS),
    "the count of epochs": (in_text("orders-0/leader-epoch-checkpoint", "0\n2\n", "0\n7\n"), KIND.LEADER_EPOCHS),
    "recovery points": (in_text("recovery-point-offset-checkpoint", "0\n3\n", "0\n1\n"), KIND.CHECKPOINT),
    "a recovery point": (
        in_text("recovery-point-offset-checkpoint", "orders 0 1", "orders 0 91"), KIND.LOST_BATCHES,
    ),
    "a high watermark": (in_text("replication-offset-checkpoint", "orders 0 1", "orders 0 91"), KIND.CHECKPOINT),
    "a log start": (
        in_text("log-start-offset-checkpoint", "0\n0\n", "0\n1\norders 0 900\n"), KIND.LOG_START_CHECKPOINT,
    ),
    "log starts": (in_text("log-start-offset-checkpoint", "0\n0\n", "0\nx\n"), KIND.LOG_START_CHECKPOINT),
    "meta.properties": (in_text("meta.properties", "version=1", "version=9"), KIND.IDENTITY),
    "a topic id": (in_text("orders-0/partition.metadata", "AAA", "AAB"), KIND.IDENTITY),
    "partition.metadata": (in_text("orders-0/partition.metadata", "version: 0", "version: 8"), KIND.IDENTITY),
    "a committed offset": (replace_records("__consumer_offsets-0", b"\x00\x01\x00", b"?"), KIND.RECORD),
    "metadata": (replace_records("__cluster_metadata-0", None, b"\x01\x02\x00\x7f"), KIND.RECORD),
}  # fmt: skip


def test_a_directory_of_a_clean_stop_is_clean(data: Path) -> None:
    code, document = fsck(data)
    assert (code, document["findings"]) == (0, [])
    partition = next(each for each in document["partitions"] if each["partition"] == "orders-0")
    assert (partition["segments"] >= 4, partition["batches"], partition["torn_bytes"]) == (True, 48, 0)


def test_a_check_changes_nothing(data: Path) -> None:
    in_batch(1, 90)(data)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    fsck(data)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_damage_is_found(data: Path, planted: str) -> None:
    damage, kind = PLANTED[planted]
    damage(data)
    code, document = fsck(data)
    assert kind.value in {finding["kind"] for finding in document["findings"]}, document["findings"]
    assert code == (3 if all(finding["derived"] for finding in document["findings"]) else 4)


@pytest.mark.parametrize("planted", [name for name, (_, kind) in PLANTED.items() if kind.is_derived])
def test_derived_files_are_made_anew(data: Path, template: Path, planted: str) -> None:
    PLANTED[planted][0](data)
    code, document = fsck("--rebuild", data)
    if planted == "a leader epoch, upward":
        return  # the batch says so; only the metadata could tell that it is wrong
    assert (code, document["findings"]) == (0, []), document
    for path in template.rglob("*.log"):
        assert (data / path.relative_to(template)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "planted",
    [
        "a value",
        "a batch length",
        "a magic",
        "the end of the last log",
        "the last base offset, upward",
        "a log that is gone",
        "a log start",
    ],
)
def test_a_loss_that_is_accepted_keeps_what_was_there(data: Path, planted: str) -> None:
    PLANTED[planted][0](data)
    damaged = {path.read_bytes() for path in (data / str(ORDERS)).glob("*.log")}
    code, document = fsck("--accept-loss", "orders-0", data)
    assert (code, document["findings"]) == (0, []), document
    assert document["actions"]
    left = [path.read_bytes() for path in (data / str(ORDERS)).glob("*.log*")]
    assert all(any(content == other for other in left) for content in damaged if content), "every byte is still there"


def test_a_damaged_log_is_not_rebuilt_without_the_loss_accepted(data: Path) -> None:
    in_batch(1, 90)(data)
    in_file(".index", 4, 7, 2)(data)
    code, document = fsck("--rebuild", data)
    assert (code, document["actions"]) == (4, [])


def test_one_report_has_all_damage_of_a_log(data: Path) -> None:
    for number in (0, 2, 4):
        flip(orders(data, ".log", number), 90)
    found = [each for each in findings_in(RealDisk(), data) if each.kind is FindingKind.BATCH]
    assert [each.path for each in found] == [orders(data, ".log", number) for number in (0, 2, 4)]


def test_a_torn_tail_after_a_kill_is_no_damage(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_data_directory(RealDisk(), data, clean=False)
    path = orders(data, ".log", -1)
    path.write_bytes(path.read_bytes() + path.read_bytes()[:100])
    flip(path, -60)
    code, document = fsck(data)
    assert (code, document["findings"]) == (0, [])
    assert next(each for each in document["partitions"] if each["partition"] == "orders-0")["torn_bytes"] == 100


def test_indexes_as_kafka_4_4_closes_a_log_with_are_no_damage(data: Path) -> None:
    """Those of the last segment keep the zeros behind their entries, and the time index lacks the last one: in the
    metadata log that a broker leaves, and in any log that a program closes by itself.
    """
    partition = data / str(ORDERS)
    last = max(partition.glob("*.log")).stem
    for suffix, entry_bytes, left_out in ((".index", 8, 0), (".timeindex", 12, 1)):
        index = partition / f"{last}{suffix}"
        entries = index.read_bytes()
        index.write_bytes(entries[: len(entries) - left_out * entry_bytes] + bytes(10 * entry_bytes))
    assert fsck(data)[0] == 0


def test_a_new_partition_whose_id_a_power_cut_took_is_no_damage(data: Path) -> None:
    (data / "payments-0").mkdir()
    (data / "payments-0" / "partition.metadata").touch()
    code, document = fsck(data)
    assert (code, document["findings"]) == (0, [])


def test_a_directory_that_a_broker_has_open_is_refused(data: Path) -> None:
    lock = RealDisk().lock(data / ".lock")
    try:
        result = CliRunner().invoke(main, ["fsck", str(data)])
    finally:
        lock.release()
    assert (result.exit_code, "is in use" in result.stderr) == (1, True)


def test_directories_of_two_nodes_are_reported(data: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(data, tmp_path / "other"))
    in_text("meta.properties", "node.id=1", "node.id=2")(other)
    code, document = fsck(data, other)
    assert (code, [each["kind"] for each in document["findings"]]) == (4, ["identity"])


def test_a_partition_that_is_not_there_cannot_be_accepted(data: Path) -> None:
    result = CliRunner().invoke(main, ["fsck", "--accept-loss", "payments-0", str(data)])
    assert (result.exit_code, "no directory holds payments-0" in result.stderr) == (1, True)


def test_the_report_is_readable(data: Path) -> None:
    in_batch(1, 90)(data)
    result = CliRunner().invoke(main, ["fsck", "--processes", "2", str(data)])
    assert result.exit_code == 4
    first, *_, last = result.stdout.splitlines()
    assert first.startswith(f"DAMAGED batch: {orders(data, '.log', 2)} at position ")
    assert last == "1 damaged, of which 0 can be made anew by --rebuild"
