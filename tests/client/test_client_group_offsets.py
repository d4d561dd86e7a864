"""Committed offsets: read in every version, set and forgotten partition by partition."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.client.scripted_client import client_of, coordinator_at
from tests.fakes.scripted_kafka import ScriptedKafka, served_up_to
from trio_broker.client.errors import Refused, VersionNotServed
from trio_broker.client.group_offsets import CommittedOffset, commit_offsets, delete_offsets, fetch_offsets
from trio_broker.common.topic_partition import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def coordinating(kind: type[Any], answer: Any, **settings: Any) -> ScriptedKafka:
    server = ScriptedKafka({kind: answer}, **settings)
    server.answers[FindCoordinatorRequest] = coordinator_at(server)
    return server


# fetch


def fetched(
    request: OffsetFetchRequest, version: int, *, code: int = 0, partition_code: int = 0
) -> OffsetFetchResponse:
    """Offset 7 for partition 0, nothing for partition 1, as each version says it."""
    if version < 8:
        old = [
            OffsetFetchResponsePartition(
                partition_index=0, committed_offset=7, metadata="here", error_code=partition_code
            ),
            OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata=None),
        ]
        return OffsetFetchResponse(error_code=code, topics=[OffsetFetchResponseTopic(name="t", partitions=old)])
    new = [
        OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=7, metadata="here", error_code=partition_code
        ),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, metadata=None),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=new)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code, topics=topics)])


@pytest.mark.parametrize("version", [2, 7, 8, 9])
def test_offsets_are_read_in_every_version(version: int):
    served = served_up_to(ApiKey.OFFSET_FETCH, version)
    with coordinating(OffsetFetchRequest, fetched, served=served) as server, client_of(server) as client:
        assert fetch_offsets(client, "g") == {T0: CommittedOffset(7, -1, "here")}
        assert server.versions(OffsetFetchRequest) == [version]
        [request] = server.requests(OffsetFetchRequest)
        assert (request.topics if version < 8 else request.groups[0].topics) is None


def test_topics_are_named_also_where_ids_are_possible():
    with coordinating(OffsetFetchRequest, fetched) as server, client_of(server) as client:
        assert T0 in fetch_offsets(client, "g")
        assert server.versions(OffsetFetchRequest) == [9]


def test_a_broker_that_cannot_tell_everything_is_not_asked():
    served = served_up_to(ApiKey.OFFSET_FETCH, 1)
    with (
        coordinating(OffsetFetchRequest, fetched, served=served) as server,
        client_of(server) as client,
        pytest.raises(VersionNotServed, match="OffsetFetch in versions 0-1"),
    ):
        fetch_offsets(client, "g")


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("place", ["code", "partition_code"])
def test_an_error_at_either_level_is_an_error(version: int, place: str):
    def refused(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        return fetched(request, version, **{place: ErrorCode.GROUP_AUTHORIZATION_FAILED})

    served = served_up_to(ApiKey.OFFSET_FETCH, version)
    with (
        coordinating(OffsetFetchRequest, refused, served=served) as server,
        client_of(server) as client,
        pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"),
    ):
        fetch_offsets(client, "g")


# commit


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


def test_offsets_are_set_as_by_a_consumer_outside_of_the_protocol():
    with coordinating(OffsetCommitRequest, committed(0, 0)) as server, client_of(server) as client:
        assert commit_offsets(client, "g", {T1: 5, T0: 4}) == {T0: None, T1: None}
        [request] = server.requests(OffsetCommitRequest)
        assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
        [topic] = request.topics
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 4), (1, 5)]
        assert server.versions(OffsetCommitRequest) == [9]


def test_each_partition_has_its_outcome():
    answer = committed(0, ErrorCode.UNKNOWN_MEMBER_ID)
    with coordinating(OffsetCommitRequest, answer) as server, client_of(server) as client:
        outcomes = commit_offsets(client, "g", {T0: 4, T1: 5})
        assert outcomes[T0] is None
        assert str(outcomes[T1]) == (
            "group 'g', partition t-1: UNKNOWN_MEMBER_ID: the group has members, so only they may commit"
        )


def test_a_partition_that_is_left_out_was_not_set():
    with coordinating(OffsetCommitRequest, committed(0)) as server, client_of(server) as client:
        assert "UNKNOWN_SERVER_ERROR" in str(commit_offsets(client, "g", {T0: 4, T1: 5})[T1])


def test_a_coordinator_that_moved_is_found():
    answers = [committed(ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR), committed(0, 0)]
    with coordinating(OffsetCommitRequest, answers) as server, client_of(server) as client:
        assert commit_offsets(client, "g", {T0: 4, T1: 5}) == {T0: None, T1: None}
        assert len(server.requests(FindCoordinatorRequest)) == 2


# delete


def forgotten(*codes: int, code: int = 0) -> OffsetDeleteResponse:
    partitions = [
        OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
    ]
    return OffsetDeleteResponse(error_code=code, topics=[OffsetDeleteResponseTopic(name="t", partitions=partitions)])


def test_offsets_are_forgotten_partition_by_partition():
    answer = forgotten(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    with coordinating(OffsetDeleteRequest, answer) as server, client_of(server) as client:
        outcomes = delete_offsets(client, "g", [T1, T0])
        assert outcomes[T0] is None
        assert "GROUP_SUBSCRIBED_TO_TOPIC: the group's members are subscribed" in str(outcomes[T1])
        [topic] = server.requests(OffsetDeleteRequest)[0].topics
        assert [each.partition_index for each in topic.partitions] == [0, 1]


def test_a_group_that_may_not_be_changed_is_an_error():
    answer = forgotten(code=ErrorCode.NON_EMPTY_GROUP)
    with (
        coordinating(OffsetDeleteRequest, answer) as server,
        client_of(server) as client,
        pytest.raises(Refused, match="NON_EMPTY_GROUP"),
    ):
        delete_offsets(client, "g", [T0])
