"""The LEADER_CHANGE with which each epoch of the metadata log begins: which broker leads, and among how many voters.

Its value is a LeaderChangeMessage: int16 version and int32 leader id, then two compact arrays of voters (int32 id, no
tags), those that there are and those that have voted for it, and no tags.

Source: Kafka's LeaderChangeMessage.json.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from kafka_wire.records.batch import NO_PARTITION_LEADER_EPOCH, RecordBatch
from kafka_wire.records.control import (
    ControlRecord,
    ControlRecordType,
    EndTransactionMarker,
    build_control_batch,
    read_control_record,
)

_HEAD: Final = struct.Struct(">hiB")
"""Version, leader, and one more than the number of voters (a varint of one byte)."""


@attrs.frozen
class LeaderChange:
    """What a LEADER_CHANGE says."""

    leader_id: int
    voters: int

    @classmethod
    def of(cls, control: EndTransactionMarker | ControlRecord) -> LeaderChange | None:
        """What ``control`` says; None if it is something else, or cut short."""
        if not isinstance(control, ControlRecord) or control.type is not ControlRecordType.LEADER_CHANGE:
            return None
        if len(control.value) < _HEAD.size:
            return None
        _, leader_id, voters_and_one = _HEAD.unpack_from(control.value)
        return cls(leader_id, voters_and_one - 1)


def leader_change_in(batch: RecordBatch) -> LeaderChange | None:
    """The LEADER_CHANGE in ``batch``; None in any other batch than one of control records that has one."""
    if not batch.header.is_control:
        return None
    found = (LeaderChange.of(read_control_record(record)) for record in batch.records())
    return next((each for each in found if each is not None), None)


def leader_change_batch(
    node_id: int,
    *,
    timestamp: int,
    base_offset: int = 0,
    epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The batch in which ``node_id`` is elected by itself, the only voter."""
    return build_control_batch(
        ControlRecord(ControlRecordType.LEADER_CHANGE, leader_change_value(node_id)),
        timestamp=timestamp,
        base_offset=base_offset,
        partition_leader_epoch=epoch,
    )


def leader_change_value(node_id: int) -> bytes:
    """The value of that batch's record, of version 0."""
    voters = b"\x02" + struct.pack(">i", node_id) + b"\x00"
    return struct.pack(">hi", 0, node_id) + voters + voters + b"\x00"
