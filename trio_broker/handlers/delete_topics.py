"""DeleteTopics: delete topics by name or, from version 6 on, by id.

The answer is sent when the topic is unknown to every other request; its files are deleted after
``file.delete.delay.ms``.

Source: Kafka's ControllerApis.deleteTopics and ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from trio_broker.cluster.metadata_image import TopicImage
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, clear_in_turns
from trio_broker.handlers.support.client_quotas import partition_change_quota
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DELETE_CLUSTER, DELETE_TOPIC, ForEach, its_name_or_id, itself

DELETION_DISABLED_SINCE_VERSION = 3
"""Clients of earlier versions do not know TOPIC_DELETION_DISABLED and get INVALID_REQUEST."""


STRICT_QUOTA_SINCE_VERSION = 5


def error_response(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[refused_topic(target, error) for target in targets(request)])


@handles(
    DeleteTopicsRequest,
    error_response=error_response,
    requires=[
        ForEach([DELETE_TOPIC], "topic_names", "responses", itself, unless=DELETE_CLUSTER),
        ForEach([DELETE_TOPIC], "topics", "responses", its_name_or_id, unless=DELETE_CLUSTER),
    ],
    by_controller=True,
)
async def delete_topics(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """Delete each topic, or answer with its error."""
    wanted = [target async for target in InTurns(targets(request))]
    context.release_for_disk()
    try:
        outcomes = await context.services.controller.delete_topics(
            wanted, apply_quota=partition_change_quota(context, strict_since=STRICT_QUOTA_SINCE_VERSION)
        )
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_DELETION_DISABLED and context.version < DELETION_DISABLED_SINCE_VERSION:
            raise KafkaError(str(error), code=ErrorCode.INVALID_REQUEST) from error
        raise
    responses = [
        refused_topic(target, outcome) if isinstance(outcome, KafkaError) else deleted_topic(outcome)
        async for target, outcome in InTurns(zip(wanted, outcomes, strict=True))
    ]
    await run_steps(clear_in_turns(wanted, outcomes))
    return DeleteTopicsResponse(responses=responses)


def targets(request: DeleteTopicsRequest) -> Iterator[TopicTarget]:
    """The topics meant: one of the two lists is empty, depending on the version."""
    for name in request.topic_names:
        yield TopicTarget(name)
    for topic in request.topics:
        yield TopicTarget(topic.name, topic.topic_id)


def refused_topic(target: TopicTarget, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=target.name, topic_id=target.topic_id, error_code=error.code, error_message=str(error)
    )


def deleted_topic(topic: TopicImage) -> DeletableTopicResult:
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
