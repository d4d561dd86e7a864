"""Control records: what the broker writes into a log for readers of the log, never for applications.

The key is int16 version 0 and int16 type. A transaction's end is one marker, alone in its batch, with the producer's id
and epoch, sequence -1 and the control and transactional bits; its value is int16 version 0 and int32 coordinator epoch,
and readers accept more bytes after that. The other types stand only in the metadata log. A marker takes up an offset,
so "end offset minus start offset" is not the number of records.

Source: Kafka's ControlRecordType, EndTransactionMarker, ControlRecordTypeSchema.json, EndTxnMarker.json.
"""

from __future__ import annotations

import enum
import struct

import attrs

from kafka_wire.records.batch import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, build_batch
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.record import NewRecord, Record

CONTROL_RECORD_VERSION = 0

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class ControlRecordType(enum.IntEnum):
    """What a control record says. Types from LEADER_CHANGE on stand only in the metadata log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@attrs.frozen
class EndTransactionMarker:
    """The end of a transaction in one partition; ``coordinator_epoch`` fences a coordinator that was replaced."""

    committed: bool
    coordinator_epoch: int

    @property
    def type(self) -> ControlRecordType:
        """The marker's control record type."""
        return ControlRecordType.COMMIT if self.committed else ControlRecordType.ABORT


@attrs.frozen
class ControlRecord:
    """A control record of any type. ``type`` is None for one we do not know, which readers skip."""

    type: ControlRecordType | None
    value: bytes


def build_control_batch(
    control: EndTransactionMarker | ControlRecord,
    *,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytes:
    """Return a batch with one control record.

    Raises:
        ValueError: a control record without a type.
    """
    is_marker = isinstance(control, EndTransactionMarker)
    if control.type is None:
        raise ValueError("a control record needs a type")
    value = (
        _MARKER_VALUE.pack(CONTROL_RECORD_VERSION, control.coordinator_epoch)
        if isinstance(control, EndTransactionMarker)
        else control.value
    )
    key = _KEY.pack(CONTROL_RECORD_VERSION, control.type)
    return build_batch(
        [NewRecord(timestamp, key, value)],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=is_marker,
        control=True,
    )


def read_control_record(record: Record) -> EndTransactionMarker | ControlRecord:
    """Return what a record from a control batch says: a transaction marker, or any other type with its bytes.

    Raises:
        InvalidRecord: the key or a marker's value is too short, or has a negative version.
    """
    number = _versioned(_KEY, record.key, "key of a control record")
    try:
        kind = ControlRecordType(number)
    except ValueError:
        # Readers skip types to come, as Kafka's do (ControlRecordType.UNKNOWN).
        return ControlRecord(None, record.value or b"")
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return ControlRecord(kind, record.value or b"")
    coordinator_epoch = _versioned(_MARKER_VALUE, record.value, "value of a transaction marker")
    return EndTransactionMarker(kind is ControlRecordType.COMMIT, coordinator_epoch)


def _versioned(layout: struct.Struct, data: bytes | None, name: str) -> int:
    """Return the number behind the version at the start of ``data``; bytes of later versions may follow."""
    if data is None or len(data) < layout.size:
        raise InvalidRecord(
            f"{name}: {'null' if data is None else f'{len(data)} bytes'}, at least {layout.size} needed"
        )
    version, number = layout.unpack_from(data)
    if version < 0:
        raise InvalidRecord(f"{name}: version {version}")
    value: int = number
    return value
