"""Deletes committed offsets some at a time: of a topic or a group that is deleted, and those that have expired.

A group may have committed to a hundred thousand partitions, so the event loop has other turns between two batches, and
the shard may be closed meanwhile.

Source: Kafka's GroupCoordinatorShard (cleanupExpiredOffsets, deleteGroups, onPartitionsDeleted).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from itertools import chain, islice

from kafka_wire.errors import KafkaError
from trio_broker.cluster.metadata_image import TopicImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.coordinator.group_machine import GroupMachine
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.result import CoordinatorResult
from trio_broker.coordinator.runtime.shard import Shard

log = logging.getLogger(__name__)

MAX_DELETED_AT_ONCE = 500
"""Offsets that are looked at, and deleted with one batch, before others have a turn: five milliseconds."""

GroupRuntime = CoordinatorRuntime[GroupMachine]


async def expire_offsets(runtime: GroupRuntime) -> None:
    """Delete offsets that have expired, and groups that have neither offsets nor members left."""
    budget = YieldBudget()
    for shard in runtime.active_shards():
        for group_id in list(shard.machine.groups):
            try:
                await _expire(runtime, shard, group_id, budget)
            except KafkaError as error:
                log.error("group %.200r: offsets that expired are kept: %s", group_id, error)
            await budget.maybe_yield()


async def _expire(runtime: GroupRuntime, shard: Shard[GroupMachine], group_id: str, budget: YieldBudget) -> None:
    """Delete what has expired of one group, and the group if nothing is left of it. Raises KafkaError."""
    machine = shard.machine
    expiry = partial(machine.expiry, group_id, runtime.now())
    await _delete_offsets(runtime, shard, group_id, machine.offsets.topics_of(group_id), expiry, budget)
    shard.require_active()
    if machine.is_over(group_id):
        shard.commit(group_id, machine.group_deletion(group_id), runtime.now())


async def delete_offsets_in(runtime: GroupRuntime, shard: Shard[GroupMachine], topics: Collection[TopicImage]) -> None:
    """Delete the offsets in topics that were deleted. Yields between groups."""
    budget, machine = YieldBudget(), shard.machine
    for topic in topics:
        await budget.maybe_yield()
        for group_id in machine.offsets.groups_with_topic(topic.name):
            deletion = partial(machine.topic_deletion, group_id, topic)
            try:
                await _delete_offsets(runtime, shard, group_id, [topic.name], deletion, budget)
            except KafkaError as error:
                log.error("group %.200r: offsets in the deleted %s are kept: %s", group_id, topic.name, error)
            await budget.maybe_yield()
            if not shard.is_active:
                return


async def delete_group(runtime: GroupRuntime, shard: Shard[GroupMachine], group_id: str, budget: YieldBudget) -> None:
    """Delete a group without members, its offsets first; if the log refuses half-way, it is there to be deleted once
    more.

    Raises:
        KafkaError: the log refused, or the shard was closed meanwhile.
    """
    machine = shard.machine
    topics = {*machine.offsets.topics_of(group_id), *(each.topic for each in machine.offsets.pending_of(group_id))}
    deletion = partial(machine.offsets_deletion, group_id)
    await _delete_offsets(runtime, shard, group_id, topics, deletion, budget)
    shard.require_active()
    shard.commit(group_id, machine.group_deletion(group_id), runtime.now())


async def _delete_offsets(
    runtime: GroupRuntime,
    shard: Shard[GroupMachine],
    group_id: str,
    topics: Collection[str],
    deletion: Callable[[list[TopicPartition]], CoordinatorResult[EncodedRecord]],
    budget: YieldBudget,
) -> None:
    """Pass all partitions in which a group has committed offsets of ``topics`` to ``deletion``, some at a time, and
    commit what it returns. Those of which commits are pending come last.

    Raises:
        KafkaError: the log refused, or the shard was closed meanwhile; earlier ones are deleted.
    """
    offsets = shard.machine.offsets
    committed = (TopicPartition(each, index) for each in topics for index in offsets.partitions_of(group_id, each))
    pending = (place for place in offsets.pending_of(group_id) if place.topic in topics)
    places = chain(committed, pending)
    while some := list(islice(places, MAX_DELETED_AT_ONCE)):
        shard.require_active()
        result = deletion(some)
        if result.records:
            shard.commit(group_id, result, runtime.now())
        await budget.maybe_yield()
