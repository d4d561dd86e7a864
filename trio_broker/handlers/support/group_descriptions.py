"""The common part of DescribeGroups and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from kafka_wire.error_codes import ErrorCode
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.authorized_operations import group_operations
from trio_broker.handlers.support.context import Context


class Described(Protocol):
    """The description of a group of either protocol."""

    error_code: int
    authorized_operations: int


D = TypeVar("D", bound=Described)


async def described_groups(
    group_ids: Iterable[str],
    describe: Callable[[str], Awaitable[D]],
    context: Context,
    *,
    include_authorized_operations: bool,
) -> list[D]:
    """Describe each group, yielding between them, and add the authorized operations if the request wants them.

    A group that is named twice is described once: a large one takes a megabyte to describe and a few bytes to name.
    """
    described: list[D] = []
    seen = set()
    async for group_id in InTurns(group_ids):
        if group_id in seen:
            continue
        seen.add(group_id)
        group = await describe(group_id)
        asked = include_authorized_operations and group.error_code == ErrorCode.NONE
        group.authorized_operations = group_operations(context, group_id, asked=asked)
        described.append(group)
    return described
