"""Reading over the wire from our own broker, while it is restarted, killed, and its logs lose their beginnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import attrs
import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from tests.spark.topic_records import fill, numbers
from tests.waits import TimeLeft, within
from trio_broker.client.address import parse_addresses
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.decoder import decode
from trio_broker.spark.errors import DataLoss
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask, read_task
from trio_broker.spark.wire.transport import WireTransport
from trio_broker.testing import BrokerThread

SECONDS = 30.0
BATCHES = 10
BATCH_RECORDS = 20
RECORDS = BATCHES * BATCH_RECORDS
VALUE_ONLY = Decoding(columns=("offset", "value"))
ONE_BATCH_BYTES = 1
"""So little that every answer has a single batch."""


def fill_in_batches(broker: BrokerThread, topic: str) -> None:
    """Send ``RECORDS`` numbers, each ``BATCH_RECORDS`` of them together."""
    for start in range(0, RECORDS, BATCH_RECORDS):
        fill(broker, topic, numbers(start, start + BATCH_RECORDS))


def transport_of(broker: BrokerThread, **changes: Any) -> WireTransport:
    kafka = KafkaSettings(parse_addresses(broker.bootstrap_servers), max_partition_fetch_bytes=ONE_BATCH_BYTES)
    return attrs.evolve(WireTransport(kafka), **changes)


def whole(topic: str, end: int = RECORDS) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, 0), 0, end)


def rows_of(task: ReadTask) -> list[dict[str, Any]]:
    return [row for batch in read_task(task) for row in batch.to_pylist()]


@contextmanager
def interrupted(transport: WireTransport, topic: str, interrupt: Callable[[], object]) -> Iterator[Iterator[bytes]]:
    """The values of a topic one by one; after the first chunk of them ``interrupt`` is called."""

    def chunks(opened: Iterator[Chunk]) -> Iterator[Chunk]:
        yield next(opened)
        interrupt()
        yield from opened

    with closing(transport.chunks(whole(topic))) as opened:
        yield (
            value
            for batch in decode(chunks(opened), whole(topic), VALUE_ONLY)
            for value in batch.column("value").to_pylist()
        )


def test_what_was_sent_is_read(kafka_broker_session: BrokerThread):
    broker, topic = kafka_broker_session, "read-over-the-wire"
    broker.create_topic(topic)
    fill_in_batches(broker, topic)
    for start, end in [(0, RECORDS), (7, 8), (33, 151)]:
        offsets = OffsetRange(TopicPartition(topic, 0), start, end)
        rows = rows_of(ReadTask(offsets, transport_of(broker), VALUE_ONLY))
        assert [row["offset"] for row in rows] == list(range(start, end))
        assert [row["value"] for row in rows] == numbers(start, end)


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_broker_that_starts_again_is_waited_for(kafka_broker: BrokerThread, how: str):
    kafka_broker.create_topic("t")
    fill_in_batches(kafka_broker, "t")

    def interrupt() -> None:
        if how == "kill":
            kafka_broker.kill()
            kafka_broker.start()
        else:
            kafka_broker.restart()

    with interrupted(transport_of(kafka_broker), "t", interrupt) as values:
        assert list(values) == numbers(0, RECORDS)


def test_deleted_records_are_lost_data_and_skipped_where_that_does_not_matter(kafka_broker_session: BrokerThread):
    broker, topic = kafka_broker_session, "records-deleted"
    broker.create_topic(topic)
    fill_in_batches(broker, topic)

    def delete_records() -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        wanted = ConfluentPartition(topic, 0, 95)
        within(admin.delete_records([wanted])[wanted].result, SECONDS)

    with interrupted(transport_of(broker, fail_on_data_loss=False), topic, delete_records) as values:
        # The second answer was on its way before the records were deleted.
        assert list(values) in (
            numbers(0, BATCH_RECORDS) + numbers(95, RECORDS),
            numbers(0, 2 * BATCH_RECORDS) + numbers(95, RECORDS),
        )
    task = ReadTask(whole(topic), transport_of(broker), VALUE_ONLY)
    with pytest.raises(DataLoss, match=f"{topic}-0 at offset 0: the log begins at offset 95 now and ends at 200"):
        rows_of(task)


def test_a_topic_that_is_deleted_and_created_again_is_lost_data(kafka_broker_session: BrokerThread):
    broker, topic = kafka_broker_session, "created-again"
    topic_id = broker.create_topic(topic)
    fill_in_batches(broker, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    within(admin.delete_topics([topic])[topic].result, SECONDS)
    task = ReadTask(whole(topic), transport_of(broker, topic_id=topic_id), VALUE_ONLY)
    with pytest.raises(DataLoss, match=f"topic '{topic}': UNKNOWN_TOPIC_OR_PARTITION"):
        rows_of(task)
    broker.create_topic(topic)
    fill_in_batches(broker, topic)
    with pytest.raises(DataLoss, match=f"deleted and created again: its id was {topic_id}"):
        rows_of(task)


def test_a_compacted_log_is_read_over_its_gaps(kafka_broker: BrokerThread):
    """Offsets that compaction removed are no loss, and the newest value of every key comes."""
    kafka_broker.create_topic(
        "t", cleanup_policy="compact", internal_segment_bytes=2000, min_cleanable_dirty_ratio=0.01
    )
    for key in (b"a", b"b", b"a", b"c"):
        fill(kafka_broker, "t", numbers(0, 50), key=key)
    wait_until_compacted(kafka_broker)
    rows = rows_of(ReadTask(whole("t"), transport_of(kafka_broker), Decoding(columns=("offset", "key", "value"))))
    assert {row["key"]: row["value"] for row in rows} == dict.fromkeys((b"a", b"b", b"c"), b"49")
    assert len(rows) < RECORDS
    assert rows[-1]["offset"] == RECORDS - 1


def wait_until_compacted(broker: BrokerThread) -> None:
    cleaner = broker.broker.services.replicas.log_maintenance.log_cleaner
    time_left = TimeLeft(SECONDS)
    while (reported := cleaner.statistics()).records_kept == reported.records_read or reported.under_way:
        assert not time_left.is_over, "nothing was compacted"
        broker.advance_clock(60)
        time.sleep(0.01)
