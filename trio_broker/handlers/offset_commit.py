"""OffsetCommit: store the committed offsets of a group.

Topics are named up to version 9 and have ids from 10 on (KIP-516); the coordinator receives both. Partitions that do
not exist are refused here and do not reach the coordinator. Nor does a request without any that exists, so that even a
fenced member gets UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.

Fast path: a request whose partitions all exist is passed on as it was decoded; nothing is copied.

Source: Kafka's KafkaApis.handleOffsetCommitRequest and OffsetCommitResponse.Builder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, list_in_turns, partition_in_turns
from trio_broker.handlers.support.context import Context, GroupCaller
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_GROUP, READ_TOPIC, ForEach, for_group, its_name_or_id

BY_ID_SINCE_VERSION = 10

CHECKED_AT_ONCE = 1000
"""Partitions of a topic whose existence is looked up in one step: a tenth of a millisecond."""


def error_response(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=list(failures(topic.partitions, error.code))
            )
            for topic in request.topics
        ]
    )


def failures(
    partitions: Iterable[OffsetCommitRequestPartition], code: ErrorCode
) -> Iterator[OffsetCommitResponsePartition]:
    for partition in partitions:
        yield OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)


def failed(
    topic: OffsetCommitRequestTopic, partitions: Iterable[OffsetCommitRequestPartition], code: ErrorCode
) -> Steps[OffsetCommitResponseTopic]:
    """The answer for partitions of ``topic`` that commit nothing."""
    answers = yield from list_in_turns(failures(partitions, code))
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


@attrs.define
class ResolvedTopics:
    """The topics of a request, divided into existing partitions and errors for the others."""

    by_id: bool
    known: list[OffsetCommitRequestTopic] = attrs.Factory(list)
    missing: list[OffsetCommitResponseTopic] = attrs.Factory(list)

    def add(self, topic: OffsetCommitRequestTopic, image: MetadataImage) -> Steps[None]:
        """Fill in both the name and the id of ``topic``, and remove the partitions that it does not have."""
        there = image.topics_by_id.get(topic.topic_id) if self.by_id else image.topics.get(topic.name)
        if there is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if self.by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.missing.append((yield from failed(topic, topic.partitions, code)))
            return
        # In place: the request was decoded for this handler alone.
        topic.name, topic.topic_id = there.name, there.topic_id
        known = there.partitions
        partitions = topic.partitions
        if len(partitions) > CHECKED_AT_ONCE or [each for each in partitions if each.partition_index not in known]:
            topic.partitions, absent = yield from partition_in_turns(
                partitions, lambda each: each.partition_index in known
            )
            if absent:
                self.missing.append((yield from failed(topic, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        if topic.partitions:
            self.known.append(topic)


@handles(
    OffsetCommitRequest,
    error_response=error_response,
    requires=[for_group(READ_GROUP), ForEach([READ_TOPIC], "topics", "topics", its_name_or_id)],
)
def offset_commit(request: OffsetCommitRequest, context: Context) -> Steps[OffsetCommitResponse]:
    """Commit the offsets of the partitions that exist; every other partition gets its error."""
    return commit_existing(request, context, by_id=context.version >= BY_ID_SINCE_VERSION)


def commit_existing(request: OffsetCommitRequest, caller: GroupCaller, *, by_id: bool) -> Steps[OffsetCommitResponse]:
    """As the handler; the topics of ``request`` have ids with ``by_id``, else names."""
    result = ResolvedTopics(by_id=by_id)
    # One image for the whole request: a topic that is deleted while this yields is judged as the others are.
    image = caller.services.metadata_cache.image
    # The most frequent request of a group: ``InTurns`` takes a microsecond longer for its one topic.
    budget = YieldBudget()
    for topic in request.topics:
        yield from result.add(topic, image)
        if budget.is_spent:
            yield budget.renewed
    if not result.known:
        return OffsetCommitResponse(topics=result.missing)
    request.topics = result.known
    try:
        response = yield from caller.call_group(request.group_id, request)
    except KafkaError as error:
        refused = []
        for topic in request.topics:
            refused.append((yield from failed(topic, topic.partitions, error.code)))
            if budget.is_spent:
                yield budget.renewed
        response = OffsetCommitResponse(topics=refused)
    if result.missing:
        merge(response, result.missing)
    return response


def merge(response: OffsetCommitResponse, missing: Iterable[OffsetCommitResponseTopic]) -> None:
    """Add the refused partitions, each to its topic's answer where there is one already."""
    answered = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in missing:
        if same := answered.get((topic.name, topic.topic_id)):
            same.partitions += topic.partitions
        else:
            response.topics.append(topic)
