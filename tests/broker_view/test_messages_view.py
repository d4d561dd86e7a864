"""The records of a running broker: fetched as a consumer, appended as a producer, and our own formats decoded."""

from __future__ import annotations

from pathlib import Path

from broker_admin.views.cluster.messages import NewMessage
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.records.record import Record
from kafka_wire.stored.groups import GroupRecord, OffsetCommitKey, OffsetCommitValue, encode_group_record
from tests.running_broker import connected, running, view_of
from trio_broker.broker_view.cluster.messages import batches_of
from trio_broker.broker_view.cluster.own_formats import read_own_format


async def test_what_is_appended_is_fetched(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as kafka:
        await kafka.create_topic("orders", partitions=2)
        view = view_of(broker)
        sent = [
            NewMessage(b"k", b"one", (("h", b"1"), ("n", None)), partition=1, timestamp_ms=1000),
            NewMessage(None, None, partition=1, timestamp_ms=2000),
        ]
        appended = await view.cluster.messages.append("orders", sent)
        assert appended is not None
        assert [(each.partition, each.offset, each.error) for each in appended] == [(1, 0, None), (1, 1, None)]
        [empty, full] = await view.cluster.messages.readable_partitions("orders") or []
        assert (empty.end_offset, full.log_start_offset, full.end_offset) == (0, 0, 2)
        [fetched] = await view.cluster.messages.fetch_batches("orders", {1: 0}, max_bytes=1 << 20)
        [batch] = fetched.batches()
        assert (batch.info.base_offset, batch.info.last_offset, batch.info.codec) == (0, 1, "none")
        records = [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in batch.records()]
        assert records == [(0, 1000, b"k", b"one", (("h", b"1"), ("n", None))), (1, 2000, None, None, ())]
        assert await view.cluster.messages.offsets_at("orders", [0, 1], 1500) == {0: 0, 1: 1}


async def test_a_key_chooses_the_partition_as_in_kafkas_clients(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as kafka:
        await kafka.create_topic("orders", partitions=10)
        appended = await view_of(broker).cluster.messages.append(
            "orders", [NewMessage(b"21", b""), NewMessage(b"21", b"")]
        )
        assert appended is not None
        # murmur2("21") is -973932308 in Kafka's UtilsTest; without its sign bit that is 1173551340.
        assert [(each.partition, each.offset) for each in appended] == [(0, 0), (0, 1)]


async def test_what_cannot_be_appended_says_why(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as kafka:
        await kafka.create_topic("orders", partitions=1)
        view = view_of(broker)
        assert await view.cluster.messages.append("missing", [NewMessage(b"k", b"v")]) is None
        messages = [NewMessage(b"k", b"v", partition=7), NewMessage(b"k", b"v"), NewMessage(b"k", b"x" * 1_100_000)]
        appended = await view.cluster.messages.append("orders", messages)
        assert appended is not None
        errors = [(each.error or "").partition(":")[0] for each in appended]
        assert errors == ["UNKNOWN_TOPIC_OR_PARTITION", "", "MESSAGE_TOO_LARGE"]


async def test_a_dry_run_appends_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as kafka:
        await kafka.create_topic("orders", partitions=1)
        view = view_of(broker)
        appended = await view.cluster.messages.append("orders", [NewMessage(b"k", b"v")], dry_run=True)
        assert [(each.offset, each.error) for each in appended or ()] == [(None, None)]
        assert [each.end_offset for each in await view.cluster.messages.readable_partitions("orders") or ()] == [0]


async def test_internal_topics_take_no_records(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as kafka:
        await kafka.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        appended = await view_of(broker).cluster.messages.append("__consumer_offsets", [NewMessage(b"k", b"v")])
        assert [each.error for each in appended or ()] == ["INVALID_TOPIC_EXCEPTION: __consumer_offsets is internal"]


def test_commits_are_decoded() -> None:
    key, value = encode_group_record(
        GroupRecord(
            OffsetCommitKey(group="g", topic="orders", partition=3),
            OffsetCommitValue(
                offset=7, leader_epoch=1, metadata="note", commit_timestamp=1000, topic_id=bytes(range(16))
            ),
        )
    )
    record = Record(0, 0, key, value)
    found = read_own_format("__consumer_offsets", False, record)
    assert found is not None
    assert found.key == {"type": "OffsetCommit", "group": "g", "topic": "orders", "partition": 3}
    assert found.value == {
        "offset": 7, "leader_epoch": 1, "metadata": "note", "commit_timestamp": 1000, "expire_timestamp": -1,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
    }  # fmt: skip
    assert read_own_format("orders", False, record) is None
    assert read_own_format("__consumer_offsets", False, Record(0, 0, b"\0\1x", value)) is None


def test_batches_keep_the_order_within_a_partition() -> None:
    messages = [NewMessage(None, b"x" * 300_000) for _ in range(4)]
    assert list(batches_of(messages, [0, 1, 0, 0])) == [(0, [0]), (0, [2]), (1, [1]), (0, [3])]
