"""An acks=all Produce over the wire in fsync mode: what it is answered, and never before its sync has ended."""

from __future__ import annotations

import errno
import threading

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from tests.running_broker import connected, produce_request, running, until
from tests.waits import within
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.storage.log import Log

VERSION = 9


class HeldSyncs:
    """Holds every sync of the topic until it is released, then syncs in earnest or fails."""

    def __init__(self, sync):
        self.sync = sync
        self.released = threading.Event()
        self.error = None

    def __call__(self, log):
        if log.topic_partition.topic != "t":
            return self.sync(log)
        assert within(self.released.wait, 20)
        if self.error is not None:
            raise self.error
        return self.sync(log)


@pytest.fixture
async def broker(tmp_path):
    async with running(tmp_path, log_durability="fsync") as broker:
        async with connected(broker) as kafka:
            await kafka.create_topic("t")
        yield broker


@pytest.fixture
async def held(broker, monkeypatch):
    held = HeldSyncs(Log.sync_files)
    monkeypatch.setattr(Log, "sync_files", lambda log: held(log))
    yield held
    held.released.set()


def partition_of(answer):
    return answer.responses[0].partition_responses[0]


async def delayed_is(broker, count):
    await until(lambda: broker.server.statistics().handlers.delayed == count)


async def test_an_answer_comes_after_the_sync_and_no_earlier(broker, held):
    request = produce_request("t", b"a")
    async with connected(broker) as kafka:
        await kafka.send(request, VERSION)
        await delayed_is(broker, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert broker.server.statistics().handlers.in_flight == 1
        held.released.set()
        answer = partition_of(await kafka.receive(request, VERSION))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert broker.server.statistics().handlers.in_flight == 0


async def test_a_client_that_goes_meanwhile_leaves_nothing_behind(broker, held):
    async with connected(broker) as kafka:
        await kafka.send(produce_request("t", b"a"), VERSION)
        await delayed_is(broker, 1)
    held.released.set()
    await delayed_is(broker, 0)
    async with connected(broker) as kafka:
        assert await kafka.values("t") == [b"a"]


async def test_a_failed_sync_answers_all_that_waited_for_it(broker, held):
    request = produce_request("t", b"a")
    held.error = OSError(errno.EIO, "the disk is gone")
    async with connected(broker) as one, connected(broker) as another:
        for kafka in (one, another):
            await kafka.send(request, VERSION)
        await delayed_is(broker, 2)
        held.released.set()
        for kafka in (one, another):
            assert partition_of(await kafka.receive(request, VERSION)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition_of(await kafka.ask(request, VERSION)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await delayed_is(broker, 0)


async def test_a_produce_that_is_not_safe_in_time_is_answered_all_the_same(broker, held):
    request = produce_request("t", b"a")
    request.timeout_ms = 1
    async with connected(broker) as kafka:
        answer = partition_of(await kafka.ask(request, VERSION))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    held.released.set()
    await delayed_is(broker, 0)


async def test_a_deleted_topic_answers_who_waits_for_it(broker, held):
    request = produce_request("t", b"a")
    async with connected(broker) as kafka:
        await kafka.send(request, VERSION)
        await delayed_is(broker, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.services.controller.delete_topics, [TopicTarget("t")])
            answer = partition_of(await kafka.receive(request, VERSION))
            held.released.set()
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_stop_waits_for_the_sync_and_answers(tmp_path, monkeypatch):
    held = HeldSyncs(Log.sync_files)
    request = produce_request("t", b"a")
    async with running(tmp_path, log_durability="fsync") as broker, connected(broker) as kafka:
        await kafka.create_topic("t")
        monkeypatch.setattr(Log, "sync_files", lambda log: held(log))
        await kafka.send(request, VERSION)
        await delayed_is(broker, 1)
        broker.stop()
        await trio.testing.wait_all_tasks_blocked()
        held.released.set()
        answer = partition_of(await kafka.receive(request, VERSION))
    assert answer.error_code == ErrorCode.NONE
