"""Large Metadata answers that are kept, and for how long."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode_bytes
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.handlers.handler_client import CONNECTION
from tests.handlers.wire_client import advertising
from tests.scheduling import Race, outcomes
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.handlers import metadata
from trio_broker.handlers.metadata import described
from trio_broker.handlers.support import metadata_answers
from trio_broker.handlers.support.metadata_answers import MetadataAnswers

VERSION = 12
PARTITIONS = 500

ALL = MetadataRequest(topics=None)
ONE = MetadataRequest(topics=[MetadataRequestTopic(name="wide")], allow_auto_topic_creation=False)


async def answered_at_once(wire, request) -> bool:
    """Whether the answer to ``request`` is there in the turn in which it is read, as only a kept one is."""
    await wire.send(ApiKey.METADATA, VERSION, encode_bytes(request, VERSION))
    answer = wire.dispatcher.answer(wire.request)
    if isinstance(answer, CoroutineType):
        answer.close()
        return False
    return True


@pytest.mark.parametrize("request_", [ALL, ONE], ids=["all topics", "one topic"])
async def test_the_second_answer_is_the_first_ones_bytes(wire, request_):
    await wire.create_topic("wide", PARTITIONS)
    first = await wire.ask(request_, VERSION)
    assert len(first.topics[0].partitions) == PARTITIONS
    assert await answered_at_once(wire, request_)
    assert await wire.ask(request_, VERSION) == first


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


async def test_clients_that_ask_together_share_one_answer(wire, monkeypatch):
    made = []

    def counted(request, *arguments):
        made.append(request)
        return described(request, *arguments)

    monkeypatch.setattr(metadata, "described", counted)
    await wire.create_topic("wide", PARTITIONS)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(wire.ask, ALL, VERSION)
    assert len(made) == 1


def test_answers_are_kept_up_to_a_number_of_bytes_and_for_one_image(monkeypatch):
    monkeypatch.setattr(metadata_answers, "MAX_KEPT_BYTES", 10)
    answers, image, next_image = MetadataAnswers(), MetadataImage(), MetadataImage()
    answers.keep(image, "a", bytes(6))
    answers.keep(image, "b", bytes(6))
    assert (answers.get(image, "a"), answers.get(image, "b")) == (bytes(6), None)
    assert answers.get(next_image, "a") is None
    answers.keep(next_image, "b", bytes(6))
    assert (answers.get(next_image, "b"), answers.get(image, "a")) == (bytes(6), None)


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
