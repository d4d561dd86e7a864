"""Restores the groups and committed offsets of a shard from its log: the newest record of each key, folded.

Commits are kept as they stand in the log. Of a classic group only the last record matters; a consumer group is a fold
over all of its records. Requests that waited in a group are not in the log: members get a new session, and clients send
their requests again.

Records of a group that contradict each other (two owners of one partition: a bug of this broker or of another one) cost
that group its members, and nothing else. Its records are removed from the log, and the group begins anew, with its
offsets.

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
from trio_broker.coordinator.runtime.errors import ContradictoryRecords
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.result import Now

log = logging.getLogger(__name__)

COMMIT_PREFIX = b"\0\1"
"""How the key of a commit begins: its record type."""

Group = ClassicGroup | ConsumerGroup


@attrs.define
class LoadedGroups:
    """What has been read so far. ``contradictory`` has the tombstones of each group whose records contradict."""

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
        # Nearly all records are commits, and they are kept undecoded: a million of them load in seconds.
        if key.startswith(COMMIT_PREFIX):
            self.offsets.put(key, value)
        elif (decoded := decode_group_record(key, value)) is not None:
            self._fold_group(decoded)

    def _fold_group(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            self.offsets.apply(record)  # a record of Kafka 0.8, whose keys have another type
        elif not isinstance(key, GroupMetadataKey):
            self._fold_consumer_group(key.group_id, record)
        elif isinstance(value, GroupMetadataValue):
            self.classic[key.group] = value
        else:
            self.classic.pop(key.group, None)

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
        except ContradictoryRecords:
            log.exception("group %s: its records contradict each other, so it begins anew", group_id)
            del self.consumer[group_id]
            self.contradictory[group_id] = [GroupRecord(record.key, None), *group.tombstones()]
            return
        if not group.exists:
            del self.consumer[group_id]

    def _fold_contradictory(self, group_id: str, record: GroupRecord) -> None:
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            # The group was deleted; records after this one are of another group of the same name.
            del self.contradictory[group_id]
        else:
            # The tombstone of the group itself stays the last one.
            self.contradictory[group_id].insert(0, GroupRecord(record.key, None))

    def groups(self, now: Now) -> dict[str, Group]:
        """The groups as they are after the last record; those that only have offsets are empty classic ones."""
        groups: dict[str, Group] = {
            group_id: ClassicGroup(group_id, self.settings, now) for group_id in self.offsets.groups()
        }
        for group_id, value in self.classic.items():
            try:
                groups[group_id] = ClassicGroup.restored(group_id, value, self.settings, now)
            except ContradictoryRecords:
                log.exception("group %s: its record contradicts itself, so it begins anew", group_id)
                self.contradictory[group_id] = [GroupRecord(GroupMetadataKey(group=group_id), None)]
        for group in self.consumer.values():
            group.loaded(now)
        return groups | self.consumer
