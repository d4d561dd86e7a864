"""What the broker writes for itself is shown as JSON: every record of groups, transactions and metadata, and
control records."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kafka_wire.records.batch import read_batches
from kafka_wire.records.control import ControlRecord, ControlRecordType, EndTransactionMarker, build_control_batch
from kafka_wire.records.record import Record
from kafka_wire.stored.groups import (
    GROUP_RECORDS,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupRecord,
    encode_group_record,
)
from kafka_wire.stored.metadata import METADATA_RECORDS, ConfigRecord, PartitionRecord, encode_metadata_record
from kafka_wire.stored.transactions import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_record,
)
from tests.property_examples import examples
from tests.protocol.message_strategies import messages
from trio_broker.broker_view.cluster.metadata_records import is_secret
from trio_broker.broker_view.cluster.own_formats import SECRET, control_format, read_own_format, without_secrets
from trio_broker.cluster.leader_change import leader_change_value

TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"

KEY = TransactionLogKey(transactional_id="t")
ONGOING = TransactionLogValue(
    producer_id=7,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionStatus.ONGOING,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=4,
)


@pytest.mark.parametrize(("key_kind", "value_kind"), GROUP_RECORDS, ids=lambda kind: kind.__name__)
@examples(Fraction(1, 5))
@given(data=st.data())
def test_every_record_of_a_group_is_shown_with_its_type(key_kind: Any, value_kind: Any, data: st.DataObject) -> None:
    version = value_kind.VERSIONS.high
    record = GroupRecord(data.draw(messages(key_kind, 0)), data.draw(messages(value_kind, version)))
    key, value = encode_group_record(record)
    shown = read_own_format("__consumer_offsets", False, Record(0, 0, key, value))
    assert shown is not None
    assert shown.key["type"] == key_kind.__name__.removesuffix("Key")
    assert json.loads(json.dumps(shown.value)) == shown.value


@pytest.mark.parametrize("kind", METADATA_RECORDS, ids=lambda kind: kind.__name__)
@examples(Fraction(1, 5))
@given(data=st.data())
def test_every_record_of_the_metadata_is_shown_with_its_type(kind: Any, data: st.DataObject) -> None:
    record = data.draw(messages(kind, kind.VERSIONS.high))
    shown = read_own_format("__cluster_metadata", False, Record(0, 0, None, encode_metadata_record(record)))
    assert shown is not None
    assert shown.value["type"] == kind.__name__
    assert json.loads(json.dumps(shown.value)) == shown.value


@examples(Fraction(1, 5))
@given(data=st.data())
def test_every_record_of_a_transaction_is_shown_with_its_type(data: st.DataObject) -> None:
    kind: Any = TransactionLogValue
    value = data.draw(messages(kind, kind.VERSIONS.high))
    record = Record(0, 0, *encode_transaction_record(KEY, value))
    shown = read_own_format("__transaction_state", False, record)
    assert shown is not None
    assert shown.key == {"type": "TransactionLog", "transactional_id": "t"}
    assert shown.value["producer_id"] == value.producer_id
    assert json.loads(json.dumps(shown.value)) == shown.value


def test_the_state_of_a_transaction_is_shown_by_its_name() -> None:
    shown = read_own_format("__transaction_state", False, Record(0, 0, *encode_transaction_record(KEY, ONGOING)))
    assert shown is not None
    assert shown.value["transaction_status"] == "ONGOING"


def test_a_transactional_id_that_has_expired_has_no_value() -> None:
    shown = read_own_format("__transaction_state", False, Record(0, 0, *encode_transaction_record(KEY, None)))
    assert shown is not None
    assert shown.value is None


def test_what_a_member_of_a_consumer_group_said_in_the_classic_protocol_is_decoded() -> None:
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["orders"]))
    classic = ClassicMemberMetadata(supported_protocols=[ClassicProtocol(name="range", metadata=subscription)])
    record = GroupRecord(
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="h",
            subscribed_topic_names=["orders"],
            subscribed_topic_regex=None,
            server_assignor=None,
            classic_member_metadata=classic,
        ),
    )
    key, value = encode_group_record(record)
    shown = read_own_format("__consumer_offsets", False, Record(0, 0, key, value))
    assert shown is not None
    [protocol] = shown.value["classic_member_metadata"]["supported_protocols"]
    assert (protocol["name"], protocol["metadata"]["topics"]) == ("range", ["orders"])


def test_ids_are_their_text_also_in_lists() -> None:
    record = PartitionRecord(
        topic_id=TOPIC_ID, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[], directories=[TOPIC_ID]
    )
    shown = read_own_format("__cluster_metadata", False, Record(0, 0, None, encode_metadata_record(record)))
    assert shown is not None
    assert (shown.value["topic_id"], shown.value["directories"]) == (TOPIC_ID_TEXT, [TOPIC_ID_TEXT])


@pytest.mark.parametrize(
    ("control", "key", "value"),
    [
        (EndTransactionMarker(True, 7), "COMMIT", {"coordinator_epoch": 7}),
        (ControlRecord(ControlRecordType.LEADER_CHANGE, leader_change_value(3)), "LEADER_CHANGE", {"leader_id": 3}),
        (ControlRecord(ControlRecordType.SNAPSHOT_HEADER, b"\x01"), "SNAPSHOT_HEADER", "01"),
    ],
)
def test_control_records_are_shown(control: Any, key: str, value: Any) -> None:
    [batch] = read_batches(build_control_batch(control, timestamp=1))
    [record] = batch.records()
    shown = read_own_format("any", True, record)
    assert shown is not None
    assert (shown.key, shown.value) == ({"control": key}, value)
    assert control_format(control) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("retention.ms", "7", "7"), ("ssl.keystore.password", "hunter2", SECRET), ("ssl.keystore.password", None, None)],
)
def test_a_setting_that_may_be_a_password_is_hidden(name: str, value: str | None, shown: str | None) -> None:
    config = ConfigRecord(resource_type=4, resource_name="1", name=name, value=value)
    record = without_secrets(Record(0, 0, None, encode_metadata_record(config)), is_secret)
    found = read_own_format("__cluster_metadata", False, record)
    assert found is not None
    assert found.value["value"] == shown
