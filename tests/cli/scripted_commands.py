"""Commands run in this process, and a scripted broker that they ask."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from kafka_wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.client.scripted_client import coordinator_at
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka, listed
from trio_broker.cli import main

EARLIEST, LATEST = 10, 100
YOUNG_MS = 1_000_000
"""From this moment on no record is as young; before it, all are."""


def run(server: ScriptedKafka, *arguments: str, given: str | None = None) -> Result:
    """Run a command against a server; ``given`` is what somebody types."""
    return CliRunner().invoke(main, [*arguments, "--bootstrap-server", server.address], input=given)


def group_server(state: str = "Empty", committed: dict[int, int] | None = None) -> ScriptedKafka:
    """A broker with a topic ``t`` of two partitions from ``EARLIEST`` to ``LATEST``, and a group that has committed."""
    server = ScriptedKafka(
        {
            ConsumerGroupDescribeRequest: described(state),
            OffsetFetchRequest: fetched({0: 50} if committed is None else committed),
            ListOffsetsRequest: list_offsets,
            OffsetCommitRequest: commit,
            DescribeConfigsRequest: deletion_delay,
        }
    )
    server.answers[FindCoordinatorRequest] = coordinator_at(server)
    Cluster([server], topics={"t": [1, 1]})
    return server


def described(state: str, code: int = 0) -> ConsumerGroupDescribeResponse:
    group = DescribedGroup(
        error_code=code,
        group_id="g",
        group_state=state,
        group_epoch=3,
        assignment_epoch=3,
        assignor_name="uniform",
        members=[],
    )
    return ConsumerGroupDescribeResponse(groups=[group])


def deletion_delay(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
    [resource] = request.resources
    assert resource.configuration_keys == ["file.delete.delay.ms"]
    delay = DescribeConfigsResourceResult(
        name="file.delete.delay.ms", value="60000", read_only=False, is_sensitive=False, synonyms=[]
    )
    result = DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[delay],
    )
    return DescribeConfigsResponse(results=[result])


def fetched(committed: dict[int, int]) -> OffsetFetchResponse:
    partitions = [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, metadata="")
        for index, offset in committed.items()
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)] if committed else []
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def list_offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    def answer(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        late = EARLIEST + 7 if asked.timestamp < YOUNG_MS else -1
        offset = {-1: LATEST, -2: EARLIEST}.get(asked.timestamp, late)
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)

    return listed(request, answer)


def commit(request: OffsetCommitRequest, version: int, code: int = 0) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def committed_to(server: ScriptedKafka) -> dict[int, int]:
    """The offsets that were set, by partition."""
    requests: list[Any] = server.requests(OffsetCommitRequest)
    return {
        each.partition_index: each.committed_offset
        for request in requests
        for topic in request.topics
        for each in topic.partitions
    }
