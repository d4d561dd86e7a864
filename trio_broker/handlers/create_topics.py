"""CreateTopics: create topics. Their partitions are on the disk before the answer is sent.

-1 for partitions or replicas stands for the broker's default (KIP-464); with ``validate_only`` everything is answered
as if it were done, and nothing is created. From version 5 on the answer shows the settings of each topic as
DescribeConfigs would. The timeout is ignored: the answer waits for one write of the metadata log and for files to be
created, never for another broker.

Source: Kafka's ControllerApis.createTopics and ReplicationControlManager.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from trio_broker.cluster.replication_control import CreatedTopic, NewTopic
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.resource_config import topic_entries
from trio_broker.handlers.support.client_quotas import partition_change_quota
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    ForEach,
    InHandler,
    its_name,
)

STRICT_QUOTA_SINCE_VERSION = 6


def error_response(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[refused_topic(topic.name, error) for topic in request.topics])


@handles(
    CreateTopicsRequest,
    error_response=error_response,
    requires=[
        ForEach([CREATE_TOPIC], "topics", "topics", its_name, unless=CREATE_CLUSTER),
        InHandler([DESCRIBE_TOPIC_CONFIGS], "the settings in the answer are left out"),
    ],
    by_controller=True,
)
async def create_topics(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    """Create each topic, or answer with its error."""
    wanted = [await wanted_topic(topic) async for topic in InTurns(request.topics)]
    context.release_for_disk()
    outcomes = await context.services.controller.create_topics(
        wanted,
        validate_only=request.validate_only,
        apply_quota=partition_change_quota(context, strict_since=STRICT_QUOTA_SINCE_VERSION),
    )
    results: list[CreatableTopicResult] = []
    async for topic, outcome in InTurns(zip(request.topics, outcomes, strict=True)):
        if isinstance(outcome, KafkaError):
            results.append(refused_topic(topic.name, outcome))
        else:
            shows = context.may(DESCRIBE_TOPIC_CONFIGS, outcome.name, is_audited=False)
            results.append(created_topic(outcome, context.services.config) if shows else unseen_topic(outcome))
    return CreateTopicsResponse(topics=results)


async def wanted_topic(topic: CreatableTopic) -> NewTopic:
    """Convert one topic of the request to what the controller takes.

    A partition that is assigned twice is left with an impossible number, so that the assignment is refused as a whole.
    """
    assignments = {item.partition_index: tuple(item.broker_ids) for item in topic.assignments}
    if len(assignments) != len(topic.assignments):
        assignments[-1] = ()
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs={item.name: item.value async for item in InTurns(topic.configs)},
    )


def refused_topic(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def created_topic(topic: CreatedTopic, config: BrokerConfig) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in topic_entries(topic.configs, config)
        ],
    )


def unseen_topic(topic: CreatedTopic) -> CreatableTopicResult:
    """What a client sees of a topic that it may create and whose settings it may not see."""
    code = DESCRIBE_TOPIC_CONFIGS.error
    return CreatableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_message=None, configs=None, topic_config_error_code=code
    )
