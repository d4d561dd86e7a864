"""Groups: which there are, who is in them, and their end.

There are two kinds for consumers. A KIP-848 group is described by ConsumerGroupDescribe; what that API does not know is
looked for among the classic groups, of whose members the broker has only bytes: those of consumers are read, those of
others are not.

Source: Kafka's ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups APIs; DescribeConsumerGroupsHandler.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import consumer_group_describe, describe_groups
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest
from trio_broker.client.consumer_protocol import CONSUMER_PROTOCOL, read_assignment, read_subscription
from trio_broker.client.errors import Refused, check, only
from trio_broker.client.kafka_client import KafkaClient, Node
from trio_broker.topic_partition import TopicPartition

FILTERS_STATES_FROM: Final = 4
FILTERS_TYPES_FROM: Final = 5
"""The first versions of ListGroups that can filter, and that tell states and types."""

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of group, as ListGroups tells them."""

DEAD: Final = "Dead"
"""The state that older brokers give a group that does not exist."""

MEMBERLESS_STATES: Final = frozenset({"Empty", DEAD})
"""The states in which no member can be disturbed by a change of offsets."""


@attrs.frozen
class GroupMember:
    """One member. ``assigned`` is None where its bytes are not a consumer's.

    Only a KIP-848 group tells ``target`` (what the member shall have), ``epoch`` and the regular expression; there
    ``is_classic`` marks a member that speaks the older protocol.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None
    assigned: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None
    epoch: int | None
    is_classic: bool


@attrs.frozen
class GroupDescription:
    """One group; the epochs are None for a classic one. ``assignor`` is empty while none was chosen."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    coordinator: Node
    members: tuple[GroupMember, ...]


def list_groups(client: KafkaClient, *, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Return the groups of every broker by name, all of them where a filter is empty.

    Raises:
        Refused: a broker cannot tell now, for longer than there is time.
        VersionNotServed: a filter is given that a broker does not know.
    """
    groups: dict[str, ListedGroup] = {}
    for node in client.attempt(client.brokers).nodes:
        for group in client.attempt(functools.partial(_list_groups, client, node, states, types)):
            # By id: while a group changes its coordinator, two brokers may list it.
            groups[group.group_id] = group
    return sorted(groups.values(), key=lambda group: group.group_id)


def _list_groups(client: KafkaClient, node: Node, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    at_least = FILTERS_TYPES_FROM if types else FILTERS_STATES_FROM if states else 0
    request = ListGroupsRequest(states_filter=sorted(states), types_filter=sorted(types))
    response = client.ask(client.node(node.node_id), request, at_least=at_least)
    check(f"groups of broker {node.node_id}", response.error_code)
    return response.groups


def describe_group(client: KafkaClient, group_id: str) -> GroupDescription:
    """Return a group of either type.

    Raises:
        Refused: there is no such group (GROUP_ID_NOT_FOUND), or it is of a type that consumers do not have.
    """
    return client.attempt(lambda: _describe(client, group_id))


def delete_group(client: KafkaClient, group_id: str) -> None:
    """Delete a group and its offsets.

    Raises:
        Refused: it has members (NON_EMPTY_GROUP), or does not exist.
    """

    def ask() -> None:
        response = client.ask(client.coordinator(group_id), DeleteGroupsRequest(groups_names=[group_id]))
        result = only(response.results, f"group {group_id!r}")
        check(f"group {group_id!r}", result.error_code)

    # After a lost answer a second attempt would report a deletion that worked as GROUP_ID_NOT_FOUND.
    client.attempt(ask, repeatable=False)


def _describe(client: KafkaClient, group_id: str) -> GroupDescription:
    if client.coordinator(group_id).serves(ConsumerGroupDescribeRequest):
        try:
            return _describe_consumer_group(client, group_id)
        except Refused as error:
            # A broker with the API but without the protocol switched on answers UNSUPPORTED_VERSION.
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
    return _describe_classic_group(client, group_id)


def _describe_consumer_group(client: KafkaClient, group_id: str) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    group = only(client.ask(client.coordinator(group_id), request).groups, f"group {group_id!r}")
    check(f"group {group_id!r}", group.error_code, group.error_message)
    return GroupDescription(
        group_id=group_id,
        type=CONSUMER,
        state=group.group_state,
        protocol_type=CONSUMER_PROTOCOL,
        assignor=group.assignor_name,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        coordinator=client.coordinator_node(group_id),
        members=tuple(sorted(map(_consumer_member, group.members), key=lambda member: member.member_id)),
    )


def _consumer_member(member: consumer_group_describe.Member) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        subscribed_topics=tuple(sorted(member.subscribed_topic_names)),
        subscribed_regex=member.subscribed_topic_regex or None,
        assigned=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        epoch=member.member_epoch,
        is_classic=member.member_type == 0,
    )


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


def _describe_classic_group(client: KafkaClient, group_id: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[group_id])
    group = only(client.ask(client.coordinator(group_id), request).groups, f"group {group_id!r}")
    check(f"group {group_id!r}", group.error_code, group.error_message)
    # Up to version 5 a group that does not exist is in state Dead, without an error (KIP-1043).
    if group.group_state == DEAD:
        raise Refused(f"group {group_id!r}", ErrorCode.GROUP_ID_NOT_FOUND)
    # A group that has only ever committed offsets has no protocol type.
    is_of_consumers = group.protocol_type in (CONSUMER_PROTOCOL, "")
    members = [_classic_member(member, is_of_consumers) for member in group.members]
    return GroupDescription(
        group_id=group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        epoch=None,
        assignment_epoch=None,
        coordinator=client.coordinator_node(group_id),
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def _classic_member(member: describe_groups.DescribedGroupMember, is_consumer: bool) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        subscribed_topics=read_subscription(member.member_metadata) if is_consumer else None,
        subscribed_regex=None,
        assigned=read_assignment(member.member_assignment) if is_consumer else None,
        target=None,
        epoch=None,
        is_classic=True,
    )
