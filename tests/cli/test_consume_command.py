"""``consume`` as it is typed: from where to where it reads, and how records are printed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import Record
from tests.cli.test_hints import usage_error
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka, fetched, listed
from trio_broker.cli import main

RECORDS = 10
"""In each of the two partitions, in batches of four; each is as old as its offset in seconds since 1970."""


def record(partition: int, offset: int) -> Record:
    return Record(offset, offset * 1000, b"k%d" % offset, b"%d.%d" % (partition, offset), (("h", b"x"),))


def batch_at(partition: int, offset: int) -> bytes:
    """The batch that holds an offset."""
    first = offset - offset % 4
    records = [record(partition, each) for each in range(first, min(first + 4, RECORDS))]
    return build_batch(records, base_offset=first)


def fetch(request: FetchRequest, version: int) -> FetchResponse:
    """One batch of each partition; nothing at the end."""

    def data(asked: FetchPartition) -> PartitionData:
        index, offset = asked.partition, asked.fetch_offset
        records = batch_at(index, offset) if offset < RECORDS else b""
        return PartitionData(partition_index=index, high_watermark=RECORDS, aborted_transactions=None, records=records)

    return fetched(request, data)


def list_offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    def answer(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        found = {-1: RECORDS, -2: 0}.get(asked.timestamp, -(-asked.timestamp // 1000))
        offset = found if found < RECORDS or asked.timestamp == -1 else -1
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)

    return listed(request, answer)


@pytest.fixture
def server() -> Iterator[ScriptedKafka]:
    with ScriptedKafka({FetchRequest: fetch, ListOffsetsRequest: list_offsets}) as server:
        Cluster([server], topics={"t": [1, 1]})
        yield server


def consume(server: ScriptedKafka, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["consume", *arguments, "-b", server.address])


def offsets(result: Result) -> dict[int, list[int]]:
    """The offsets that were printed, by partition, where the value is all that was printed."""
    assert result.exit_code == 0, result.output
    found: dict[int, list[int]] = {}
    for line in result.stdout.splitlines():
        partition, _, offset = line.partition(".")
        found.setdefault(int(partition), []).append(int(offset))
    return found


def test_everything_that_is_there_is_printed_and_then_it_ends(server: ScriptedKafka):
    assert offsets(consume(server, "t")) == {0: [*range(10)], 1: [*range(10)]}


@pytest.mark.parametrize(
    ("places", "printed"),
    [
        (["--from", "7"], [7, 8, 9]),
        (["-o", "-2"], [8, 9]),
        (["-o", "end"], []),
        (["-o", "1970-01-01T00:00:06"], [6, 7, 8, 9]),
        (["-o", "s@5500"], [6, 7, 8, 9]),
        (["-o", "3", "--to", "5"], [3, 4]),
        (["--to", "-8"], [0, 1]),
        (["-o", "5", "--to", "5"], []),
        (["-o", "6", "--to", "2"], []),
        (["-o", "1", "-c", "3"], [1, 2, 3]),
    ],
)
def test_only_what_lies_between_the_places_is_printed(server: ScriptedKafka, places: list[str], printed: list[int]):
    assert offsets(consume(server, "t:1", *places)).get(1, []) == printed


def test_partitions_are_named_behind_the_topic_or_by_an_option(server: ScriptedKafka):
    assert offsets(consume(server, "t:1", "-o", "-1")) == {1: [9]}
    assert offsets(consume(server, "t", "-p", "0", "-o", "-1")) == {0: [9]}
    assert {each.partition for request in server.requests(FetchRequest) for each in request.topics[0].partitions} == {
        0,
        1,
    }


def test_a_count_is_over_all_partitions(server: ScriptedKafka):
    assert sum(map(len, offsets(consume(server, "t", "--count", "9")).values())) == 9


def test_keys_and_another_delimiter_are_printed_if_asked_for(server: ScriptedKafka):
    assert consume(server, "t:0", "-o", "-2", "-K", ":", "-D", ";").stdout == "k8:0.8;k9:0.9;"


def test_a_format_says_how_a_record_is_printed(server: ScriptedKafka):
    result = consume(server, "t:0", "-o", "9", "-f", r"%t %p %o %T %k=%s %K %S %h\n")
    assert result.stdout == "t 0 9 9000 k9=0.9 2 3 h=x\n"


def test_json_is_a_line_for_each_record(server: ScriptedKafka):
    [line] = consume(server, "t:0", "-o", "9", "--json").stdout.splitlines()
    assert json.loads(line) == {
        "topic": "t",
        "partition": 0,
        "offset": 9,
        "timestamp": 9000,
        "timestamp_type": "create",
        "key": "k9",
        "value": "0.9",
        "headers": [{"key": "h", "value": "x"}],
    }


@pytest.mark.parametrize(("level", "sent"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_the_isolation_level_holds_for_offsets_and_records(server: ScriptedKafka, level: str, sent: int):
    consume(server, "t", "--isolation-level", level)
    assert {request.isolation_level for request in server.requests(FetchRequest)} == {sent}
    latest = [each for each in server.requests(ListOffsetsRequest) if each.topics[0].partitions[0].timestamp == -1]
    assert {request.isolation_level for request in latest} == {sent}


def test_an_offset_that_the_log_does_not_have_is_reported_and_the_nearest_is_taken(server: ScriptedKafka):
    result = consume(server, "t:0", "-o", "99")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "t-0: there is no offset 99; the log ends at 10\n"


def test_following_begins_at_the_end_and_goes_on_until_it_is_enough(server: ScriptedKafka):
    """The log grows while it is followed: what was its end is read when it is asked for a second time."""
    at_the_end = [0]

    def growing(request: FetchRequest, version: int) -> FetchResponse:
        at_the_end[0] += 1
        response = fetch(request, version)
        if at_the_end[0] > 2:
            [topic] = response.responses
            [partition] = topic.partitions
            partition.records = build_batch([Record(10, 0, None, b"0.10")], base_offset=10)
        return response

    server.answers[FetchRequest] = growing
    assert offsets(consume(server, "t:0", "--follow", "-c", "1")) == {0: [10]}
    assert {request.topics[0].partitions[0].fetch_offset for request in server.requests(FetchRequest)} == {10}


def test_a_damaged_batch_is_reported_behind_what_was_good(server: ScriptedKafka):
    def damaged(request: FetchRequest, version: int) -> FetchResponse:
        response = fetch(request, version)
        data = bytearray(batch_at(0, 0) + batch_at(0, 4))
        data[-1] ^= 1
        response.responses[0].partitions[0].records = bytes(data)
        return response

    server.answers[FetchRequest] = damaged
    result = consume(server, "t:0")
    assert (result.exit_code, result.stdout) == (1, "0.0\n0.1\n0.2\n0.3\n")
    assert result.stderr.startswith("trio-broker: t-0: batch at offset 4: CRC is 0x")


def test_a_topic_or_partition_that_does_not_exist_is_reported(server: ScriptedKafka):
    assert consume(server, "missing").stderr.startswith("trio-broker: topic 'missing': UNKNOWN_TOPIC_OR_PARTITION")
    assert consume(server, "t:7").stderr.startswith("trio-broker: partition t-7: UNKNOWN_TOPIC_OR_PARTITION")


def test_what_may_not_be_read_is_reported(server: ScriptedKafka):
    def refused(request: FetchRequest, version: int) -> FetchResponse:
        response = fetch(request, version)
        response.responses[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    server.answers[FetchRequest] = refused
    result = consume(server, "t:0")
    assert (result.exit_code, result.stderr) == (1, "trio-broker: partition t-0: TOPIC_AUTHORIZATION_FAILED\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--json", "-f", "%s"], "choose one form"),
        (["--json", "-K", ":"], "choose one form"),
        (["-f", "%s", "-D", ":"], "choose one form"),
        (["-f", "%x"], "--format: %x is no token; there are %t %p %o"),
        (["--follow", "--to", "5"], "--follow has no end"),
        (["-o", "soon"], "'soon' is no position in a log"),
        (["-c", "0"], "0 is not in the range"),
    ],
)
def test_options_that_make_no_sense_are_a_wrong_use(server: ScriptedKafka, arguments: list[str], reason: str):
    assert reason in usage_error("consume", "t", *arguments, "-b", server.address)
    assert "not both" in usage_error("consume", "t:1", "-p", "1", "-b", server.address)
    assert server.asked == []
