"""``topics purge`` as it is typed: what it shows, what it deletes, and how a refused partition is reported."""

from __future__ import annotations

import json

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tests.cli.scripted_commands import group_server, run
from tests.fakes.scripted_kafka import ScriptedKafka

WHEN_SPACE_IS_FREE = "whole segments leave the disk after 60 s (file.delete.delay.ms), and at once where it is full\n"


def delete(request: DeleteRecordsRequest, version: int, refused: int | None = None) -> DeleteRecordsResponse:
    """Move the beginning of every log but that of the partition ``refused``."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=-1 if each.partition_index == refused else each.offset,
                        error_code=ErrorCode.POLICY_VIOLATION if each.partition_index == refused else 0,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def deleted(server: ScriptedKafka) -> dict[int, int]:
    """The offsets that were deleted up to, by partition."""
    return {
        each.partition_index: each.offset
        for request in server.requests(DeleteRecordsRequest)
        for topic in request.topics
        for each in topic.partitions
    }


def purge_server(refused: int | None = None) -> ScriptedKafka:
    server = group_server()
    server.answers[DeleteRecordsRequest] = lambda request, version: delete(request, version, refused)
    return server


def test_all_that_was_there_when_it_was_asked_for_goes():
    with purge_server() as server:
        result = run(server, "topics", "purge", "t", "--execute")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            "TOPIC  PARTITION  EARLIEST  LATEST  NEW EARLIEST  OFFSETS  DELETED",
            "t              0        10     100           100       90  yes",
            "t              1        10     100           100       90  yes",
        ]
        assert result.stderr == WHEN_SPACE_IS_FREE
        assert deleted(server) == {0: 100, 1: 100}


def test_only_what_is_before_the_place_goes():
    with purge_server() as server:
        assert run(server, "topics", "purge", "t:1", "--to", "-20", "--yes").exit_code == 0
        assert deleted(server) == {1: 80}


def test_a_dry_run_shows_the_same_and_deletes_nothing():
    with purge_server() as server:
        result = run(server, "topics", "purge", "t:0", "--to", "60", "--dry-run", "--json")
        assert json.loads(result.stdout) == {
            "dry_run": True,
            "partitions": [
                {
                    "topic": "t",
                    "partition": 0,
                    "earliest_offset": 10,
                    "latest_offset": 100,
                    "new_earliest_offset": 60,
                    "offsets": 50,
                    "deleted": False,
                    "error": None,
                }
            ],
        }
        assert deleted(server) == {}


def test_a_partition_that_is_refused_is_reported_beside_the_others():
    with purge_server(refused=1) as server:
        result = run(server, "topics", "purge", "t", "--execute", "--json")
        assert result.exit_code == 1
        rows = json.loads(result.stdout)["partitions"]
        assert [(row["deleted"], row["error"]) for row in rows] == [(True, None), (False, "POLICY_VIOLATION")]
        assert [row["new_earliest_offset"] for row in rows] == [100, 10], "where the second begins is asked again"
        assert result.stderr == WHEN_SPACE_IS_FREE + "trio-broker: partition t-1: POLICY_VIOLATION\n"


def test_a_topic_that_does_not_exist_is_reported():
    with purge_server() as server:
        result = run(server, "topics", "purge", "missing", "--execute")
        assert result.exit_code == 1
        assert result.stderr.startswith("trio-broker: topic 'missing': UNKNOWN_TOPIC_OR_PARTITION")
