"""Bringing back from its log what a shard knew: the newest record of each key, folded.

Commits are kept as they stand in the log. Of a classic group only the last record matters; a consumer group is a fold
over all of its own. Whatever a group was waiting for is not in the log: members get a new session, and those who had
asked for something ask again.

Records that contradict each other (two owners of one partition: a bug, ours or another's) cost one group its members,
and no more. What the log has of it is to be taken back, and it begins anew, with its offsets.

Source: Kafka's GroupCoordinatorShard.replay; docs/formats/consumer-offsets.md.
"""

from __future__ import annotations

import logging

import attrs

from kafka_wire.stored.groups import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    decode_group_record,
)
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.result import Now

log = logging.getLogger(__name__)

COMMIT_PREFIX = b"\0\1"
"""How the key of a commit begins: its record type."""


@attrs.define
class LoadedGroups:
    """What has been read so far. ``contradictory`` has what takes each such group out of the log."""

    settings: GroupCoordinatorConfig
    offsets: CommittedOffsets = attrs.field(factory=CommittedOffsets)
    classic: dict[str, GroupMetadataValue] = attrs.field(factory=dict)
    consumer: dict[str, ConsumerGroup] = attrs.field(factory=dict)
    contradictory: dict[str, list[GroupRecord]] = attrs.field(factory=dict)

    def fold(self, record: EncodedRecord) -> None:
        """Take in one record as it stands in the log.

        Raises:
            WireError: it is damaged; nothing has changed.
        """
        key, value = record
        if key.startswith(COMMIT_PREFIX):
            self.offsets.put(key, value)
        elif (decoded := decode_group_record(key, value)) is not None:
            self._fold_group(decoded)

    def _fold_group(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            self.offsets.apply(record)  # a record of Kafka 0.8, whose keys have another type
        elif isinstance(key, GroupMetadataKey):
            if value is None:
                self.classic.pop(key.group, None)
            else:
                assert isinstance(value, GroupMetadataValue), f"{key}: {value}"
                self.classic[key.group] = value
        else:
            self._fold_consumer_group(key.group_id, record)

    def _fold_consumer_group(self, group_id: str, record: GroupRecord) -> None:
        if group_id in self.contradictory:
            self._fold_contradictory(group_id, record)
            return
        group = self.consumer.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self.consumer[group_id] = ConsumerGroup(group_id, self.settings)
        try:
            group.apply(record)
        except AssertionError:
            log.exception("group %s: its records contradict each other, so it begins anew", group_id)
            del self.consumer[group_id]
            self.contradictory[group_id] = [GroupRecord(record.key, None), *group.tombstones()]
            return
        if not group.exists:
            del self.consumer[group_id]

    def _fold_contradictory(self, group_id: str, record: GroupRecord) -> None:
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            del self.contradictory[group_id]  # it ended then, and what comes is another life
        else:
            # The tombstone of the group itself stays the last one.
            self.contradictory[group_id].insert(0, GroupRecord(record.key, None))

    def groups(self, now: Now) -> dict[str, ClassicGroup | ConsumerGroup]:
        """The groups as they are now; those of which there are only offsets are empty classic ones."""
        groups: dict[str, ClassicGroup | ConsumerGroup] = {
            group_id: ClassicGroup(group_id, self.settings, now) for group_id in self.offsets.groups()
        }
        for group_id, value in self.classic.items():
            groups[group_id] = ClassicGroup.restored(group_id, value, self.settings, now)
        for group in self.consumer.values():
            group.loaded(now)
        return groups | self.consumer
