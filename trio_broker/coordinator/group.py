"""What the coordinator needs of a group, whichever protocol its members speak.

Source: Kafka's Group.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest
from kafka_wire.stored.groups import GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.offsets.expiry import OffsetRetention
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, Now


class Group(Protocol):
    """A state machine: events in, results out, and a fold over the group's records (``apply``).

    The heartbeat of the consumer protocol is not here: it may turn a classic group, which knows nothing of that, into a
    consumer group (``consumer.upgrade``).
    """

    settings: GroupCoordinatorConfig

    @property
    def group_id(self) -> str: ...
    @property
    def type(self) -> GroupType: ...
    @property
    def state(self) -> enum.Enum: ...
    @property
    def protocol_type(self) -> str | None: ...
    @property
    def members(self) -> Mapping[str, Any]: ...
    @property
    def exists(self) -> bool:
        """Whether any record of the group is in the log. Without one, the group is only in memory."""
        ...

    @property
    def is_deserted(self) -> bool:
        """Whether the group has no members, and expects none."""
        ...

    # ---- members of the classic protocol --------------------------------------------------------------------------

    def join(self, event: CoordinatorEvent[JoinGroupRequest]) -> GroupResult: ...
    def sync(self, event: CoordinatorEvent[SyncGroupRequest]) -> GroupResult: ...
    def heartbeat(self, event: CoordinatorEvent[HeartbeatRequest]) -> ErrorCode: ...
    def leave(self, event: CoordinatorEvent[LeaveGroupRequest]) -> GroupResult: ...

    # ---- time and topics ------------------------------------------------------------------------------------------

    def tick(self, now: Now, image: MetadataImage) -> GroupResult:
        """Do what is due."""
        ...

    def next_deadline(self) -> float | None:
        """When ``tick`` may have something to do, in monotonic seconds."""
        ...

    def metadata_changed(self) -> None:
        """Topics were created, deleted or grown."""
        ...

    # ---- records --------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Fold in a record that was appended, or that is read after a start.

        Raises:
            ContradictoryRecords: it cannot be true together with those before it.
        """
        ...

    def loaded(self, now: Now) -> None:
        """All records are read: every member has a whole session for its next request."""
        ...

    def tombstones(self) -> list[GroupRecord]:
        """The records that remove the group from the log; its offsets have records of their own."""
        ...

    def abandon(self, code: ErrorCode) -> Sequence[Completion]:
        """Complete all requests that wait with ``code``. Another coordinator or object has the group."""
        ...

    # ---- committed offsets ----------------------------------------------------------------------------------------

    def validate_offset_commit(self, request: OffsetCommitRequest, version: int, now: Now) -> ErrorCode: ...
    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode: ...
    def validate_offset_delete(self) -> ErrorCode: ...
    def validate_delete_group(self) -> ErrorCode: ...

    def offset_retention(self) -> OffsetRetention | None:
        """When the group's offsets begin to expire: see ``offsets.expiry``."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is, or may be, subscribed to ``topic``."""
        ...

    # ---- reporting ------------------------------------------------------------------------------------------------

    def owned_partitions(self, image: MetadataImage) -> Iterator[TopicPartition]: ...
    def snapshot(self, image: MetadataImage, *, with_members: bool = True) -> GroupSnapshot: ...
