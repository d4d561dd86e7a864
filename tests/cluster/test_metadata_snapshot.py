"""Snapshots of the metadata log: what is in one, and that no crash around one loses anything."""

from __future__ import annotations

from uuid import uuid4

import attrs
import pytest

from kafka_wire.records.batch import read_batches
from kafka_wire.stored.metadata import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.fakes.images import broker_record, image_of, partition_record
from tests.fakes.metadata_logs import append, take_snapshot
from trio_broker.cluster import metadata_log
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from trio_broker.cluster.metadata_snapshot import (
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    image_records,
    snapshots,
)
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.dump import dump

ORDERS, GONE = uuid4().bytes, uuid4().bytes


def config(resource, name, value):
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


HISTORY = [
    FeatureLevelRecord(name="metadata.version", feature_level=25),
    broker_record(
        broker_epoch=7,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
        rack="r1",
    ),
    TopicRecord(name="orders", topic_id=ORDERS),
    partition_record(ORDERS),
    partition_record(ORDERS, 1),
    config(ConfigResource(ConfigResourceType.TOPIC, "orders"), "retention.ms", "1234"),
    config(CLUSTER_DEFAULT, "num.io.threads", "6"),
    config(ConfigResource(ConfigResourceType.BROKER, "1"), "num.io.threads", "9"),
    config(ConfigResource(ConfigResourceType.BROKER, "1"), "num.io.threads", None),
    TopicRecord(name="gone", topic_id=GONE),
    partition_record(GONE),
    config(ConfigResource(ConfigResourceType.TOPIC, "gone"), "retention.ms", "1"),
    RemoveTopicRecord(topic_id=GONE),
    PartitionChangeRecord(partition_id=1, topic_id=ORDERS, leader=1),
    ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=3000),
]


def fold(records):
    return image_of(*records)


def same(image, other):
    """Whether two images know the same, of whatever log."""
    return attrs.asdict(image, recurse=False) == {**attrs.asdict(other, recurse=False), "offset": image.offset}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "__cluster_metadata-0"


def segments(directory):
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def take(log):
    return take_snapshot(log, list(image_records(fold(log.replay()))))


# --- content ---


def test_the_records_of_an_image_fold_into_the_same_image():
    image = fold(HISTORY)
    again = fold(image_records(image))
    assert same(again, image)
    assert (list(again.topics), again.partition_count, again.next_producer_id) == (["orders"], 2, 3000)
    assert again.topics["orders"].partitions[1].leader_epoch == 1


def test_what_is_no_more_is_not_in_a_snapshot():
    assert len(list(image_records(fold(HISTORY)))) == 8


def test_a_snapshot_gives_back_its_records_however_many_batches_they_are(monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.metadata_snapshot.RECORDS_PER_BATCH", 2)
    content = b"".join(encode_snapshot(4, HISTORY, last_timestamp_ms=5, now_ms=6))
    assert list(decode_snapshot(content)) == HISTORY
    headers = [batch.header for batch in read_batches(content)]
    assert len(headers) == 10
    assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]


def test_header_and_footer_are_those_of_kafka_byte_by_byte():
    content = b"".join(encode_snapshot(4, HISTORY[:1], last_timestamp_ms=0x0102030405060708, now_ms=6))
    header, data, footer = read_batches(content)
    [first], [last] = header.records(), footer.records()
    assert (first.key, first.value) == (b"\0\0\0\3", b"\0\0" + bytes(range(1, 9)) + b"\0")
    assert (last.key, last.value) == (b"\0\0\0\4", b"\0\0\0")
    assert [each.header.is_control for each in (header, data, footer)] == [True, False, True]
    assert [each.header.base_offset for each in (header, data, footer)] == [0, 1, 2]
    assert {each.header.partition_leader_epoch for each in (header, data, footer)} == {4}
    assert {each.header.max_timestamp for each in (header, data, footer)} == {6}


def test_a_file_is_named_by_end_offset_and_epoch(directory):
    assert SnapshotId(42, 7).file_name == "00000000000000000042-0000000007.checkpoint"
    directory.mkdir()
    for name in (SnapshotId(42, 7).file_name, SnapshotId(9, 8).file_name, "1-1.checkpoint", "x.checkpoint.tmp"):
        (directory / name).touch()
    assert snapshots(RealDisk(), directory) == [SnapshotId(9, 8), SnapshotId(42, 7)]


# --- beside the log ---


async def test_after_a_snapshot_the_log_begins_where_it_ends_and_the_image_is_the_same(reopen, directory):
    log = reopen()
    await append(log, HISTORY)
    image, end_offset = fold(log.replay()), log.log_end_offset
    snapshot = take(log)
    assert snapshot == SnapshotId(end_offset, log.leader_epoch)
    assert log.log.log_start_offset == end_offset
    assert segments(directory) == [end_offset]
    assert same(fold(reopen().replay()), image)


async def test_what_comes_after_a_snapshot_is_replayed_after_it(reopen):
    log = reopen()
    await append(log, HISTORY)
    take(log)
    await append(log, [RemoveTopicRecord(topic_id=ORDERS)])
    offset, epoch = log.log_end_offset, log.leader_epoch
    log = reopen()
    assert fold(log.replay()).topics == {}
    assert (log.log_end_offset, log.leader_epoch) == (offset + 1, epoch + 1)


async def test_a_second_snapshot_takes_the_place_of_the_first(reopen, directory):
    log = reopen()
    await append(log, HISTORY)
    take(log)
    log = reopen()
    await append(log, [RemoveTopicRecord(topic_id=ORDERS)])
    second = take(log)
    assert snapshots(RealDisk(), directory) == [second]
    assert fold(reopen().replay()).topics == {}


async def test_a_log_closed_after_a_snapshot_opens_again(reopen):
    log = reopen()
    await append(log, HISTORY)
    image = fold(log.replay())
    take(log)
    log.close()
    assert same(fold(reopen().replay()), image)


async def test_a_snapshot_is_due_when_the_log_since_the_last_one_is_long(reopen, monkeypatch):
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 10)
    log = reopen()
    assert not log.is_snapshot_due
    await append(log, HISTORY)
    assert log.is_snapshot_due
    take(log)
    assert not log.is_snapshot_due
    assert not reopen().is_snapshot_due


# --- crashes and damage ---


class Crash(Exception):
    """The broker dies here."""


STEPS = (
    "trio_broker.runtime.real_disk.RealDisk.rename",
    "trio_broker.storage.log.Log.roll",
    "trio_broker.storage.log.Log.advance_log_start",
    "trio_broker.storage.log.Log.delete_expired_segments",
    "trio_broker.storage.log.Log.remove_deleted_files",
    "trio_broker.cluster.metadata_log.remove_older",
)


@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_before_any_step_of_a_snapshot_loses_nothing(reopen, directory, step):
    log = reopen()
    await append(log, HISTORY)
    take(log)
    log = reopen()
    await append(log, [TopicRecord(name="later", topic_id=GONE), partition_record(GONE)])
    image = fold(log.replay())

    def crash(*arguments):
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, crash)
        with pytest.raises(Crash):
            take(log)
    log = reopen()
    assert same(fold(log.replay()), image)
    # And the next one completes what was left.
    snapshot = take(log)
    assert snapshots(RealDisk(), directory) == [snapshot]
    assert segments(directory) == [snapshot.end_offset]
    assert not list(directory.glob("*.tmp"))
    assert same(fold(reopen().replay()), image)


async def test_segments_that_a_crash_left_before_a_snapshot_do_not_matter_even_with_gaps(reopen, directory):
    log = reopen()
    for record in HISTORY:
        await append(log, [record])
        log.log.roll(0)
    image = fold(log.replay())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trio_broker.storage.log.Log.delete_expired_segments", lambda *_: [])
        take(log)
    for base_offset in segments(directory)[2:5]:
        (directory / f"{base_offset:020}.log").unlink()
    assert same(fold(reopen().replay()), image)


async def test_a_log_without_the_snapshot_it_begins_at_ends_the_start(reopen, directory):
    log = reopen()
    await append(log, HISTORY)
    snapshot = take(log)
    (directory / snapshot.file_name).unlink()
    with pytest.raises(MetadataLogUnusable, match="begins at offset 16, and there is no snapshot of what was before"):
        reopen()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "no snapshot header"),
        (lambda content: content[:-1], "no snapshot footer"),
        (lambda content: content[:-80], "no snapshot footer"),
        (lambda content: content[:100] + bytes([content[100] ^ 0xFF]) + content[101:], "cannot be read"),
    ],
)
async def test_a_damaged_snapshot_ends_the_start(reopen, directory, damage, reason):
    log = reopen()
    await append(log, HISTORY)
    path = directory / take(log).file_name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MetadataLogUnusable, match=reason):
        list(reopen().replay())


async def test_a_dump_tells_which_snapshot_it_is_and_what_its_batches_say(reopen, directory):
    log = reopen()
    await append(log, HISTORY)
    lines = list(dump(RealDisk(), directory / take(log).file_name, deep=True))
    assert lines[1] == "Snapshot end offset: 16, epoch: 1"
    assert [line.split("controlType: ")[1] for line in lines if "controlType" in line] == [
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
    ]
    assert not [line for line in lines if "invalid" in line or "isvalid: false" in line]
