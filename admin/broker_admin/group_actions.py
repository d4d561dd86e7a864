"""The actions on a group's page: their addresses, the words of commands that do the same, and why they are blocked.

Names that a client chose may be of any length and hold any character. Those that cannot be shown as they are, or are
too long, are not offered; the HTTP API takes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import attrs

from trio_broker.coordinator.reporting.snapshot import GroupOffsets, GroupSnapshot

OFFERED_CHARACTERS = 1000
"""Longer names are not offered."""

LINKED_CHARACTERS = 1000
"""Ids of groups up to this length are links. A page full of ids of 32 KB, each written as 96 KB, would be slow."""

UNROUTABLE_IDS = frozenset({"", ".", "..", "detail"})
"""Ids of groups that no path can carry, or whose path means something else."""

SHOWN_INSTANCES = 250
"""Static members that the page offers to remove."""


@attrs.frozen
class GroupActions:
    """The actions on one group. ``blocked`` says why it can be neither reset nor deleted now, and what to do."""

    api_address: str
    has_id_in_query: bool
    group_id_word: str
    topics: tuple[str, ...]
    instance_ids: tuple[str, ...]
    blocked: str


def group_address(group_id: str, page: str = "") -> str:
    """The page of a group."""
    if group_id in UNROUTABLE_IDS:
        return f"/groups/-{page}?id={quote(group_id, safe='')}"
    return f"/groups/{quote(group_id, safe='')}{page}"


def group_actions(group: GroupSnapshot, offsets: GroupOffsets) -> GroupActions | None:
    """What can be done with ``group``, and by which calls; None if its id is too long for a page."""
    if len(group.group_id) > OFFERED_CHARACTERS:
        return None
    is_routable = group.group_id not in UNROUTABLE_IDS
    return GroupActions(
        api_address=f"/api/v1/groups/{quote(group.group_id, safe='') if is_routable else '-'}",
        has_id_in_query=not is_routable,
        group_id_word=shell_word(group.group_id),
        topics=tuple(offered(sorted({each.topic for each in offsets.partitions if each.committed_offset is not None}))),
        instance_ids=tuple(
            offered(member.group_instance_id for member in group.members if member.group_instance_id is not None)
        )[:SHOWN_INSTANCES],
        blocked=blocked(group),
    )


def offered(names: Iterable[str]) -> Iterator[str]:
    """The names that can be shown as they are."""
    return (name for name in names if name.isprintable() and len(name) <= OFFERED_CHARACTERS)


def shell_word(text: str) -> str:
    """``text`` as one word of a shell; what cannot be seen, or means something in a dialog's template, is escaped."""
    if text.isprintable() and not set(text) & set("{}[]"):
        return shlex.quote(text)
    escaped = "".join(
        character if character.isprintable() and character not in "{}[]'\\" else f"\\U{ord(character):08x}"
        for character in text
    )
    return f"$'{escaped}'"


def blocked(group: GroupSnapshot) -> str:
    """Why the group can be neither reset nor deleted now; empty if it can."""
    if not group.member_count:
        return ""
    members = "a member" if group.member_count == 1 else f"{group.member_count} members"
    return (
        f"Stop the consumers first: a group with members cannot be reset or deleted, and it has {members}. "
        "One that was killed stays a member until its session times out."
    )
