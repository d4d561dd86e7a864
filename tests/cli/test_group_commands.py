"""``groups delete``, ``delete-offsets``, ``remove-member``, ``describe`` and ``lag`` as they are typed."""

from __future__ import annotations

import json

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest, Member
from kafka_wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafka_wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest
from tests.cli.scripted_commands import described, fetched, group_server, run
from tests.fakes.scripted_kafka import ScriptedKafka

DRY_RUN = "dry run: nothing was changed; --execute makes the change\n"


def deletable(server: ScriptedKafka, code: int = 0) -> ScriptedKafka:
    result = DeletableGroupResult(group_id="g", error_code=code)
    server.answers[DeleteGroupsRequest] = DeleteGroupsResponse(results=[result])
    partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in (0, 1)]
    topic = OffsetDeleteResponseTopic(name="t", partitions=partitions)
    server.answers[OffsetDeleteRequest] = OffsetDeleteResponse(topics=[topic])
    return server


def missing(server: ScriptedKafka) -> ScriptedKafka:
    """The same, but that it knows no group."""
    group = DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        group_id="g",
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
    server.answers[ConsumerGroupDescribeRequest] = described("", ErrorCode.GROUP_ID_NOT_FOUND)
    server.answers[DescribeGroupsRequest] = DescribeGroupsResponse(groups=[group])
    return server


# delete


def test_a_group_is_deleted_only_when_it_is_said():
    with deletable(group_server()) as server:
        shown = run(server, "groups", "delete", "g", "--dry-run")
        assert shown.stdout.splitlines() == ["GROUP  STATE  OFFSETS  DELETED", "g      Empty        1  no"]
        assert (shown.exit_code, shown.stderr) == (0, DRY_RUN)
        assert server.requests(DeleteGroupsRequest) == []

        done = run(server, "groups", "delete", "g", "--execute", "--json")
        assert json.loads(done.stdout) == {
            "dry_run": False,
            "groups": [{"group": "g", "state": "Empty", "offsets": 1, "deleted": True}],
        }
        assert len(server.requests(DeleteGroupsRequest)) == 1


def test_a_dry_run_tells_what_the_broker_would_refuse():
    with deletable(group_server("Stable")) as server:
        result = run(server, "groups", "delete", "g", "--dry-run")
        assert result.exit_code == 1
        assert result.stderr == "trio-broker: group 'g': NON_EMPTY_GROUP: it is Stable; stop its members first (0)\n"
        assert result.stdout == ""


def test_one_group_that_is_missing_does_not_keep_another():
    with missing(group_server()) as server:
        result = run(server, "groups", "delete", "g", "h", "g")
        assert result.exit_code == 1
        assert [line.split(":")[1] for line in result.stderr.splitlines()] == [" group 'g'", " group 'h'"]


# delete-offsets


def test_offsets_are_forgotten_only_when_it_is_said():
    with deletable(group_server(committed={0: 5, 1: 6})) as server:
        shown = run(server, "groups", "delete-offsets", "g", "--topic", "t:1", "--dry-run")
        assert shown.stdout.splitlines() == [
            "TOPIC  PARTITION  COMMITTED  DELETED",
            "t              1          6  no",
        ]
        assert (shown.exit_code, shown.stderr) == (0, DRY_RUN)
        assert server.requests(OffsetDeleteRequest) == []

        done = run(server, "groups", "delete-offsets", "g", "--all-topics", "--execute", "--json")
        assert done.exit_code == 0, done.output
        assert [each["deleted"] for each in json.loads(done.stdout)["partitions"]] == [True, True]


def test_a_refused_partition_is_reported_and_the_exit_code_says_so():
    with deletable(group_server(), ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) as server:
        result = run(server, "groups", "delete-offsets", "g", "--all-topics", "--execute", "--json")
        assert result.exit_code == 1
        [reported] = json.loads(result.stdout)["partitions"]
        assert (reported["deleted"], reported["error"]) == (False, "GROUP_SUBSCRIBED_TO_TOPIC")
        assert "partition t-0: GROUP_SUBSCRIBED_TO_TOPIC" in result.stderr


def test_offsets_that_are_not_there_cannot_be_forgotten():
    with deletable(group_server()) as server:
        result = run(server, "groups", "delete-offsets", "g", "--topic", "t:1", "--execute")
        assert (result.exit_code, result.stderr) == (
            1,
            "trio-broker: group 'g' has no committed offsets for these partitions\n",
        )
        result = run(server, "groups", "delete-offsets", "g", "--execute")
        assert result.exit_code == 2


def test_the_offsets_of_no_group_cannot_be_forgotten():
    with missing(group_server()) as server:
        result = run(server, "groups", "delete-offsets", "g", "--all-topics", "--execute")
        assert (result.exit_code, result.stderr) == (
            1,
            "trio-broker: group 'g': GROUP_ID_NOT_FOUND: there is no such group\n",
        )


# describe, lag


def test_a_group_is_described_with_its_lag():
    with group_server() as server:
        result = run(server, "groups", "describe", "g")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            "group: g  type: consumer  state: Empty  assignor: uniform  epoch: 3  "
            f"coordinator: 1 ({server.address})  members: 0",
            "",
            "TOPIC  PARTITION  COMMITTED  LOG END  LAG  CLIENT  HOST  MEMBER",
            "t              0         50      100   50       -     -       -",
        ]


def test_the_partition_of_a_deleted_topic_is_reported_beside_the_others():
    with group_server(committed={0: 50, 7: 1}) as server:
        result = run(server, "groups", "lag", "g")
        assert result.exit_code == 0
        assert [line.split() for line in result.stdout.splitlines()[1:]] == [
            ["g", "t", "0", "50", "100", "50"],
            ["g", "t", "7", "1", "-", "-"],
        ]
        assert result.stderr == "partition t-7: UNKNOWN_TOPIC_OR_PARTITION: there is no such topic or partition\n"


def test_the_lag_of_all_groups_is_summed_up():
    with group_server() as server:
        listed = [ListedGroup(group_id="g", protocol_type="consumer")]
        server.answers[ListGroupsRequest] = ListGroupsResponse(groups=listed)
        server.answers[OffsetFetchRequest] = fetched({0: 50, 1: 99, 7: 1})
        result = run(server, "groups", "lag", "--json")
        assert json.loads(result.stdout) == [
            {"group": "g", "state": "Empty", "partition_count": 3, "partitions_without_lag": 1, "lag": 51}
        ]


def test_a_name_cannot_steer_the_terminal():
    with group_server() as server:
        name = "evil\x1b[2J"
        listed = [ListedGroup(group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic")]
        server.answers[ListGroupsRequest] = ListGroupsResponse(groups=listed)
        assert "\x1b" not in run(server, "groups", "list").stdout
        assert json.loads(run(server, "groups", "list", "--json").stdout)[0]["group"] == name


# remove-member


def with_static_member() -> ScriptedKafka:
    server = group_server("Stable")
    answer = described("Stable")
    answer.groups[0].members = [
        Member(
            member_id="m-1",
            instance_id="till-7",
            rack_id=None,
            member_epoch=3,
            client_id="till",
            client_host="/10.0.0.7",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            assignment=Assignment(topic_partitions=[]),
            target_assignment=Assignment(topic_partitions=[]),
        )
    ]
    server.answers[ConsumerGroupDescribeRequest] = answer
    member = MemberResponse(member_id="m-1", group_instance_id="till-7", error_code=0)
    server.answers[LeaveGroupRequest] = LeaveGroupResponse(members=[member])
    return server


def test_a_static_member_is_removed_only_when_it_is_said():
    with with_static_member() as server:
        shown = run(server, "groups", "remove-member", "g", "till-7", "--dry-run")
        assert [line.split() for line in shown.stdout.splitlines()[1:]] == [["g", "till-7", "till", "/10.0.0.7", "no"]]
        assert server.requests(LeaveGroupRequest) == []
        done = run(server, "groups", "remove-member", "g", "till-7", "--execute", "--json")
        assert json.loads(done.stdout)["members"][0]["removed"]
        [request] = server.requests(LeaveGroupRequest)
        assert [(each.member_id, each.group_instance_id) for each in request.members] == [("", "till-7")]


def test_a_member_that_is_not_there_is_not_removed():
    with with_static_member() as server:
        result = run(server, "groups", "remove-member", "g", "till-8", "--execute")
        assert result.exit_code == 1
        assert "no member with the group.instance.id 'till-8'" in result.stderr
        assert server.requests(LeaveGroupRequest) == []
