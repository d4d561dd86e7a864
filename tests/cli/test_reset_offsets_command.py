"""``groups reset-offsets`` as it is typed: what it shows, what it sets, and when it refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.offset_fetch import OffsetFetchRequest
from tests.cli.scripted_commands import commit, committed_to, described, group_server, run

RESET = ("groups", "reset-offsets", "g")


def test_nothing_is_set_unless_it_is_said():
    with group_server() as server:
        result = run(server, *RESET, "--topic", "t", "--to-earliest", "--dry-run")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            "TOPIC  PARTITION  CURRENT  NEW  CHANGE",
            "t              0       50   10     -40",
            "t              1        -   10       -",
        ]
        assert result.stderr == "dry run: nothing was changed; --execute makes the change\n"
        assert server.requests(OffsetCommitRequest) == []


def test_what_was_shown_is_set():
    with group_server() as server:
        result = run(server, *RESET, "--topic", "t", "--to-earliest", "--execute")
        assert result.exit_code == 0, result.output
        assert result.stderr == "offsets set: 2\n"
        assert committed_to(server) == {0: 10, 1: 10}


@pytest.mark.parametrize(
    ("way", "new"),
    [
        (["--to-earliest"], 10),
        (["--to-latest"], 100),
        (["--to-current"], 50),
        (["--to-offset", "0"], 10),
        (["--to-offset", "60"], 60),
        (["--shift-by", "-5"], 45),
        (["--shift-by", "5"], 55),
        (["--shift-by", "0"], 50),
        (["--to-datetime", "1970-01-01T00:00:01"], 17),
        (["--to-datetime", "1969-12-31T23:59:59.999"], 17),
        (["--to-datetime", "2026-01-01"], 100),
        (["--by-duration", "P40000D"], 17),
        (["--by-duration", "PT1H"], 100),
        (["--by-duration", "P999999999999999999D"], 17),
        (["--to-offset", str(1 << 70)], 100),
        (["--shift-by", str(-(1 << 70))], 10),
    ],
)
def test_every_way_sets_its_offset(way: list[str], new: int):
    with group_server() as server:
        result = run(server, *RESET, "--all-topics", *way, "--execute")
        assert result.exit_code == 0, result.output
        assert committed_to(server) == {0: new}


def test_an_export_can_be_set_again(tmp_path: Path):
    with group_server(committed={0: 50, 1: 60}) as server:
        exported = run(server, *RESET, "--all-topics", "--to-current", "--export")
        assert exported.stdout == "t,0,50\nt,1,60\n"
        file = tmp_path / "offsets.csv"
        file.write_text(exported.stdout)
        assert run(server, *RESET, "--from-file", str(file), "--execute").exit_code == 0
        assert committed_to(server) == {0: 50, 1: 60}


def test_the_offsets_of_another_group_are_set():
    with group_server(committed={0: 50, 1: 60}) as server:
        assert run(server, *RESET, "--all-topics", "--from-group", "other", "--execute").exit_code == 0
        assert committed_to(server) == {0: 50, 1: 60}
        asked = [request.groups[0].group_id for request in server.requests(OffsetFetchRequest)]
        assert "other" in asked


def test_another_group_without_offsets_is_refused():
    with group_server(committed={}) as server:
        result = run(server, *RESET, "--all-topics", "--from-group", "other", "--execute")
        assert result.exit_code == 2
        assert "--from-group: group 'other' has no committed offsets" in result.stderr


def test_only_the_named_partitions_are_set():
    with group_server() as server:
        assert run(server, *RESET, "--topic", "t:1", "--to-latest", "--execute").exit_code == 0
        assert committed_to(server) == {1: 100}


def test_json_tells_what_was_planned():
    with group_server() as server:
        result = run(server, *RESET, "--topic", "t:0", "--to-offset", "500", "--dry-run", "--json")
        assert json.loads(result.stdout) == {
            "group": "g",
            "dry_run": True,
            "partitions": [
                {
                    "topic": "t",
                    "partition": 0,
                    "current_offset": 50,
                    "new_offset": 100,
                    "change": 50,
                    "remark": "500 is after the log ends",
                    "error": None,
                }
            ],
        }


# Refusals


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "Assigning"])
def test_a_group_with_members_is_left_alone(state: str):
    with group_server(state) as server:
        result = run(server, *RESET, "--topic", "t", "--to-earliest", "--execute")
        assert result.exit_code == 1
        assert result.stderr == f"trio-broker: group 'g': NON_EMPTY_GROUP: it is {state}; stop its members first (0)\n"
        assert server.requests(OffsetCommitRequest) == []


def test_a_group_that_does_not_exist_is_created():
    missing = DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        group_id="g",
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
    with group_server(committed={}) as server:
        server.answers[ConsumerGroupDescribeRequest] = described("", ErrorCode.GROUP_ID_NOT_FOUND)
        server.answers[DescribeGroupsRequest] = DescribeGroupsResponse(groups=[missing])
        result = run(server, *RESET, "--topic", "t:0", "--to-earliest", "--execute")
        assert result.exit_code == 0, result.output
        assert "group 'g' does not exist yet; setting its offsets creates it" in result.stderr
        assert committed_to(server) == {0: 10}


def test_a_member_that_comes_in_between_is_reported_by_the_broker():
    with group_server() as server:
        server.answers[OffsetCommitRequest] = partial(commit, code=ErrorCode.UNKNOWN_MEMBER_ID)
        result = run(server, *RESET, "--all-topics", "--to-earliest", "--execute", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["partitions"][0]["error"] == "UNKNOWN_MEMBER_ID"
        assert result.stderr.startswith("trio-broker: group 'g', partition t-0: UNKNOWN_MEMBER_ID: the group has")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--topic", "missing", "--to-latest"], "topic 'missing': UNKNOWN_TOPIC_OR_PARTITION"),
        (["--topic", "t:0,7", "--to-latest"], "partition t-7: UNKNOWN_TOPIC_OR_PARTITION"),
        (["--topic", "t:1", "--shift-by", "1"], "t-1 cannot be shifted: nothing is committed for it"),
    ],
)
def test_a_plan_that_cannot_be_made_changes_nothing(arguments: list[str], reason: str):
    with group_server() as server:
        result = run(server, *RESET, *arguments, "--execute")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"trio-broker: {reason}")
        assert server.requests(OffsetCommitRequest) == []


def test_a_group_without_offsets_has_nothing_to_reset():
    with group_server(committed={}) as server:
        result = run(server, *RESET, "--all-topics", "--to-latest")
        assert (result.exit_code, result.stderr) == (1, "trio-broker: group 'g' has no committed offsets to reset\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--topic", "t"], "choose one way: --to-earliest, --to-latest, --to-current"),
        (["--topic", "t", "--to-latest", "--shift-by", "0"], "choose one way"),
        (["--to-latest"], "name partitions"),
        (["--topic", "t", "--all-topics", "--to-latest"], "name partitions"),
        (["--topic", "t:x", "--to-latest"], "TOPIC:0,1,2"),
        (["--topic", "t", "--to-offset", "-1"], "-1 is not in the range"),
        (["--topic", "t", "--to-datetime", "soon"], "--to-datetime"),
        (["--topic", "t", "--by-duration", "1h"], "PnDTnHnMnS"),
        (["--topic", "t", "--from-file", "FILE"], "leave out --topic"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(arguments: list[str], reason: str, tmp_path: Path):
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,1\n")
    with group_server() as server:
        result = run(server, *RESET, *[str(file) if each == "FILE" else each for each in arguments])
        assert result.exit_code == 2
        assert reason in result.stderr
        assert server.asked == []


def test_a_file_that_makes_no_sense_is_reported_with_its_line(tmp_path: Path):
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,1\nt,0\n")
    with group_server() as server:
        result = run(server, *RESET, "--from-file", str(file))
        assert result.exit_code == 2
        assert "--from-file: line 2: 't,0' is not of the form topic,partition,offset" in result.stderr
