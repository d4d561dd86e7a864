"""ConsumerGroupDescribe: the state, the members and the assignments of KIP-848 groups.

A classic group is GROUP_ID_NOT_FOUND here, upon which clients ask with DescribeGroups (KIP-848).

Source: Kafka's KafkaApis.handleConsumerGroupDescribe.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from trio_broker.cluster.features import require_consumer_protocol
from trio_broker.concurrency.yield_budget import InTurns, in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.group_descriptions import described_groups
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, ForEach, InHandler, itself


def error_response(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[refused_group(group_id, error) for group_id in request.group_ids])


def refused_group(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=str(error),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


@handles(
    ConsumerGroupDescribeRequest,
    error_response=error_response,
    requires=[
        ForEach([DESCRIBE_GROUP], "group_ids", "groups", itself),
        InHandler([DESCRIBE_TOPIC], "a group that reads the topic: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    """Describe each group; an unknown one gets GROUP_ID_NOT_FOUND."""
    protocols = context.services.config.group_coordinator.group_coordinator_rebalance_protocols
    require_consumer_protocol(context.services.metadata_cache.image, protocols)
    described = await described_groups(
        request.group_ids,
        lambda group_id: describe(group_id, context),
        context,
        include_authorized_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=described)


async def describe(group_id: str, context: Context) -> DescribedGroup:
    """Describe one group; an unknown group gets its error."""
    try:
        group = await in_turns(context.services.groups.machine(group_id).describe_consumer_group(group_id))
        if context.services.authorizer is not None:
            await require_topics(group, context)
        return group
    except KafkaError as error:
        return refused_group(group_id, error)


async def require_topics(group: DescribedGroup, context: Context) -> None:
    """Refuse to show a group with topics that the client may not see.

    Raises:
        KafkaError: TOPIC_AUTHORIZATION_FAILED.
    """
    assigned = (
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )
    for name in {name async for name in InTurns(assigned)}:
        context.require(DESCRIBE_TOPIC, name)
