"""Groups of both kinds, as brokers of different age tell of them."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    encode_assignment,
    encode_subscription,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import consumer_group_describe, describe_groups
from kafka_wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from kafka_wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafka_wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafka_wire.primitives import NO_UUID
from tests.client.scripted_client import Pauses, client_of, coordinator_at
from tests.fakes.scripted_kafka import CLOSED, Cluster, ScriptedKafka, served_up_to
from trio_broker.client.errors import ConnectionLost, Refused, VersionNotServed
from trio_broker.client.groups import delete_group, describe_group, list_groups
from trio_broker.common.topic_partition import TopicPartition

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def coordinating(answers: dict[type[Any], Any], **settings: Any) -> ScriptedKafka:
    """A broker that is everybody's coordinator."""
    server = ScriptedKafka(answers, **settings)
    server.answers[FindCoordinatorRequest] = coordinator_at(server)
    Cluster([server])
    return server


def classic(state: str, *members: DescribedGroupMember, protocol_type: str = "consumer", code: int = 0) -> Any:
    """What DescribeGroups answers."""
    group = describe_groups.DescribedGroup(
        error_code=code,
        group_id="g",
        group_state=state,
        protocol_type=protocol_type,
        protocol_data="range" if members else "",
        members=list(members),
    )
    return DescribeGroupsResponse(groups=[group])


def classic_member(name: str, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=name,
        client_id="app",
        client_host="/10.0.0.1",
        member_metadata=encode_subscription(ConsumerProtocolSubscription(topics=["t"])),
        member_assignment=assignment,
    )


def assigned(topic: str, *partitions: int) -> bytes:
    given = [ConsumerProtocolTopic(topic=topic, partitions=list(partitions))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=given))


def consumer(*members: Member, code: int = 0) -> ConsumerGroupDescribeResponse:
    """What ConsumerGroupDescribe answers."""
    group = consumer_group_describe.DescribedGroup(
        error_code=code,
        group_id="g",
        group_state="" if code else "Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=list(members),
    )
    return ConsumerGroupDescribeResponse(groups=[group])


# describe


def test_a_consumer_group_is_reported_with_epochs_and_targets():
    def partitions(*numbers: int) -> Assignment:
        topic = TopicPartitions(topic_id=NO_UUID, topic_name="t", partitions=list(numbers))
        return Assignment(topic_partitions=[topic])

    member = Member(
        member_id="m",
        instance_id="i",
        member_epoch=4,
        client_id="app",
        client_host="/10.0.0.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        assignment=partitions(1),
        target_assignment=partitions(1, 0),
        member_type=0,
    )
    with coordinating({ConsumerGroupDescribeRequest: consumer(member)}) as server, client_of(server) as client:
        group = describe_group(client, "g")
        assert (group.type, group.state, group.assignor) == ("consumer", "Reconciling", "uniform")
        assert (group.epoch, group.assignment_epoch) == (5, 4)
        assert group.coordinator.address.port == server.port
        [reported] = group.members
        assert (reported.instance_id, reported.epoch, reported.is_classic) == ("i", 4, True)
        assert (reported.subscribed_topics, reported.subscribed_regex) == (("t",), "t.*")
        assert reported.assigned == (TopicPartition("t", 1),)
        assert reported.target == (TopicPartition("t", 0), TopicPartition("t", 1))
        assert server.requests(DescribeGroupsRequest) == []


def test_what_is_no_consumer_group_is_looked_for_among_the_classic_ones():
    members = [classic_member("b", assigned("t", 1)), classic_member("a", b"")]
    answers: dict[type[Any], Any] = {
        ConsumerGroupDescribeRequest: consumer(code=NOT_FOUND),
        DescribeGroupsRequest: classic("Stable", *members),
    }
    with coordinating(answers) as server, client_of(server) as client:
        group = describe_group(client, "g")
        assert (group.type, group.state, group.assignor, group.epoch) == ("classic", "Stable", "range", None)
        assert [(member.member_id, member.assigned) for member in group.members] == [
            ("a", ()),
            ("b", (TopicPartition("t", 1),)),
        ]
        assert group.members[1].subscribed_topics == ("t",)


def test_a_broker_without_consumer_groups_is_asked_for_classic_ones_at_once():
    server = coordinating({DescribeGroupsRequest: classic("Empty")})
    del server.served[ApiKey.CONSUMER_GROUP_DESCRIBE]
    with server, client_of(server) as client:
        assert describe_group(client, "g").state == "Empty"


@pytest.mark.parametrize("answer", [classic("", code=NOT_FOUND), classic("Dead", protocol_type="")])
def test_a_group_that_does_not_exist_is_reported_alike_by_old_and_new_brokers(answer: Any):
    answers: dict[type[Any], Any] = {
        ConsumerGroupDescribeRequest: consumer(code=NOT_FOUND),
        DescribeGroupsRequest: answer,
    }
    with (
        coordinating(answers) as server,
        client_of(server) as client,
        pytest.raises(Refused, match="group 'g': GROUP_ID_NOT_FOUND: there is no such group"),
    ):
        describe_group(client, "g")


def test_a_refusal_of_another_kind_is_not_taken_for_a_classic_group():
    answers: dict[type[Any], Any] = {ConsumerGroupDescribeRequest: consumer(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    with (
        coordinating(answers) as server,
        client_of(server) as client,
        pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"),
    ):
        describe_group(client, "g")


@pytest.mark.parametrize(("protocol_type", "bytes_"), [("connect", b"\0\1anything"), ("consumer", b"garbage")])
def test_the_assignment_of_who_is_no_consumer_is_unknown(protocol_type: str, bytes_: bytes):
    answers: dict[type[Any], Any] = {
        ConsumerGroupDescribeRequest: consumer(code=NOT_FOUND),
        DescribeGroupsRequest: classic("Stable", classic_member("m", bytes_), protocol_type=protocol_type),
    }
    with coordinating(answers) as server, client_of(server) as client:
        group = describe_group(client, "g")
        assert group.protocol_type == protocol_type
        assert group.members[0].assigned is None


def test_a_coordinator_that_loads_is_waited_for():
    loading = consumer(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pauses = Pauses()
    with (
        coordinating({ConsumerGroupDescribeRequest: [loading, loading, consumer()]}) as server,
        client_of(server, pauses=pauses) as client,
    ):
        assert describe_group(client, "g").state == "Reconciling"
        assert len(pauses.made) == 2


# list


def listed(*groups: str, code: int = 0) -> ListGroupsResponse:
    rows = [
        ListedGroup(group_id=group, protocol_type="consumer", group_state="Empty", group_type="classic")
        for group in groups
    ]
    return ListGroupsResponse(error_code=code, groups=rows)


def test_every_broker_is_asked_for_its_groups():
    first = ScriptedKafka({ListGroupsRequest: listed("c", "a")}, node_id=1)
    second = ScriptedKafka({ListGroupsRequest: listed("b", "a")}, node_id=2)
    with first, second, client_of(first) as client:
        Cluster([first, second])
        assert [group.group_id for group in list_groups(client, states=(), types=())] == ["a", "b", "c"]


def test_filters_go_to_the_broker():
    with coordinating({ListGroupsRequest: listed()}) as server, client_of(server) as client:
        list_groups(client, states=["Stable", "Empty"], types=["consumer"])
        [request] = server.requests(ListGroupsRequest)
        assert (request.states_filter, request.types_filter) == (["Empty", "Stable"], ["consumer"])


@pytest.mark.parametrize(("states", "types"), [(["Stable"], []), ([], ["classic"])])
def test_a_broker_that_cannot_filter_is_not_asked_to(states: list[str], types: list[str]):
    server = coordinating({ListGroupsRequest: listed("a")}, served=served_up_to(ApiKey.LIST_GROUPS, 3))
    with server, client_of(server) as client:
        assert list_groups(client, states=(), types=())[0].group_state == ""
        with pytest.raises(VersionNotServed):
            list_groups(client, states=states, types=types)


def test_a_broker_that_still_loads_its_groups_is_waited_for():
    answers = [listed(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), listed("a")]
    with coordinating({ListGroupsRequest: answers}) as server, client_of(server) as client:
        assert len(list_groups(client, states=(), types=())) == 1


# delete


def deleted(code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])


def test_a_group_is_deleted_where_it_is_coordinated():
    with coordinating({DeleteGroupsRequest: deleted(0)}) as server, client_of(server) as client:
        delete_group(client, "g")
        assert server.requests(DeleteGroupsRequest)[0].groups_names == ["g"]


def test_a_group_with_members_is_not_deleted():
    answers = {DeleteGroupsRequest: deleted(ErrorCode.NON_EMPTY_GROUP)}
    with (
        coordinating(answers) as server,
        client_of(server) as client,
        pytest.raises(Refused, match="group 'g': NON_EMPTY_GROUP: the group has members"),
    ):
        delete_group(client, "g")


def test_a_deletion_that_was_lost_is_not_repeated():
    with coordinating({DeleteGroupsRequest: CLOSED}) as server, client_of(server) as client:
        with pytest.raises(ConnectionLost, match="not known"):
            delete_group(client, "g")
        assert len(server.requests(DeleteGroupsRequest)) == 1
