"""Groups whose records contradict each other, found while a shard is loaded.

Two owners of one partition are a bug, of this broker or of another one. It costs the group its members, and nothing
else: its records are removed from the log, and the group begins anew, with its offsets.
"""

from __future__ import annotations

import logging

from kafka_wire.stored.groups import ConsumerGroupMetadataKey, GroupMetadataKey, GroupRecord
from trio_broker.coordinator.group import Group
from trio_broker.coordinator.runtime.errors import ContradictoryRecords

log = logging.getLogger(__name__)


class ContradictoryGroups:
    """The tombstones of each of these groups."""

    def __init__(self) -> None:
        self.tombstones: dict[str, list[GroupRecord]] = {}

    def add(self, group: Group, record: GroupRecord, error: ContradictoryRecords) -> None:
        """``record`` cannot be true together with what ``group`` is by the records before it."""
        log.error("group %s: its records contradict each other, so it begins anew: %s", group.group_id, error)
        tombstones = group.tombstones()
        if all(each.key != record.key for each in tombstones):
            tombstones.insert(0, GroupRecord(record.key, None))
        self.tombstones[group.group_id] = tombstones

    def absorb(self, group_id: str, record: GroupRecord) -> bool:
        """Whether ``record`` is one more of a contradictory group, rather than of another one of the same name."""
        if group_id not in self.tombstones:
            return False
        if isinstance(record.key, GroupMetadataKey):
            # The whole group, or its end.
            del self.tombstones[group_id]
            return False
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            # The group was deleted; records after this one are of another group of the same name.
            del self.tombstones[group_id]
        else:
            # The tombstone of the group itself stays the last one.
            self.tombstones[group_id].insert(0, GroupRecord(record.key, None))
        return True
