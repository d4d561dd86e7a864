"""Large Metadata answers that are kept, and for how long."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode_bytes
from kafka_wire.error_counts import LARGE_ELEMENTS
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.handlers.handler_client import CONNECTION
from tests.handlers.wire_client import advertising
from tests.scheduling import Race, outcomes
from trio_broker.cluster.replication_control import NewPartitions
from trio_broker.handlers import metadata
from trio_broker.handlers.metadata import described
from trio_broker.handlers.support import metadata_answers
from trio_broker.handlers.support.metadata_answers import MetadataAnswers

VERSION = 12
PARTITIONS = LARGE_ELEMENTS + 1

ALL = MetadataRequest(topics=None)
ONE = MetadataRequest(topics=[MetadataRequestTopic(name="wide")], allow_auto_topic_creation=False)


@pytest.fixture
def made(monkeypatch) -> list[MetadataRequest]:
    """The requests that were answered anew, and not by what was kept."""
    made = []

    def noted(request, *arguments):
        made.append(request)
        return described(request, *arguments)

    monkeypatch.setattr(metadata, "described", noted)
    return made


@pytest.mark.parametrize("request_", [ALL, ONE], ids=["all topics", "one topic"])
async def test_the_second_answer_is_the_first_ones_bytes(wire, request_, made):
    await wire.create_topic("wide", PARTITIONS)
    first = await wire.ask(request_, VERSION)
    assert len(first.topics[0].partitions) == PARTITIONS
    assert await wire.ask(request_, VERSION) == first
    assert len(made) == 1


async def test_a_change_of_the_metadata_makes_a_new_answer(wire):
    await wire.create_topic("wide", PARTITIONS)
    await wire.ask(ALL, VERSION)
    await wire.create_topic("other")
    assert {topic.name for topic in (await wire.ask(ALL, VERSION)).topics} == {"wide", "other"}


async def test_requests_that_differ_have_answers_of_their_own(wire):
    await wire.create_topic("wide", PARTITIONS)
    await wire.create_topic("other")
    everything = await wire.ask(ALL, VERSION)
    assert [topic.name for topic in (await wire.ask(ONE, VERSION)).topics] == ["wide"]
    with_operations = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert (await wire.ask(with_operations, VERSION)).topics != everything.topics
    assert (await wire.ask(ALL, 9)).topics[1].partitions == everything.topics[1].partitions


async def test_a_client_that_connected_to_another_address_has_that_in_its_answer(open_wire_client):
    wire = await open_wire_client(advertising({"PLAINTEXT": ("", 9092)}))
    await wire.create_topic("wide", PARTITIONS)
    for host in ("10.0.0.1", "10.0.0.2"):
        wire.connection = attrs.evolve(CONNECTION, local_host=host)
        assert [broker.host for broker in (await wire.ask(ALL, VERSION)).brokers] == [host]


async def test_clients_that_ask_together_share_one_answer(wire, made):
    await wire.create_topic("wide", PARTITIONS)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(wire.ask, ALL, VERSION)
    assert len(made) == 1


async def test_an_answer_about_a_topic_holds_until_that_topic_changes(wire, made):
    await wire.create_topic("wide", PARTITIONS)
    await wire.ask(ONE, VERSION)
    await wire.create_topic("other")
    assert len((await wire.ask(ONE, VERSION)).topics[0].partitions) == PARTITIONS
    assert len(made) == 1
    await wire.services.controller.create_partitions([NewPartitions(name="wide", count=PARTITIONS + 1)])
    assert len((await wire.ask(ONE, VERSION)).topics[0].partitions) == PARTITIONS + 1
    assert len(made) == 2


def test_answers_are_kept_up_to_a_number_of_bytes_and_for_one_part_of_an_image(monkeypatch):
    monkeypatch.setattr(metadata_answers, "MAX_KEPT_BYTES", 10)
    answers, part, next_part = MetadataAnswers(), object(), object()
    answers.keep(part, "a", bytes(6))
    assert (answers.get(part, "a"), answers.get(next_part, "a"), answers.get(part, "b")) == (bytes(6), None, None)
    answers.keep(next_part, "a", bytes(7))
    assert (answers.get(next_part, "a"), answers.get(part, "a")) == (bytes(7), None)
    answers.keep(next_part, "b", bytes(6))
    assert (answers.get(next_part, "b"), answers.get(next_part, "a")) == (bytes(6), None)
    answers.keep(next_part, "c", bytes(11))
    assert (answers.get(next_part, "b"), answers.get(next_part, "c")) == (bytes(6), None)


@pytest.mark.parametrize("end", ["made", "given up"])
async def test_who_waits_for_the_answer_of_another_goes_on_when_that_is(wire, monkeypatch, autojump_clock, end):
    """Given up by a client that has gone, for instance: then the next one makes it."""
    await wire.create_topic("wide", PARTITIONS)

    async def new_race() -> Race[Any]:
        gate = trio.Event()

        def described_later(*arguments):
            yield gate.wait
            return (yield from described(*arguments))

        await wire.send(ApiKey.METADATA, VERSION, encode_bytes(ALL, VERSION))
        wire.services.metadata_answers = MetadataAnswers()
        monkeypatch.setattr(metadata, "described", described_later)
        first, second = (wire.dispatcher.answer(wire.request) for _ in range(2))

        async def wait():
            async with trio.open_nursery() as nursery:
                if end == "made":
                    nursery.start_soon(lambda: first)
                return await second

        def give_up():
            monkeypatch.setattr(metadata, "described", described)
            first.close()

        return Race(wait, gate.set if end == "made" else give_up)

    assert all(await outcomes(new_race))
