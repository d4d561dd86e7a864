"""OffsetFetch: the committed offsets of groups.

The coordinator has one form of the request, clients have three (KIP-709): up to version 7 one group in the fields of
the request, from 8 on many; topics by name, from 10 on by id (KIP-516). In version 1 the response has no room for the
group's error, so every partition has it. An offset that was never committed is -1 without an error, even where there is
no such topic; only an id can be unknown. With ``require_stable`` an offset that a transaction is about to change is an
error that the client retries.

Source: Kafka's KafkaApis.fetchOffsetsForGroup, fetchAllOffsetsForGroup, and OffsetFetchResponse.groupError.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_fetch import (
    GROUPS_SINCE_VERSION,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_wire.primitives import NO_OFFSET, NO_UUID
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, list_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, InHandler

GROUP_ERROR_SINCE_VERSION = 2
BY_ID_SINCE_VERSION = 10

NO_METADATA = ""


def error_response(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    """Every group has the error; up to version 7 every partition does, since version 1 has no other field for it."""
    return OffsetFetchResponse(
        topics=[failed_old(topic, error.code) for topic in request.topics or ()],
        error_code=error.code,
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
            for group in request.groups
        ],
    )


def failed_old(topic: OffsetFetchRequestTopic, code: int) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=NO_OFFSET, metadata=NO_METADATA, error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def failed(topic: OffsetFetchRequestTopics, code: ErrorCode) -> Steps[OffsetFetchResponseTopics]:
    partitions = (
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, metadata=NO_METADATA, error_code=code
        )
        for index in topic.partition_indexes
    )
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=(yield from list_in_turns(partitions))
    )


@handles(
    OffsetFetchRequest,
    error_response=error_response,
    requires=[
        InHandler([DESCRIBE_GROUP], "the group: GROUP_AUTHORIZATION_FAILED"),
        InHandler(
            [DESCRIBE_TOPIC], "the partitions of a topic: TOPIC_AUTHORIZATION_FAILED; left out where all are asked for"
        ),
    ],
)
def offset_fetch(request: OffsetFetchRequest, context: Context) -> Steps[OffsetFetchResponse]:
    """Answer with the committed offsets of the partitions asked for, or of all."""
    if context.version < GROUPS_SINCE_VERSION:
        return (yield from fetch_single(request, context))
    budget = YieldBudget()
    groups = []
    for group in distinct(request.groups):
        groups.append((yield from fetch_group(group, context, stable=request.require_stable)))
        if budget.is_spent:
            yield budget.renewed
    return OffsetFetchResponse(groups=groups)


def distinct(groups: list[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """``groups`` without those that ask once more for everything of the same group: a few bytes to ask, megabytes to
    answer."""
    everything_of = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in everything_of:
                continue
            everything_of.add(group.group_id)
        yield group


def fetch_group(group: OffsetFetchRequestGroup, context: Context, *, stable: bool) -> Steps[OffsetFetchResponseGroup]:
    """The committed offsets of one group, in the form with many groups."""
    image = context.services.metadata_cache.image
    by_id = context.version >= BY_ID_SINCE_VERSION
    wants_all = group.topics is None
    # Before the coordinator is asked, which goes by names: an unknown id has none.
    unknown = (yield from pop_unknown(group, image)) if by_id and not wants_all else []
    response = yield from ask(group, context, stable=stable)
    # From version 2 on a group's error stands alone, without partitions (OffsetFetchResponse.groupError).
    if response.error_code != ErrorCode.NONE:
        response.topics = []
    elif by_id and wants_all:
        response.topics = yield from list_in_turns(with_ids(response.topics, image))
    else:
        response.topics += unknown
    return response


def ask(group: OffsetFetchRequestGroup, context: Context, *, stable: bool) -> Steps[OffsetFetchResponseGroup]:
    """Call the coordinator; an error is the answer for this group only, not for the others in the request."""
    try:
        context.require(DESCRIBE_GROUP, group.group_id)
        refused = yield from pop_refused(group, context)
        fetch = context.services.groups.fetch_offsets_steps
        response = yield from fetch(group, context.release_handler, require_stable=stable)
        if context.services.authorizer is not None and group.topics is None:
            seen = (each for each in response.topics if context.may(DESCRIBE_TOPIC, each.name, is_audited=False))
            response.topics = yield from list_in_turns(seen)
        response.topics += refused
        return response
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)


def pop_refused(group: OffsetFetchRequestGroup, context: Context) -> Steps[list[OffsetFetchResponseTopics]]:
    """Take the topics out of ``group`` that the client may not see, and return the answers for them."""
    refused: list[OffsetFetchResponseTopics] = []
    if context.services.authorizer is None or group.topics is None:
        return refused
    seen = []
    budget = YieldBudget()
    for topic in group.topics:
        if context.may(DESCRIBE_TOPIC, topic.name):
            seen.append(topic)
        else:
            refused.append((yield from failed(topic, DESCRIBE_TOPIC.error)))
        if budget.is_spent:
            yield budget.renewed
    group.topics = seen
    return refused


def pop_unknown(group: OffsetFetchRequestGroup, image: MetadataImage) -> Steps[list[OffsetFetchResponseTopics]]:
    """Give the topics of ``group`` their names; take out those whose id is unknown, and return the answers for them."""
    known = []
    unknown = []
    budget = YieldBudget()
    for topic in group.topics or ():
        if there := image.topics_by_id.get(topic.topic_id):
            topic.name = there.name
            known.append(topic)
        else:
            unknown.append((yield from failed(topic, ErrorCode.UNKNOWN_TOPIC_ID)))
        if budget.is_spent:
            yield budget.renewed
    group.topics = known
    return unknown


def with_ids(topics: list[OffsetFetchResponseTopics], image: MetadataImage) -> Iterator[OffsetFetchResponseTopics]:
    """``topics`` with their ids. Offsets outlive their topic for a while: one that has no id any more is left out."""
    for topic in topics:
        if topic.topic_id == NO_UUID and (there := image.topics.get(topic.name)):
            topic.topic_id = there.topic_id
        if topic.topic_id != NO_UUID:
            yield topic


def fetch_single(request: OffsetFetchRequest, context: Context) -> Steps[OffsetFetchResponse]:
    """The committed offsets of one group, in the form up to version 7."""
    response = yield from ask(as_group(request), context, stable=request.require_stable)
    if response.error_code != ErrorCode.NONE:
        in_partitions = context.version < GROUP_ERROR_SINCE_VERSION
        topics = [failed_old(topic, response.error_code) for topic in request.topics or ()] if in_partitions else []
        return OffsetFetchResponse(topics=topics, error_code=response.error_code)
    budget = YieldBudget()
    topics = []
    for topic in response.topics:
        topics.append((yield from old_shape(topic, budget)))
    return OffsetFetchResponse(topics=topics)


def as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The group that a request up to version 7 is about."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def old_shape(topic: OffsetFetchResponseTopics, budget: YieldBudget) -> Steps[OffsetFetchResponseTopic]:
    partitions: list[OffsetFetchResponsePartition] = []
    for partition in topic.partitions:
        partitions.append(
            OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error_code,
            )
        )
        if budget.is_spent:
            yield budget.renewed
    if budget.is_spent:  # a topic may have no partitions
        yield budget.renewed
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
