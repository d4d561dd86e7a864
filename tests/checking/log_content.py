"""Whether a log holds every acknowledged record once, at its offset, and each sender's records in the order of sending.

Senders count their values up. A send without an answer may be in the log, though not twice. The log has neither
transactions nor compaction, so each offset has a record.

Source: Kafka's documentation on idempotent producers, and on the order of records within a partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.checking.delivery import ONLY_WHAT_WAS_SENT
from tests.checking.history import Event, Op, Outcome, Record, Violation
from tests.waits import scaled

EXACTLY_ONCE = "every acknowledged record is in the log exactly once"
IN_ORDER = "records are in the order of sending"
EVERY_OFFSET = "every offset has a record"

READ_SECONDS = 60.0
READ_AT_ONCE = 10_000

Log = Mapping[int, Sequence[Record]]
"""What is in each partition, in its order."""

ProducerEpochs = Mapping[int, Mapping[int, int]]
"""The epoch of the producer of each record, by partition and offset."""


def read_log(servers: str, topic: str) -> Log:
    """Everything in a topic, read by a consumer in no group."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "log reader", "enable.auto.commit": False})
    log: dict[int, list[Record]] = {partition: [] for partition in consumer.list_topics(topic).topics[topic].partitions}
    places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in log]
    left = sum(consumer.get_watermark_offsets(place, scaled(READ_SECONDS))[1] for place in places)
    consumer.assign(places)
    while left > 0:
        messages = consumer.consume(min(left, READ_AT_ONCE), timeout=scaled(READ_SECONDS))
        assert messages, f"{left} records of {topic} did not come"
        for message in messages:
            assert message.error() is None, message.error()
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            log[partition].append(Record(partition, offset, int(value)))
        left -= len(messages)
    consumer.close()
    return log


def check_log(history: Sequence[Event], log: Log, epochs: ProducerEpochs | None = None) -> list[Violation]:
    """Every record that was lost, doubled, moved or invented.

    With ``epochs``, what a producer sent again in a later epoch of its own is not doubled: librdkafka 2.16.0 begins an
    epoch when a batch of one partition is refused for a gap in its sequence, and numbers anew what every partition has
    not acknowledged, what may have been appended included. No broker can recognise that.
    """
    sends = [event for event in history if event.op is Op.SEND and event.outcome is not Outcome.FAIL]
    once = log if epochs is None else _without_renumbered(log, epochs)
    return [
        *_gaps(log),
        *_counted_wrong(sends, once),
        *_out_of_order({record.value: event.process for event in sends for record in event.records}, once),
    ]


def _without_renumbered(log: Log, epochs: ProducerEpochs) -> Log:
    return {partition: list(_of_newest_epochs(records, epochs[partition])) for partition, records in log.items()}


def _of_newest_epochs(records: Sequence[Record], epochs: Mapping[int, int]) -> Iterator[Record]:
    newest = {record.value: epochs[record.offset] for record in records}
    return (record for record in records if epochs[record.offset] == newest[record.value])


def _gaps(log: Log) -> Iterator[Violation]:
    for partition, records in log.items():
        for offset, record in enumerate(records):
            if record.offset != offset:
                text = f"partition {partition} has offset {record.offset} where {offset} belongs"
                yield Violation(EVERY_OFFSET, text)
                break


def _counted_wrong(sends: Sequence[Event], log: Log) -> Iterator[Violation]:
    found: dict[int, list[Record]] = defaultdict(list)
    for records in log.values():
        for record in records:
            found[record.value].append(record)
    for event in sends:
        for record in event.records:
            places = found.pop(record.value, [])
            if len(places) > 1 or (event.is_ok and places != [record]):
                where = f"{record} was acknowledged" if event.is_ok else f"{record.value} was sent"
                yield Violation(EXACTLY_ONCE, f"{where}; the log has {places}", (event,))
    for value, places in found.items():
        yield Violation(ONLY_WHAT_WAS_SENT, f"nobody sent {value}, which is at {places}")


def _out_of_order(senders: Mapping[int, str], log: Log) -> Iterator[Violation]:
    for records in log.values():
        last: dict[str, Record] = {}
        for record in records:
            sender = senders.get(record.value, "")
            before = last.get(sender)
            if before is not None and before.value >= record.value:
                yield Violation(IN_ORDER, f"{sender} sent {record.value} before {before.value}: {before}, {record}")
            last[sender] = record
