"""One rule for every command whose change cannot be undone: it shows, then asks, or needs ``--execute``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from kafka_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafka_wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafka_wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafka_wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.cli.scripted_commands import group_server, run
from tests.fakes.scripted_kafka import ScriptedKafka
from trio_broker.cli import consent, main

COMMANDS = {
    "topics delete": (["topics", "delete", "t"], DeleteTopicsRequest),
    "topics purge": (["topics", "purge", "t"], DeleteRecordsRequest),
    "topics alter": (["topics", "alter", "t", "--partitions", "3"], CreatePartitionsRequest),
    "groups delete": (["groups", "delete", "g"], DeleteGroupsRequest),
    "groups delete-offsets": (["groups", "delete-offsets", "g", "--all-topics"], OffsetDeleteRequest),
    "groups reset-offsets": (["groups", "reset-offsets", "g", "--topic", "t", "--to-latest"], OffsetCommitRequest),
}

every_command = pytest.mark.parametrize(("arguments", "change"), COMMANDS.values(), ids=COMMANDS)


@pytest.fixture
def server() -> Iterator[ScriptedKafka]:
    """A broker that agrees to everything."""
    purged = DeleteRecordsTopicResult(
        name="t",
        partitions=[DeleteRecordsPartitionResult(partition_index=index, low_watermark=100) for index in (0, 1)],
    )
    partitions = [OffsetDeleteResponsePartition(partition_index=0)]
    with group_server() as server:
        server.answers |= {
            DeleteRecordsRequest: DeleteRecordsResponse(topics=[purged]),
            DeleteTopicsRequest: DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")]),
            CreatePartitionsRequest: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")]),
            DeleteGroupsRequest: DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")]),
            OffsetDeleteRequest: OffsetDeleteResponse(
                topics=[OffsetDeleteResponseTopic(name="t", partitions=partitions)]
            ),
        }
        yield server


def changes(server: ScriptedKafka, kind: type) -> int:
    """How many changes were made; a broker that only checks makes none."""
    return sum(not getattr(request, "validate_only", False) for request in server.requests(kind))


@every_command
def test_where_nobody_can_answer_nothing_is_changed_and_the_command_fails(server, arguments, change):
    result = run(server, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith(
        "trio-broker: nothing was changed: there is no terminal to ask on; --execute makes the change without asking\n"
    )
    assert len(result.stderr.splitlines()) > 1, "what would be changed is shown"
    assert changes(server, change) == 0


@every_command
@pytest.mark.parametrize("answer", ["n", ""])
def test_on_a_terminal_a_no_changes_nothing(server, monkeypatch, arguments, change, answer):
    monkeypatch.setattr(consent, "is_interactive", lambda: True)
    result = run(server, *arguments, given=f"{answer}\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("trio-broker: nothing was changed\n")
    assert changes(server, change) == 0


@every_command
def test_on_a_terminal_a_yes_makes_the_change(server, monkeypatch, arguments, change):
    monkeypatch.setattr(consent, "is_interactive", lambda: True)
    result = run(server, *arguments, given="y\n")
    assert result.exit_code == 0, result.output
    assert changes(server, change) == 1


@every_command
@pytest.mark.parametrize("word", ["--execute", "--yes"])
def test_consent_given_beforehand_is_not_asked_for(server, arguments, change, word):
    result = run(server, *arguments, word)
    assert result.exit_code == 0, result.output
    assert changes(server, change) == 1


@every_command
def test_a_dry_run_shows_and_succeeds(server, arguments, change):
    result = run(server, *arguments, "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stdout
    assert result.stderr.endswith("dry run: nothing was changed; --execute makes the change\n")
    assert changes(server, change) == 0


@every_command
def test_both_at_once_make_no_sense(server, arguments, change):
    assert run(server, *arguments, "--execute", "--dry-run").exit_code == 2


@every_command
def test_the_rule_stands_in_the_help(arguments, change):
    printed = " ".join(CliRunner().invoke(main, [*arguments[:2], "--help"]).output.split())
    assert "Otherwise the command asks on a terminal, and without a terminal changes nothing." in printed


@pytest.mark.parametrize("command", [("topics", "create"), ("configs", "alter")])
def test_the_help_of_what_can_be_changed_back_says_that_it_does_not_ask(command):
    printed = " ".join(CliRunner().invoke(main, [*command, "--help"]).output.split())
    assert "Otherwise it is made without a question: it can be reverted." in printed


def test_an_export_changes_nothing_and_asks_nobody(server):
    result = run(server, "groups", "reset-offsets", "g", "--all-topics", "--to-current", "--export")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "t,0,50\n", "")
