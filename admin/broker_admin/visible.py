"""Reports without what their caller may not know of: by DESCRIBE, as Kafka's lists are filtered."""

from __future__ import annotations

import attrs
from starlette.requests import Request

from broker_admin.app_state import cluster_of
from broker_admin.requirements import may, visible
from broker_admin.views.cluster.topics import TopicConsumer, TopicSummary
from broker_admin.views.cluster.transactions import TransactionDetail
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupOffsets
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionReport
from trio_broker.handlers.support.rights import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
)


async def visible_topics(request: Request) -> list[TopicSummary]:
    """The topics that the caller may describe."""
    summaries = await cluster_of(request).topics.summaries()
    return list(await visible(request, DESCRIBE_TOPIC, summaries, lambda each: each.name))


async def visible_consumers(request: Request, topic: str) -> list[TopicConsumer] | None:
    """The groups that read a topic, of those that the caller may describe; None if there is no such topic."""
    consumers = await cluster_of(request).topics.consumers(topic)
    if consumers is None:
        return None
    return list(await visible(request, DESCRIBE_GROUP, consumers, lambda each: each.group_id))


async def visible_groups(request: Request) -> GroupLagReport:
    """The groups that the caller may describe; all of them if it may describe the cluster."""
    report = await cluster_of(request).groups.report()
    if may(request, DESCRIBE_CLUSTER):
        return report
    pairs = list(zip(report.groups, report.topics, strict=True)) if report.topics else []
    groups = await visible(request, DESCRIBE_GROUP, report.groups, lambda each: each.group.group_id)
    kept = {each.group.group_id for each in groups}
    topics = tuple(topic for group, topic in pairs if group.group.group_id in kept)
    return attrs.evolve(report, groups=tuple(groups), topics=topics, partitions=())


async def visible_offsets(request: Request, group_id: str) -> GroupOffsets | None:
    """The offsets of a group in topics that the caller may describe; None if there is no such group."""
    offsets = await cluster_of(request).groups.offsets(group_id)
    if offsets is None:
        return None
    partitions = await visible(request, DESCRIBE_TOPIC, offsets.partitions, lambda each: each.topic)
    return offsets if len(partitions) == len(offsets.partitions) else GroupOffsets.of(group_id, partitions)


async def visible_transactions(request: Request) -> TransactionReport:
    """The transactional ids that the caller may describe, without what is held back."""
    report = await cluster_of(request).transactions.report()
    transactions = await visible(
        request, DESCRIBE_TRANSACTIONAL_ID, report.transactions, lambda each: each.transactional_id
    )
    return attrs.evolve(report, transactions=tuple(transactions), held_back=())


async def visible_held_back(request: Request) -> TransactionReport:
    """What is held back in topics that the caller may describe, without the transactional ids."""
    report = await cluster_of(request).transactions.report()
    held_back = await visible(request, DESCRIBE_TOPIC, report.held_back, lambda each: each.topic)
    return attrs.evolve(report, transactions=(), held_back=tuple(held_back))


async def visible_transaction(request: Request, transactional_id: str) -> TransactionDetail | None:
    """One transactional id with its partitions in topics that the caller may describe; None if there is none."""
    detail = await cluster_of(request).transactions.get(transactional_id)
    if detail is None:
        return None
    partitions = await visible(request, DESCRIBE_TOPIC, detail.partitions, lambda each: each.topic)
    return attrs.evolve(detail, partitions=tuple(partitions))
