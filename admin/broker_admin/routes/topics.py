"""``/api/v1/topics``: topics with their rates, partitions, files, groups and settings, and changes of them.

Every name that a topic may have is one segment of a path as it stands. What a name stands behind a colon for is done to
the topic: ``POST /api/v1/topics/orders:purge``. Each change takes ``dry_run=true``, which checks and answers it without
making it; a refusal points at the value of the body that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import attrs
import trio
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of, node_of
from broker_admin.config_changes import ConfigChanges, Configs, plain_texts, read_config_changes
from broker_admin.listing import Page
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, body_pointer, status_of
from broker_admin.request_body import ChangeQuery, caller_name, check_caller, read_change
from broker_admin.requirements import in_handler, left_out, may, of_topic, require, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NodeRoute, Route
from broker_admin.schemas import PartitionNumber, bounded
from broker_admin.tokens import Role
from broker_admin.topic_list import (
    ConsumersQuery,
    PartitionsQuery,
    SegmentsQuery,
    TopicsQuery,
    select_consumers,
    select_partitions,
    select_segments,
    select_topics,
)
from broker_admin.topic_paths import name_of, no_such_partition, no_such_topic, partition_of
from broker_admin.topic_texts import kept_text
from broker_admin.view import ClusterView
from broker_admin.views.cluster.topics import (
    AddedPartitions,
    ChangedTopicConfigs,
    PartitionDetail,
    PurgedTopic,
    PurgeTarget,
    TopicConsumer,
    TopicCreation,
    TopicDeletion,
    TopicDetail,
    TopicRates,
    TopicRefused,
    TopicSummary,
)
from broker_admin.views.node.topic_segments import PartitionSegments, SegmentDetail
from broker_admin.visible import visible_consumers, visible_topics
from kafka_wire.limits import MAX_OFFSET, MAX_PARTITION_COUNT, MAX_REPLICATION_FACTOR, MAX_TIMESTAMP_MS
from trio_broker.handlers.support.rights import (
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)

MAX_PURGED_PARTITIONS = 10_000
"""Partitions that one purge may name."""


NO_SUCH_TOPIC = {404: "there is no such topic"}
NO_SUCH_PARTITION = {404: "there is no such topic or partition", 503: "the disk of the partition failed"}
REFUSED = {**NO_SUCH_TOPIC, 422: "a value is refused; nothing was changed", 503: "a disk failed"}


@attrs.frozen
class NewTopicBody:
    """A topic to be created. What is not given is the broker's default; ``configs`` are settings of its own."""

    name: str = bounded(maxLength=1000)
    partitions: int | None = bounded(None, minimum=1, maximum=MAX_PARTITION_COUNT)
    replication_factor: int | None = bounded(None, minimum=1, maximum=MAX_REPLICATION_FACTOR)
    configs: Mapping[str, str | int | float | bool] = attrs.field(factory=dict)


@attrs.frozen
class AddPartitionsBody:
    """How many partitions the topic shall have in all."""

    partitions: int = bounded(minimum=1, maximum=MAX_PARTITION_COUNT)


@attrs.frozen
class PurgeBody:
    """Up to where records are deleted, by one of three, and in which ``partitions``; none means all."""

    to_end: bool = False
    to_offset: int | None = bounded(None, minimum=0, maximum=MAX_OFFSET)
    to_timestamp_ms: int | None = bounded(None, minimum=0, maximum=MAX_TIMESTAMP_MS)
    partitions: tuple[PartitionNumber, ...] = bounded((), maxItems=MAX_PURGED_PARTITIONS)


def topic_texts(cluster: ClusterView, values: ConfigChanges) -> tuple[dict[str, str | None], dict[str, str]]:
    """Values of topic keys as texts, and for each suffix (``"7 d"``) that cannot be read the reason."""
    return plain_texts(values, {entry.name: entry.unit for entry in cluster.topics.config_defaults()})


def problem_of(
    refused: TopicRefused, *, configs_are_the_body: bool = False, reasons: Mapping[str, str] = MappingProxyType({})
) -> Problem:
    """A refusal of the broker, with a pointer to what it is about; ``reasons`` say better what is wrong with a key."""
    status = status_of(refused.error)
    reason = reasons.get(str(refused.key), refused.reason)
    if refused.field is None:
        return Problem(status, reason)
    names = [] if configs_are_the_body and refused.field == "configs" else [refused.field]
    pointer = body_pointer(*names, *([] if refused.key is None else [refused.key]))
    return Problem(status, reason, [FieldError(pointer, reason)])


# --- what there is ---


class TopicsEndpoint(HTTPEndpoint):
    """The list of topics, and what adds to it."""

    @requires(Role.VIEWER, left_out(DESCRIBE_TOPIC))
    @operation(Page[TopicSummary], query=TopicsQuery)
    async def get(self, request: Request) -> Response:
        """The topics, without the broker's own, with rates of the last minute, size, retention, lag and last write."""
        query = query_of(request, TopicsQuery)
        summaries = await visible_topics(request)
        return await json_response_from_thread(await trio.to_thread.run_sync(select_topics, summaries, query))

    @requires(Role.OPERATOR, in_handler(CREATE_CLUSTER, CREATE_TOPIC))
    @operation(
        TopicCreation, query=ChangeQuery, body=NewTopicBody, is_change=True, status=201,
        problems={409: "there is such a topic", 422: "a value is refused; nothing was created"},
        other_statuses={200: "with dry_run: the topic could be created"},
    )  # fmt: skip
    async def post(self, request: Request) -> Response:
        """Create a topic."""
        dry_run = query_of(request, ChangeQuery).dry_run
        body = await read_change(request, NewTopicBody)
        if not may(request, CREATE_CLUSTER):
            require(request, CREATE_TOPIC, body.name)
        texts, reasons = topic_texts(cluster_of(request), body.configs)
        configs = {key: text for key, text in texts.items() if text is not None}  # null is no value of a new topic's
        try:
            created = await cluster_of(request).topic_changes.create(
                body.name,
                body.partitions,
                body.replication_factor,
                configs,
                dry_run=dry_run,
                changed_by=caller_name(request),
            )
        except TopicRefused as refused:
            raise problem_of(refused, reasons=reasons) from refused
        defaults = {entry.name: entry.value or "" for entry in cluster_of(request).topics.config_defaults()}
        kept = kept_text({**defaults, **created.configs})
        return json_response(attrs.evolve(created, kept=kept), 200 if dry_run else 201)


class TopicEndpoint(HTTPEndpoint):
    """One topic."""

    @requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
    @operation(TopicDetail, problems=NO_SUCH_TOPIC)
    async def get(self, request: Request) -> Response:
        """One topic as it is now, with the settings of its own."""
        topic = await cluster_of(request).topics.get(name_of(request))
        if topic is None:
            raise no_such_topic(name_of(request))
        return json_response(topic)

    @requires(Role.ADMIN, of_topic(DELETE_TOPIC))
    @operation(
        TopicDeletion, query=ChangeQuery, is_change=True,
        problems={**NO_SUCH_TOPIC, 409: "topics may not be deleted here: delete.topic.enable"},
    )  # fmt: skip
    async def delete(self, request: Request) -> Response:
        """Delete a topic with all of its records, which cannot be undone."""
        check_caller(request)
        dry_run = query_of(request, ChangeQuery).dry_run
        try:
            deleted = await cluster_of(request).topic_changes.delete(
                name_of(request), dry_run=dry_run, changed_by=caller_name(request)
            )
        except TopicRefused as refused:
            raise problem_of(refused) from refused
        return json_response(deleted)


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
@operation(TopicRates, problems=NO_SUCH_TOPIC)
async def get_rates(request: Request) -> Response:
    """A topic's rates of the last hour, for a chart; kept for those topics that carry most."""
    rates = await cluster_of(request).topics.rates(name_of(request))
    if rates is None:
        raise no_such_topic(name_of(request))
    return await json_response_from_thread(rates)


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
@operation(Page[PartitionDetail], query=PartitionsQuery, problems=NO_SUCH_TOPIC)
async def get_partitions(request: Request) -> Response:
    """A topic's partitions with offsets, size, rates, and their shares of the topic."""
    query = query_of(request, PartitionsQuery)
    partitions = await cluster_of(request).topics.partitions(name_of(request), oldest_records=True)
    if partitions is None:
        raise no_such_topic(name_of(request))
    page = await trio.to_thread.run_sync(select_partitions, partitions, query)
    return await json_response_from_thread(page)


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
@operation(PartitionSegments[Page[SegmentDetail]], query=SegmentsQuery, problems=NO_SUCH_PARTITION)
async def get_segments(request: Request) -> Response:
    """The files of one partition: which offsets, size and index, and what retention takes when."""
    query = query_of(request, SegmentsQuery)
    try:
        found = await node_of(request).topic_segments.of_partition(name_of(request), partition_of(request))
    except TopicRefused as refused:
        raise problem_of(refused) from refused
    if found is None:
        raise no_such_partition()
    segments = await trio.to_thread.run_sync(select_segments, found.segments, query)
    # attrs gives the class with another list of segments; mypy cannot say so.
    answer = attrs.evolve(cast(PartitionSegments[Any], found), segments=segments)
    return await json_response_from_thread(answer)


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC), left_out(DESCRIBE_GROUP))
@operation(Page[TopicConsumer], query=ConsumersQuery, problems=NO_SUCH_TOPIC)
async def get_groups(request: Request) -> Response:
    """The groups that read a topic, with their lag there and whether it grows; the one most behind first."""
    query = query_of(request, ConsumersQuery)
    groups = await visible_consumers(request, name_of(request))
    if groups is None:
        raise no_such_topic(name_of(request))
    return await json_response_from_thread(await trio.to_thread.run_sync(select_consumers, groups, query))


# --- what is changed ---


@requires(Role.OPERATOR, of_topic(ALTER_TOPIC))
@operation(
    AddedPartitions, query=ChangeQuery, body=AddPartitionsBody, is_change=True, problems=REFUSED
)  # fmt: skip
async def add_partitions(request: Request) -> Response:
    """Add partitions, which cannot be taken away again; says how many keys go to another one from then on."""
    dry_run = query_of(request, ChangeQuery).dry_run
    body = await read_change(request, AddPartitionsBody)
    try:
        added = await cluster_of(request).topic_changes.add_partitions(
            name_of(request), body.partitions, dry_run=dry_run, changed_by=caller_name(request)
        )
    except TopicRefused as refused:
        raise problem_of(refused) from refused
    return json_response(added)


@requires(Role.ADMIN, of_topic(DELETE_TOPIC))
@operation(PurgedTopic, query=ChangeQuery, body=PurgeBody, is_change=True, problems=REFUSED)
async def purge_topic(request: Request) -> Response:
    """Delete the records before an offset, before a time, or all; partitions and settings stay."""
    dry_run = query_of(request, ChangeQuery).dry_run
    body = await read_change(request, PurgeBody)
    target = purge_target(body)
    try:
        purged = await cluster_of(request).topic_changes.purge(
            name_of(request), target, body.partitions, dry_run=dry_run, changed_by=caller_name(request)
        )
    except TopicRefused as refused:
        raise problem_of(refused) from refused
    return await json_response_from_thread(purged)


def purge_target(body: PurgeBody) -> PurgeTarget:
    """Up to where ``body`` asks to purge.

    Raises:
        Problem: 422, unless it says exactly one.
    """
    given = [
        name
        for name, is_given in {
            "to_end": body.to_end,
            "to_offset": body.to_offset is not None,
            "to_timestamp_ms": body.to_timestamp_ms is not None,
        }.items()
        if is_given
    ]
    if len(given) != 1:
        reason = "a purge takes one of to_end (all records), to_offset and to_timestamp_ms (those before it)"
        raise Problem(422, reason, [FieldError(body_pointer(name), reason) for name in given or ["to_end"]])
    return PurgeTarget(to_end=body.to_end, to_offset=body.to_offset, to_timestamp_ms=body.to_timestamp_ms)


class TopicConfigEndpoint(HTTPEndpoint):
    """The settings of one topic."""

    @requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC_CONFIGS))
    @operation(Configs, problems=NO_SUCH_TOPIC)
    async def get(self, request: Request) -> Response:
        """Every topic key as it stands for this topic: value, the chain of its sources, default and help."""
        entries = cluster_of(request).topics.configs(name_of(request))
        if entries is None:
            raise no_such_topic(name_of(request))
        return json_response(Configs({entry.name: entry for entry in entries}))

    @requires(Role.OPERATOR, of_topic(ALTER_TOPIC_CONFIGS))
    @operation(ChangedTopicConfigs, query=ChangeQuery, body=ConfigChanges, is_change=True, problems=REFUSED)
    async def patch(self, request: Request) -> Response:
        """Set settings of a topic, or reset those that are null to what the broker says; all of them or none."""
        dry_run = query_of(request, ChangeQuery).dry_run
        changes, reasons = topic_texts(cluster_of(request), await read_config_changes(request))
        try:
            changed = await cluster_of(request).topic_changes.change_configs(
                name_of(request), changes, dry_run=dry_run, changed_by=caller_name(request)
            )
        except TopicRefused as refused:
            raise problem_of(refused, configs_are_the_body=True, reasons=reasons) from refused
        return json_response(changed)


TOPIC = "/api/v1/topics/{topic}"

ROUTES = [
    Route("/api/v1/topics", TopicsEndpoint),
    Route(TOPIC + ":purge", purge_topic, methods=["POST"]),
    Route(TOPIC + ":add-partitions", add_partitions, methods=["POST"]),
    Route(TOPIC, TopicEndpoint),
    Route(TOPIC + "/rates", get_rates),
    Route(TOPIC + "/groups", get_groups),
    Route(TOPIC + "/config", TopicConfigEndpoint),
    Route(TOPIC + "/partitions", get_partitions),
    NodeRoute(f"{NODE_API}/topics/{{topic}}/partitions/{{partition}}/segments", get_segments),
]
