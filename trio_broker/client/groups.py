"""Groups: listing, describing and deleting them, and removing static members.

Consumers form two types of group. ConsumerGroupDescribe describes a group of the consumer protocol (KIP-848). A group
that this API does not find is looked up with DescribeGroups, as a classic group. The broker has the subscriptions and
assignments of a classic group's members as opaque bytes, which are decoded here if the members are consumers.

Source: Kafka's ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups and LeaveGroup APIs;
DescribeConsumerGroupsHandler.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from kafka_wire.consumer_protocol import PROTOCOL_TYPE
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import consumer_group_describe, describe_groups
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DEAD, DescribeGroupsRequest
from kafka_wire.messages.leave_group import MEMBERS_SINCE_VERSION, LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest
from trio_broker.client.consumer_protocol import read_assignment, read_subscription
from trio_broker.client.errors import Refused, check, only
from trio_broker.client.kafka_client import KafkaClient, Node
from trio_broker.common.topic_partition import TopicPartition

FILTERS_STATES_FROM: Final = 4
FILTERS_TYPES_FROM: Final = 5
"""The versions of ListGroups from which on it filters by, and returns, states (KIP-518) and types (KIP-848)."""

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of group, as ListGroups names them."""

MEMBERLESS_STATES: Final = frozenset({"Empty", DEAD})
"""The states of a group without members, whose offsets may be changed from outside."""


@attrs.frozen
class GroupMember:
    """One member. ``assigned`` is None if the member's bytes are not a consumer's assignment.

    ``target`` (the partitions that the member is to have next), ``epoch`` and ``subscribed_regex`` are None in a
    classic group. In a KIP-848 group ``is_classic`` marks a member that uses the classic protocol, during a migration.
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
    """One group. The epochs are None for a classic group; ``assignor`` is empty until one has been chosen."""

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
    """Return the groups of all brokers, sorted by name; an empty filter lets every group pass.

    Raises:
        Refused: a broker could not list its groups before the deadline, as while it loads them.
        VersionNotServed: a broker is too old for a filter that was given.
    """

    def ask() -> dict[str, ListedGroup]:
        # Every broker lists only the groups that it coordinates. By id: while a group changes its coordinator, two
        # brokers may list it.
        nodes = client.brokers().nodes
        return {group.group_id: group for node in nodes for group in _list_groups(client, node, states, types)}

    # All of them again after a failure: another broker lists the groups of one that is lost.
    groups = client.attempt(ask)
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


def remove_static_member(client: KafkaClient, group_id: str, instance_id: str, reason: str) -> None:
    """Remove the member with a group instance id from its group (KIP-345).

    Raises:
        Refused: there is no such group or member.
    """

    def ask() -> None:
        member = MemberIdentity(member_id="", group_instance_id=instance_id, reason=reason)
        request = LeaveGroupRequest(group_id=group_id, members=[member])
        response = client.ask(client.coordinator(group_id), request, at_least=MEMBERS_SINCE_VERSION)
        check(f"group {group_id!r}", response.error_code)
        name = f"member {instance_id!r} of group {group_id!r}"
        check(name, only(response.members, name).error_code)

    # After a lost answer a second attempt would report a removal that worked as UNKNOWN_MEMBER_ID.
    client.attempt(ask, repeatable=False)


def _describe(client: KafkaClient, group_id: str) -> GroupDescription:
    if client.coordinator(group_id).serves(ConsumerGroupDescribeRequest):
        try:
            return _describe_consumer_group(client, group_id)
        except Refused as error:
            # GROUP_ID_NOT_FOUND may mean a classic group. UNSUPPORTED_VERSION comes from a broker that has the API
            # while the protocol is disabled. Kafka's DescribeConsumerGroupsHandler treats the two alike.
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
        protocol_type=PROTOCOL_TYPE,
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
        # KIP-1099: 0 is classic, 1 consumer; -1, unknown, is what version 0 of the API leaves.
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
    # Up to version 5 a group that does not exist is in state Dead, without an error; version 6 has GROUP_ID_NOT_FOUND
    # for it (KIP-1043).
    if group.group_state == DEAD:
        raise Refused(f"group {group_id!r}", ErrorCode.GROUP_ID_NOT_FOUND)
    # A group whose clients commit offsets and never join has no protocol type: a simple consumer group in Kafka.
    is_of_consumers = group.protocol_type in (PROTOCOL_TYPE, "")
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
