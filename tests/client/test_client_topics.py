"""Topics, as brokers of different age tell of them, and changes that are made once."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafka_wire.messages.create_topics import (
    BROKER_DEFAULT,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafka_wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kafka_wire.messages.metadata import MetadataRequest
from tests.client.scripted_client import client_of
from tests.fakes.scripted_kafka import CLOSED, Cluster, ScriptedKafka, served_up_to
from trio_broker.client.errors import ConnectionLost, NotKafka, Refused, VersionNotServed
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topic_changes import add_partitions, create_topic, delete_topic, ensure_topic
from trio_broker.client.topics import describe_topics, find_topics, list_topics


def alone(answers: dict[type[Any], Any] | None = None, **settings: Any) -> ScriptedKafka:
    server = ScriptedKafka(answers or {}, **settings)
    Cluster([server], topics={"b": [1, -1], "a": [1]})
    return server


def test_topics_come_by_name_with_their_partitions():
    with alone() as server, client_of(server) as client:
        topics = list_topics(client)
        assert [(topic.name, [each.leader_id for each in topic.partitions]) for topic in topics] == [
            ("a", [1]),
            ("b", [1, -1]),
        ]
        assert topics[0].replication_factor == 1


def test_a_topic_that_is_asked_for_is_not_created_by_that():
    with alone() as server, client_of(server) as client:
        found = find_topics(client, ["a", "missing", "a"])
        assert list(found) == ["a", "missing"]
        assert str(found["missing"]) == (
            "topic 'missing': UNKNOWN_TOPIC_OR_PARTITION: there is no such topic or partition"
        )
        [request] = server.requests(MetadataRequest)
        assert not request.allow_auto_topic_creation
        with pytest.raises(Refused, match="missing"):
            describe_topics(client, ["a", "missing"])


def test_a_broker_that_would_create_what_is_asked_for_is_not_asked():
    with (
        alone(served=served_up_to(ApiKey.METADATA, 3)) as server,
        client_of(server) as client,
        pytest.raises(VersionNotServed, match="Metadata in versions 0-3"),
    ):
        find_topics(client, ["a"])


def test_no_names_are_not_all_topics():
    with alone() as server, client_of(server) as client:
        assert find_topics(client, []) == {}


def created(code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code, error_message=message)])


def create(client: KafkaClient, *, validate_only: bool = False) -> None:
    create_topic(
        client,
        "t",
        partitions=BROKER_DEFAULT,
        replication_factor=1,
        configs={"retention.ms": "1"},
        validate_only=validate_only,
    )


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_topic_is_created_as_it_was_asked_for(validate_only: bool):
    with alone({CreateTopicsRequest: created()}) as server, client_of(server) as client:
        create(client, validate_only=validate_only)
        [request] = server.requests(CreateTopicsRequest)
        [topic] = request.topics
        assert request.validate_only == validate_only
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", -1, 1)
        assert [(each.name, each.value) for each in topic.configs] == [("retention.ms", "1")]
        assert 0 < request.timeout_ms <= 20_000


def test_the_brokers_own_words_are_reported():
    answer = created(ErrorCode.INVALID_PARTITIONS, "too many")
    with (
        alone({CreateTopicsRequest: answer}) as server,
        client_of(server) as client,
        pytest.raises(Refused, match=r"^topic 't': INVALID_PARTITIONS: too many$"),
    ):
        create(client)


def test_an_answer_about_something_else_is_not_kafkas():
    with (
        alone({CreateTopicsRequest: CreateTopicsResponse(topics=[])}) as server,
        client_of(server) as client,
        pytest.raises(NotKafka, match="topic 't': the answer has 0 results instead of one"),
    ):
        create(client)


def test_a_creation_that_was_lost_is_not_repeated():
    """Or it would receive that the topic exists already."""
    with alone({CreateTopicsRequest: CLOSED}) as server, client_of(server) as client:
        with pytest.raises(ConnectionLost, match="whether it was done is not known"):
            create(client)
        assert len(server.requests(CreateTopicsRequest)) == 1


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_lost_creation_is_repeated_where_the_topic_may_exist(code: int):
    with alone({CreateTopicsRequest: [CLOSED, created(code)]}) as server, client_of(server) as client:
        ensure_topic(client, "t", partitions=3, configs={"retention.ms": "1"})
        [topic] = server.requests(CreateTopicsRequest)[-1].topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 3, -1)
        assert [(each.name, each.value) for each in topic.configs] == [("retention.ms", "1")]


def test_another_error_of_a_creation_is_raised_where_the_topic_may_exist_too():
    answer = created(ErrorCode.INVALID_PARTITIONS)
    with (
        alone({CreateTopicsRequest: answer}) as server,
        client_of(server) as client,
        pytest.raises(Refused, match="INVALID_PARTITIONS"),
    ):
        ensure_topic(client, "t", configs={})


def test_a_check_that_was_lost_is_repeated():
    with alone({CreateTopicsRequest: [CLOSED, created()]}) as server, client_of(server) as client:
        create(client, validate_only=True)
        assert len(server.requests(CreateTopicsRequest)) == 2


def test_a_controller_that_moved_is_found():
    first, second = ScriptedKafka(node_id=1), ScriptedKafka(node_id=2)
    with first, second, client_of(first) as client:
        cluster = Cluster([first, second], controller_id=1)

        def not_mine(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
            cluster.controller_id = 2
            return created(ErrorCode.NOT_CONTROLLER)

        first.answers[CreateTopicsRequest] = not_mine
        second.answers[CreateTopicsRequest] = created()
        create(client)
        assert len(second.requests(CreateTopicsRequest)) == 1


def test_partitions_are_added():
    answer = CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")])
    with alone({CreatePartitionsRequest: answer}) as server, client_of(server) as client:
        add_partitions(client, "t", count=7, validate_only=True)
        [request] = server.requests(CreatePartitionsRequest)
        assert (request.topics[0].count, request.topics[0].assignments, request.validate_only) == (7, None, True)


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_is_deleted_by_name_in_every_version(version: int):
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
    served = served_up_to(ApiKey.DELETE_TOPICS, version)
    with alone({DeleteTopicsRequest: answer}, served=served) as server, client_of(server) as client:
        delete_topic(client, "t")
        [request] = server.requests(DeleteTopicsRequest)
        assert (request.topic_names or [topic.name for topic in request.topics]) == ["t"]
