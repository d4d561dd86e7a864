"""Bringing back from its log what a shard knew: the newest record of each key, folded.

Commits are kept as they stand in the log. Of a classic group only the last record matters; a consumer group is a fold
over all of its own. Whatever a group was waiting for is not in the log: members get a new session, and those who had
asked for something ask again.

Source: Kafka's GroupCoordinatorShard.replay; docs/formats/consumer-offsets.md.
"""

from __future__ import annotations

import attrs

from kafka_wire.stored.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    decode_group_record,
)
from trio_broker.coordinator.classic_group import ClassicGroup
from trio_broker.coordinator.committed_offsets import CommittedOffsets
from trio_broker.coordinator.consumer_group import ConsumerGroup
from trio_broker.coordinator.effects import Moment
from trio_broker.coordinator.group_log import EncodedRecord
from trio_broker.coordinator.settings import GroupSettings

COMMIT_PREFIX = b"\0\1"
"""How the key of a commit begins: its record type."""


@attrs.define
class LoadedGroups:
    """What has been read so far."""

    settings: GroupSettings
    offsets: CommittedOffsets = attrs.field(factory=CommittedOffsets)
    classic: dict[str, GroupMetadataValue] = attrs.field(factory=dict)
    consumer: dict[str, ConsumerGroup] = attrs.field(factory=dict)

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
        group = self.consumer.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self.consumer[group_id] = ConsumerGroup(group_id, self.settings)
        group.apply(record)
        if not group.exists:
            del self.consumer[group_id]

    def groups(self, moment: Moment) -> dict[str, ClassicGroup | ConsumerGroup]:
        """The groups as they are now; those of which there are only offsets are empty classic ones."""
        groups: dict[str, ClassicGroup | ConsumerGroup] = {
            group_id: ClassicGroup(group_id, self.settings, moment) for group_id in self.offsets.groups()
        }
        for group_id, value in self.classic.items():
            groups[group_id] = ClassicGroup.restored(group_id, value, self.settings, moment)
        for group in self.consumer.values():
            group.loaded(moment)
        return groups | self.consumer
