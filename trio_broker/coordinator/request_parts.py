"""Large requests about a group in parts, each of which is decided, appended and applied as a request of its own.

A group decides about a request between two checkpoints, which for 7,000 partitions takes 60 ms. Partitions that are
committed or deleted, and members that leave, do not depend on each other, and each has an error code of its own in the
response. So the parts may have other requests between them, and a crash may take those that are not acknowledged yet;
an error of a whole part ends the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.offset_delete import OffsetDeleteRequest
from trio_broker.concurrency.steps import Steps

P = TypeVar("P")
R = TypeVar("R")

MAX_ITEMS_PER_PART: Final = 500
"""Partitions or members, each of which takes some ten microseconds."""


def parts_of(request: Any) -> Iterator[Any] | None:
    """The parts of ``request``, made when they are asked for; None for one that is small or cannot be divided."""
    kind = request.__class__
    if kind is OffsetCommitRequest or kind is OffsetDeleteRequest:
        topics, items = request.topics, 0
        for topic in topics:
            items += len(topic.partitions)
        if items > MAX_ITEMS_PER_PART or len(topics) > MAX_ITEMS_PER_PART:
            return (attrs.evolve(request, topics=part) for part in parts_of_topics(topics))
    elif kind is LeaveGroupRequest and len(members := request.members) > MAX_ITEMS_PER_PART:
        starts = range(0, len(members), MAX_ITEMS_PER_PART)
        return (attrs.evolve(request, members=members[start : start + MAX_ITEMS_PER_PART]) for start in starts)
    return None


def parts_of_topics(topics: list[Any]) -> Iterator[list[Any]]:
    """``topics`` in their order; one of many partitions is in several parts with some of them each."""
    part: list[Any] = []
    room = MAX_ITEMS_PER_PART
    for topic in topics:
        remaining = topic
        while len(remaining.partitions) > room:
            part.append(attrs.evolve(topic, partitions=remaining.partitions[:room]))
            remaining = attrs.evolve(topic, partitions=remaining.partitions[room:])
            yield part
            part, room = [], MAX_ITEMS_PER_PART
        part.append(remaining)
        room -= max(1, len(remaining.partitions))
        if room <= 0:
            yield part
            part, room = [], MAX_ITEMS_PER_PART
    if part:
        yield part


def answered_in_turn(parts: Iterator[P], answer: Callable[[P], Steps[R]]) -> Steps[R]:
    """The response to all ``parts``, each of which ``answer`` answers; the first error ends it.

    Raises:
        KafkaError: that of a part. What the parts before it have changed stays.
    """
    whole: R | None = None
    for part in parts:
        response = yield from answer(part)
        if getattr(response, "error_code", ErrorCode.NONE):
            return response
        if whole is None:
            whole = response
        else:
            add_answer(whole, response)
        yield trio.lowlevel.checkpoint
    assert whole is not None, "a request without parts"
    return whole


def add_answer(whole: Any, part: Any) -> None:
    """Add the response to a part to that of the parts before it."""
    if hasattr(whole, "members"):
        whole.members += part.members
        return
    [*topics] = part.topics
    # A topic that was divided is one in the response, too.
    if topics and whole.topics and whole.topics[-1].name == topics[0].name:
        whole.topics[-1].partitions += topics.pop(0).partitions
    whole.topics += topics
