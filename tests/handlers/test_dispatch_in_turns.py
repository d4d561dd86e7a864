"""Requests and responses of many elements: answered as others are, in turns, one after the other."""

from __future__ import annotations

import gc
from types import CoroutineType
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.handlers.wire_client import WireClient
from trio_broker.common.request_phase import RequestPhase
from trio_broker.handlers.support.dispatch import LARGE_REQUEST_BYTES
from trio_broker.handlers.support.registry import served_apis
from trio_broker.network.errors import CloseConnection

NAMES = [f"name-{number}" for number in range(1000)]
LARGE = DescribeGroupsRequest(groups=NAMES)
VERSION = 5


def replace_handler(wire: WireClient, api_key: ApiKey, handler: Any) -> None:
    api = attrs.evolve(served_apis()[api_key], handler=handler)
    wire.dispatcher.apis = {**wire.dispatcher.apis, api_key: api}


async def test_a_large_request_is_answered_for_each_of_its_elements(wire):
    response = await wire.ask(LARGE, VERSION)
    assert [group.group_id for group in response.groups] == NAMES


async def test_it_gives_its_slot_back_before_it_is_handled(wire):
    await wire.ask(LARGE, VERSION)
    assert wire.delayed == 1


async def test_a_large_body_of_few_elements_is_handled_in_the_turn_it_was_read_in(wire):
    """As a batch of records is, whose way must not be longer."""
    body = encode_bytes(DescribeGroupsRequest(groups=["g" * LARGE_REQUEST_BYTES]), VERSION)
    assert len(body) > LARGE_REQUEST_BYTES
    await wire.send(ApiKey.DESCRIBE_GROUPS, VERSION, body)
    assert wire.delayed == 0


async def test_garbage_behind_many_elements_closes_the_connection(wire):
    body = encode_bytes(LARGE, VERSION)
    with pytest.raises(CloseConnection, match=r"malformed DESCRIBE_GROUPS v5: .*reaches past the end"):
        await wire.send(ApiKey.DESCRIBE_GROUPS, VERSION, body[:-10])
    assert await wire.ask(LARGE, VERSION), "the next one has room"


@pytest.mark.parametrize(
    ("error", "code"),
    [(KafkaError("no", code=ErrorCode.POLICY_VIOLATION), ErrorCode.POLICY_VIOLATION)],
)
async def test_a_large_request_that_is_refused_has_its_error_at_each_element(wire, error, code):
    def refuse(request, context):
        raise error

    replace_handler(wire, ApiKey.DELETE_TOPICS, refuse)
    response = await wire.ask(DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1), 5)
    assert [(topic.name, topic.error_code) for topic in response.responses] == [(name, code) for name in NAMES]


async def test_a_small_request_with_a_large_response_yields_while_that_is_written(wire):
    await wire.create_topic("orders", 2000)
    # Of two topics, because the answer about one is kept.
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("orders", "missing?")])
    await wire.send(ApiKey.METADATA, 9, encode_bytes(request, 9))
    answer = wire.dispatcher.answer(wire.request)
    assert isinstance(answer, CoroutineType)
    answer.close()
    response = await wire.ask(request, 9)
    assert [partition.partition_index for partition in response.topics[0].partitions] == list(range(2000))


async def test_large_requests_are_handled_one_at_a_time(wire):
    inside, most = 0, 0

    async def handler(request, context):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await trio.testing.wait_all_tasks_blocked()
        inside -= 1
        raise KafkaError("seen", code=ErrorCode.INVALID_REQUEST)

    replace_handler(wire, ApiKey.DESCRIBE_GROUPS, handler)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(wire.ask, LARGE, VERSION)
    assert most == 1


async def test_one_that_waits_makes_room_for_the_next(wire):
    begun = 0
    go_on = trio.Event()

    async def handler(request, context):
        nonlocal begun
        begun += 1
        context.release_handler(RequestPhase.PURGATORY)
        await go_on.wait()
        raise KafkaError("seen", code=ErrorCode.INVALID_REQUEST)

    replace_handler(wire, ApiKey.DESCRIBE_GROUPS, handler)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(wire.ask, LARGE, VERSION)
        await trio.testing.wait_all_tasks_blocked()
        assert begun == 5
        go_on.set()


async def test_the_bytes_of_those_that_wait_for_their_turn_are_counted(wire):
    """The bound on them is the pool's: see ``tests/network/test_request_memory_pool.py``."""
    pool, backlogs = wire.dispatcher.memory_pool, []

    async def handler(request, context):
        await trio.testing.wait_all_tasks_blocked()
        backlogs.append(pool.backlog)
        raise KafkaError("seen", code=ErrorCode.INVALID_REQUEST)

    replace_handler(wire, ApiKey.DESCRIBE_GROUPS, handler)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wire.ask, LARGE, VERSION)
    size = len(encode_bytes(LARGE, VERSION))
    assert backlogs == [2 * size, size, 0]


def elements_in_memory() -> int:
    return sum(type(each) is MetadataRequestTopic for each in gc.get_objects())


async def test_one_that_waits_for_its_turn_keeps_nothing_but_its_bytes(wire):
    """Elements that it had read already would not be counted for it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES])
    before = elements_in_memory()
    found = []

    async def handler(request, context):
        await trio.testing.wait_all_tasks_blocked()
        found.append(elements_in_memory() - before)
        raise KafkaError("seen", code=ErrorCode.INVALID_REQUEST)

    replace_handler(wire, ApiKey.METADATA, handler)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wire.ask, request, 9)
    assert found == [len(NAMES)] * 3, "those of the one that is handled"


async def test_one_that_is_cancelled_while_it_waits_counts_no_more(wire):
    async def handler(request, context):
        await trio.sleep_forever()

    replace_handler(wire, ApiKey.DESCRIBE_GROUPS, handler)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wire.ask, LARGE, VERSION)
        await trio.testing.wait_all_tasks_blocked()
        assert wire.dispatcher.memory_pool.backlog
        nursery.cancel_scope.cancel()
    assert not wire.dispatcher.memory_pool.backlog


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_the_answer_to_a_large_request_is_written_in_another_step_than_it_was_decided(wire, monkeypatch):
    at: list[int] = []
    steps = Steps()

    def handler(request, context):
        at.append(steps.count)
        return DescribeGroupsResponse(groups=[])

    encoded = wire.dispatcher.encoded

    def encode(*arguments):
        at.append(steps.count)
        return encoded(*arguments)

    replace_handler(wire, ApiKey.DESCRIBE_GROUPS, handler)
    monkeypatch.setattr(wire.dispatcher, "encoded", encode)
    trio.lowlevel.add_instrument(steps)
    try:
        await wire.ask(LARGE, VERSION)
    finally:
        trio.lowlevel.remove_instrument(steps)
    handled, written = at
    assert handled < written
