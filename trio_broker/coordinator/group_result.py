"""What a group decides: a ``CoordinatorResult`` with what happened to the group, for its timeline."""

from __future__ import annotations

from typing import Any

import attrs

from kafka_wire.stored.groups import GroupRecord
from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.runtime.result import CoordinatorResult, Now


@attrs.define
class GroupResult(CoordinatorResult[GroupRecord]):
    """``events`` happen when the records are appended, as the rest of the result does."""

    events: list[GroupEvent] = attrs.Factory(list)

    def extend(self, other: GroupResult) -> None:
        """Do the records, responses and events of ``other`` after this."""
        self.records.extend(other.records)
        self.completions.extend(other.completions)
        self.events.extend(other.events)


def group_event(
    kind: GroupEventKind, now: Now, generation: int, member: Any = None, reason: str | None = ""
) -> GroupEvent:
    """Something that happened to ``member``, of either protocol, or to the whole group."""
    event = GroupEvent(kind=kind, at_ms=now.wall_ms, generation=generation, reason=reason or "")
    if member is None:
        return event
    return attrs.evolve(
        event,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )
