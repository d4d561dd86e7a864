"""Groups and members as values for lists, metrics and the admin API, the same for both protocols."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs


class GroupProtocol(enum.Enum):
    """The protocol that a group's members speak, by the names that ListGroups uses."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@attrs.frozen(kw_only=True)
class MemberSnapshot:
    """One member. ``assignment`` maps topics to partitions, None where the assignment is not a consumer's.

    ``epoch`` is the member's own epoch in a consumer group, None in a classic one.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]] | None
    epoch: int | None = None


@attrs.frozen(kw_only=True)
class GroupSnapshot:
    """One group. ``generation`` is the generation id or the group epoch, ``protocol`` the assignor's name or empty.

    ``members`` is empty where they were not asked for, ``member_count`` counts them in any case.
    """

    group_id: str
    type: GroupProtocol
    protocol_type: str
    protocol: str
    state: str
    generation: int
    leader: str | None
    member_count: int
    members: tuple[MemberSnapshot, ...] = ()
