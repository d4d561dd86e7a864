"""``topics`` and ``configs`` as they are typed: what asks first, what fails in part, and how trouble is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kafka_wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafka_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka_wire.messages.list_groups import ListGroupsRequest
from kafka_wire.messages.list_offsets import ListOffsetsRequest
from tests.cli.scripted_commands import list_offsets, run
from tests.client.scripted_client import unused_port
from tests.fakes.scripted_kafka import CLOSED, HOST, SILENCE, Cluster, ScriptedKafka
from trio_broker.cli import consent, main


def topic_server() -> ScriptedKafka:
    """A broker with the topics ``a`` and ``b``."""

    def deleted(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        [topic] = request.topics
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=topic.name)])

    def created(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        [topic] = request.topics
        code = ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in ("a", "b") else 0
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message="so it is" if code else None)]
        )

    server = ScriptedKafka(
        {DeleteTopicsRequest: deleted, CreateTopicsRequest: created, ListOffsetsRequest: list_offsets}
    )
    Cluster([server], topics={"a": [1, 1], "b": [1]})
    return server


def deletions(server: ScriptedKafka) -> list[Any]:
    return [request.topics[0].name for request in server.requests(DeleteTopicsRequest)]


# delete


def test_a_topic_is_deleted_only_if_somebody_agrees(monkeypatch: pytest.MonkeyPatch):
    with topic_server() as server:
        result = run(server, "topics", "delete", "a", "b")
        assert result.exit_code == 1
        assert result.stderr.splitlines() == [
            "topic 'a': 2 partitions, up to 180 records",
            "topic 'b': 1 partitions, up to 90 records",
            "trio-broker: nothing was changed: there is no terminal to ask on;"
            " --execute makes the change without asking",
        ]
        monkeypatch.setattr(consent, "is_interactive", lambda: True)
        assert run(server, "topics", "delete", "a", given="n\n").exit_code == 1
        assert run(server, "topics", "delete", "a", given="\n").exit_code == 1
        assert deletions(server) == []

        result = run(server, "topics", "delete", "a", given="y\n")
        assert (result.exit_code, result.stdout) == (0, "a: deleted\n")
        assert deletions(server) == ["a"]


def test_yes_is_not_asked_again():
    with topic_server() as server:
        result = run(server, "topics", "delete", "a", "b", "--yes", "--json")
        assert json.loads(result.stdout) == [
            {"name": "a", "outcome": "deleted"},
            {"name": "b", "outcome": "deleted"},
        ]
        assert deletions(server) == ["a", "b"]


def test_what_was_deleted_is_reported_although_the_next_one_was_lost():
    with topic_server() as server:
        gone = DeleteTopicsResponse(responses=[DeletableTopicResult(name="a")])
        server.answers[DeleteTopicsRequest] = [gone, CLOSED]
        result = run(server, "topics", "delete", "a", "b", "--yes")
        assert (result.exit_code, result.stdout) == (1, "a: deleted\n")
        assert "whether it was done is not known" in result.stderr


def test_nothing_is_deleted_if_a_name_is_wrong():
    with topic_server() as server:
        result = run(server, "topics", "delete", "a", "tipo", "--yes")
        assert result.exit_code == 1
        assert result.stderr.startswith("trio-broker: topic 'tipo': UNKNOWN_TOPIC_OR_PARTITION")
        assert deletions(server) == []


def test_a_missing_topic_may_be_all_right():
    with topic_server() as server:
        result = run(server, "topics", "delete", "a", "gone", "--yes", "--if-exists")
        assert (result.exit_code, result.stdout) == (0, "a: deleted\n")


# create, describe


def test_what_fails_does_not_keep_the_rest():
    with topic_server() as server:
        result = run(server, "topics", "create", "a", "new", "--partitions", "3")
        assert (result.exit_code, result.stdout) == (1, "new: created\n")
        assert result.stderr == "trio-broker: topic 'a': TOPIC_ALREADY_EXISTS: so it is\n"

        result = run(server, "topics", "create", "a", "new", "--if-not-exists", "--dry-run")
        assert (result.exit_code, result.stdout) == (0, "a: exists\nnew: would be created\n")
        assert server.requests(CreateTopicsRequest)[-1].validate_only


# configs


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["describe"], "--topic, --broker, --broker-logger or --all-brokers"),
        (["alter", "--set", "a=1"], "--topic, --broker, --broker-logger or --all-brokers"),
        (["alter", "--topic", "a"], "nothing to change"),
        (["alter", "--topic", "a", "--set", "a"], "KEY=VALUE"),
        (["alter", "--topic", "a", "--set", "a=1", "--delete", "a"], "'a' is changed twice"),
    ],
)
def test_a_change_that_says_too_little_or_too_much_is_refused(arguments: list[str], reason: str):
    with topic_server() as server:
        result = run(server, "configs", *arguments)
        assert result.exit_code == 2
        assert reason in result.stderr
        assert server.requests(IncrementalAlterConfigsRequest) == []


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST])
def test_a_misspelt_key_is_answered_with_the_one_of_the_broker_that_was_meant(code: ErrorCode):
    def refused(request: IncrementalAlterConfigsRequest, version: int) -> IncrementalAlterConfigsResponse:
        [resource] = request.resources
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=code,
                    error_message="Unknown topic config name: retention.msec",
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            ]
        )

    def described(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        [resource] = request.resources
        configs = [
            DescribeConfigsResourceResult(name=name, value="1", read_only=False, is_sensitive=False, synonyms=[])
            for name in ("retention.ms", "retention.bytes")
        ]
        result = DescribeConfigsResult(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )
        return DescribeConfigsResponse(results=[result])

    with topic_server() as server:
        server.answers |= {IncrementalAlterConfigsRequest: refused, DescribeConfigsRequest: described}
        result = run(server, "configs", "alter", "--topic", "a", "--set", "retention.msec=1")
        assert result.exit_code == 1
        message = f"topic 'a': {code.name}: Unknown topic config name: retention.msec; did you mean retention.ms?"
        assert result.stderr == f"trio-broker: {message}\n"


# Trouble


def test_a_broker_that_is_not_there_is_reported_in_one_line_with_its_address():
    port = unused_port()
    result = CliRunner().invoke(main, ["topics", "list", "-b", f"{HOST}:{port}"])
    assert result.exit_code == 1
    assert result.stderr == f"trio-broker: cannot connect to {HOST}:{port}: Connection refused\n"


def test_a_broker_that_says_nothing_is_reported_when_the_time_is_over():
    with topic_server() as server:
        server.answers[ListGroupsRequest] = SILENCE
        result = run(server, "groups", "list", "--command-timeout", "0.2")
        assert result.exit_code == 1
        # What is left of the time when it is asked.
        said, _, waited = result.stderr.partition(" within ")
        assert said == f"trio-broker: {server.address} did not answer ListGroups"
        assert 0 < float(waited.removesuffix(" s\n")) <= 0.2


def test_a_name_that_does_not_fit_into_a_request_is_reported():
    with topic_server() as server:
        result = run(server, "topics", "create", "a" * 40_000)
        assert result.exit_code == 1
        assert result.stderr.startswith("trio-broker: CreateTopics cannot be asked so: ")
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "option", [["-b", "here:there"], ["--command-timeout", "0"], ["--command-timeout", "inf"], ["--nonsense"]]
)
def test_an_option_that_makes_no_sense_is_a_wrong_use(option: list[str]):
    assert CliRunner().invoke(main, ["topics", "list", *option]).exit_code == 2
