"""Metadata records lie in the log as Kafka's controllers write them, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from kafka_wire.errors import WireError
from kafka_wire.stored.metadata import (
    METADATA_RECORDS,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

TOPIC_ID = bytes(range(16))


def test_a_record_starts_with_frame_version_type_and_version() -> None:
    """Worked out by hand: 1, 2, 0; a compact string of four bytes; sixteen bytes; no tagged fields."""
    value = encode_metadata_record(TopicRecord(name="logs", topic_id=TOPIC_ID))
    assert value == b"\x01\x02\x00" + b"\x05logs" + TOPIC_ID + b"\x00"


def test_a_record_without_fields_is_its_prefix_and_no_tags() -> None:
    assert encode_metadata_record(NoOpRecord()) == b"\x01\x14\x00\x00"


def test_the_newest_version_is_written_unless_another_is_asked_for() -> None:
    record = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    assert encode_metadata_record(record)[:3] == b"\x01\x03\x02"
    assert encode_metadata_record(record, 0)[:3] == b"\x01\x03\x00"


def test_an_unchanged_field_of_a_change_record_takes_no_bytes() -> None:
    """All but the partition are tagged: here one tag, number 1, four bytes long."""
    record = PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, leader=2)
    expected = b"\x01\x05\x02" + b"\x00\x00\x00\x03" + TOPIC_ID + b"\x01" + b"\x01\x04\x00\x00\x00\x02"
    assert encode_metadata_record(record) == expected


def test_tags_are_written_in_the_order_of_their_numbers() -> None:
    """Tag 8 is declared before 6 and 7, as in Kafka's schema; on the wire it comes after them."""
    record = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, directories=[], eligible_leader_replicas=[], last_known_elr=[]
    )
    assert encode_metadata_record(record)[-10:] == b"\x03" + b"\x06\x01\x01" + b"\x07\x01\x01" + b"\x08\x01\x01"


def test_no_change_and_no_leader_are_distinguished() -> None:
    unchanged = decode_metadata_record(
        encode_metadata_record(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1]))
    )
    leaderless = decode_metadata_record(
        encode_metadata_record(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    )
    assert (unchanged.leader, unchanged.isr, unchanged.replicas) == (-2, [1], None)
    assert (leaderless.leader, leaderless.isr) == (-1, None)


def test_a_broker_is_fenced_when_it_registers_and_a_change_may_lift_the_fence() -> None:
    registration = RegisterBrokerRecord(
        broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=0, end_points=[], features=[], rack=None
    )
    assert decode_metadata_record(encode_metadata_record(registration)).fenced
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=-1)
    assert decode_metadata_record(encode_metadata_record(change)).fenced == -1


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(topic_id=TOPIC_ID),
        ConfigRecord(resource_type=2, resource_name="logs", name="retention.ms", value=None),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_reads_as_it_was_written(record: object) -> None:
    assert decode_metadata_record(encode_metadata_record(record)) == record
    assert decode_metadata_record(memoryview(encode_metadata_record(record))) == record


def test_a_version_that_cannot_say_it_is_refused() -> None:
    record = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[1])
    with pytest.raises(ValueError, match="eligible_leader_replicas"):
        encode_metadata_record(record, 1)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"", "varint"),
        (b"\x01", "varint"),
        (b"\x01\x02", "varint"),
        (b"\x00\x02\x00\x01", "frame version 0"),
        (b"\x02\x02\x00\x01", "frame version 2"),
        (b"\x01\x63\x00\x00", "unknown type 99"),
        (b"\x01\x06\x00\x00", "unknown type 6"),
        (b"\x01\x02\x01" + b"\x05logs" + TOPIC_ID + b"\x00", "TopicRecord in version 1"),
        (b"\x01\x02\x00" + b"\x05logs" + TOPIC_ID + b"\x00" + b"?", "1 bytes left over"),
        (b"\xff\xff\xff\xff\xff\xff", "varint"),
    ],
)
def test_what_is_no_record_is_refused(value: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        decode_metadata_record(value)


def test_a_record_that_is_cut_off_anywhere_is_refused() -> None:
    value = encode_metadata_record(TopicRecord(name="logs", topic_id=TOPIC_ID))
    for end in range(len(value)):
        with pytest.raises(WireError):
            decode_metadata_record(value[:end])


def test_no_two_records_share_a_type() -> None:
    types = [record.API_KEY for record in METADATA_RECORDS]
    assert types == sorted(set(types))
