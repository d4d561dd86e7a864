"""``cluster decommission``: what a broker has left, and that it is asked to leave, or to stay."""

from __future__ import annotations

import json

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafka_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.cli.scripted_commands import run
from tests.fakes.scripted_kafka import HOST, Cluster, ScriptedKafka

MOVING = ListPartitionReassignmentsResponse(
    error_message=None,
    topics=[
        OngoingTopicReassignment(
            name="orders",
            partitions=[
                OngoingPartitionReassignment(
                    partition_index=0, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1]
                )
            ],
        )
    ],
)


def brokers(*broker_ids: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        cluster_id="scripted",
        brokers=[DescribeClusterBroker(broker_id=each, host=HOST, port=1, rack=None) for each in broker_ids],
    )


def altered(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=4, resource_name="1")
        ]
    )


@pytest.fixture
def kafka():
    """Broker 1 of two, which has two partitions, leads one of them, and loses it just now."""
    answers = {
        DescribeClusterRequest: brokers(1, 2),
        IncrementalAlterConfigsRequest: altered(),
        ListPartitionReassignmentsRequest: MOVING,
    }
    with ScriptedKafka(answers) as server:
        Cluster([server], topics={"orders": [1, 2]})
        yield server


def changes(kafka: ScriptedKafka) -> list[tuple[str | None, bool]]:
    """The values that were asked for, and whether only to be checked."""
    requests = [each.request for each in kafka.asked if isinstance(each.request, IncrementalAlterConfigsRequest)]
    return [(each.resources[0].configs[0].value, each.validate_only) for each in requests]


@pytest.mark.parametrize(
    ("options", "asked"),
    [((), ("true", False)), (("--dry-run",), ("true", True)), (("--cancel",), (None, False))],
)
def test_what_the_broker_has_is_shown_and_the_change_made(kafka, options, asked):
    result = run(kafka, "cluster", "decommission", "1", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "broker: 1  replicas: 2  leaders: 1  moving: 1",
        "TOPIC   PARTITIONS  LEADERS  MOVING",
        "orders           2        1       1",
    ]
    assert changes(kafka) == [asked]


def test_json_has_all_of_it(kafka):
    document = json.loads(run(kafka, "cluster", "decommission", "1", "--dry-run", "--json").stdout)
    assert document == {
        "broker": 1,
        "dry_run": True,
        "has_left": False,
        "replicas": 2,
        "leaders": 1,
        "moving": 1,
        "topics": [{"topic": "orders", "partitions": 2, "leaders": 1, "moving": 1}],
    }


def test_a_refusal_is_one_line(kafka):
    reason = "broker 1 cannot be decommissioned: topic orders has 2 replicas, and 1 broker would be left"
    kafka.answers[IncrementalAlterConfigsRequest] = altered(ErrorCode.INVALID_REQUEST, reason)
    result = run(kafka, "cluster", "decommission", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"trio-broker: broker 1: INVALID_REQUEST: {reason}\n"


def test_an_unknown_broker_is_refused_and_nothing_asked_for(kafka):
    result = run(kafka, "cluster", "decommission", "7")
    assert result.exit_code == 1
    assert result.stderr == "trio-broker: broker 7 is not registered in this cluster\n"
    assert changes(kafka) == []


def test_it_waits_until_the_broker_has_left(kafka, monkeypatch):
    looks: list[DescribeClusterRequest] = []

    def described(request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
        assert request.include_fenced_brokers
        looks.append(request)
        return brokers(1, 2) if len(looks) < 3 else brokers(2)

    kafka.answers[DescribeClusterRequest] = described
    monkeypatch.setattr("trio_broker.cli.cluster_decommission.POLL_SECONDS", 0)
    result = run(kafka, "cluster", "decommission", "1", "--wait")
    assert result.exit_code == 0, result.output
    assert result.stdout == "broker: 1  replicas: 0  leaders: 0  moving: 0\n"
    assert result.stderr.splitlines() == ["broker 1 has 2 replicas left", "broker 1 has left the cluster"]
