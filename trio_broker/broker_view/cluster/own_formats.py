"""Records that the broker writes for itself, as what ``json`` can write: groups, transactions, metadata, control
records.

A record that breaks its format, or is of a type that this broker does not know, is shown like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from broker_admin.views.cluster.messages import OwnFormat
from kafka_wire.consumer_protocol import decode_assignment, decode_subscription
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.plain import plain
from kafka_wire.records.control import ControlRecord, EndTransactionMarker, read_control_record
from kafka_wire.records.record import Record
from kafka_wire.stored.groups import ConsumerGroupMemberMetadataValue, GroupMetadataValue, decode_group_record
from kafka_wire.stored.metadata import ConfigRecord, decode_metadata_record, encode_metadata_record
from kafka_wire.stored.transactions import TransactionStatus, decode_transaction_record
from trio_broker.cluster.leader_change import LeaderChange
from trio_broker.common.record_json import StoredRecord
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

SECRET: Final = "(hidden)"
"""In place of a setting that is a password, or may be one."""


def read_own_format(topic: str, is_control: bool, record: StoredRecord) -> OwnFormat | None:
    """What the broker wrote into ``topic``; None for what clients wrote."""
    try:
        if is_control:
            return control_format(
                read_control_record(Record(record.offset, record.timestamp, record.key, record.value))
            )
        if topic == CONSUMER_OFFSETS_TOPIC and record.key is not None:
            return group_format(record.key, record.value)
        if topic == TRANSACTION_STATE_TOPIC and record.key is not None:
            return transaction_format(record.key, record.value)
        if topic == CLUSTER_METADATA_TOPIC and record.value is not None:
            return OwnFormat(None, typed(decode_metadata_record(record.value)))
    except (KafkaError, WireError):
        pass
    return None


def control_format(control: EndTransactionMarker | ControlRecord) -> OwnFormat:
    kind = control.type.name if control.type is not None else "unknown"
    if isinstance(control, EndTransactionMarker):
        return OwnFormat({"control": kind}, {"coordinator_epoch": control.coordinator_epoch})
    if (change := LeaderChange.of(control)) is not None:
        return OwnFormat({"control": kind}, {"leader_id": change.leader_id})
    return OwnFormat({"control": kind}, control.value.hex())


def group_format(key: bytes, value: bytes | None) -> OwnFormat | None:
    record = decode_group_record(key, value)
    if record is None:
        return None
    shown_key = typed_key(record.key)
    if record.value is None:
        return OwnFormat(shown_key, None)
    shown = plain(record.value)
    if isinstance(record.value, GroupMetadataValue) and record.value.protocol_type == "consumer":
        for member in shown["members"]:
            member["subscription"] = consumer_protocol(decode_subscription, member["subscription"])
            member["assignment"] = consumer_protocol(decode_assignment, member["assignment"])
    if isinstance(record.value, ConsumerGroupMemberMetadataValue) and record.value.classic_member_metadata is not None:
        for protocol in shown["classic_member_metadata"]["supported_protocols"]:
            protocol["metadata"] = consumer_protocol(decode_subscription, protocol["metadata"])
    return OwnFormat(shown_key, shown)


def transaction_format(key: bytes, value: bytes | None) -> OwnFormat | None:
    record = decode_transaction_record(key, value)
    if record is None:
        return None
    decoded_key, decoded_value = record
    shown = plain(decoded_value)
    if decoded_value is not None and decoded_value.transaction_status in set(TransactionStatus):
        shown["transaction_status"] = TransactionStatus(decoded_value.transaction_status).name
    return OwnFormat(typed_key(decoded_key), shown)


def typed_key(key: Any) -> dict[str, Any]:
    """The key of a group's or a transaction's record, with the type of the record."""
    return {"type": type(key).__name__.removesuffix("Key"), **plain(key)}


def consumer_protocol(decode: Any, hexadecimal: Any) -> Any:
    """Subscriptions and assignments of consumers, decoded; the bytes as they are if they do not decode."""
    try:
        return plain(decode(bytes.fromhex(hexadecimal)))
    except (KafkaError, WireError, ValueError, TypeError):
        return hexadecimal


def typed(message: Any) -> dict[str, Any]:
    """A record of the metadata log with the name of its type."""
    return {"type": type(message).__name__, **plain(message)}


def without_secrets(record: Record, is_secret: Callable[[ConfigRecord], bool]) -> Record:
    """A record of the metadata log; ``is_secret`` says of a ``ConfigRecord`` that its value is not to be shown."""
    try:
        decoded = decode_metadata_record(record.value or b"")
    except (KafkaError, WireError):
        return record
    if not isinstance(decoded, ConfigRecord) or decoded.value is None or not is_secret(decoded):
        return record
    hidden = ConfigRecord(
        resource_type=decoded.resource_type, resource_name=decoded.resource_name, name=decoded.name, value=SECRET
    )
    return attrs.evolve(record, value=encode_metadata_record(hidden))
