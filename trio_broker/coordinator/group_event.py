"""What can happen to a group, as its timeline keeps it and the admin API shows it.

The attributes of ``GroupEvent`` are names in the JSON of the API (docs/decisions/0031).
"""

from __future__ import annotations

import enum

import attrs


class GroupEventKind(enum.Enum):
    """What can happen to a group; the values are shown in the admin app."""

    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member joined again"
    MEMBER_REPLACED = "static member replaced"
    MEMBER_LEFT = "member left"
    MEMBER_TIMED_OUT = "member timed out"
    MEMBER_FENCED = "member fenced"
    SUBSCRIPTION_CHANGED = "subscription changed"
    PARTITIONS_CHANGED = "partitions of subscribed topics changed"
    ASSIGNMENT_LOST = "the assignment could not be written down"
    PROTOCOL_CHANGED = "group changed between classic and consumer protocol"
    REBALANCE_STARTED = "rebalance started"
    REBALANCE_COMPLETED = "rebalance completed"


@attrs.frozen(kw_only=True)
class GroupEvent:
    """Something that happened to a group. ``generation`` is its generation id or group epoch right after it."""

    kind: GroupEventKind
    at_ms: int
    generation: int
    member_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str = ""
    """The member's own reason (KIP-800), or which timeout passed."""
