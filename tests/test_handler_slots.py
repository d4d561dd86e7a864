"""A request that waits for a disk holds no handler slot, in a broker that has only one, whose disk hangs."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.metadata import MetadataRequest
from tests.running_broker import connected, fetch_request, produce_request, running, until
from trio_broker.partition.directory_threads import DirectoryThreads
from trio_broker.storage.log_reader import ReadableLog


@pytest.fixture
async def broker(memory_path):
    async with running(memory_path, num_io_threads="1") as broker:
        yield broker


@pytest.fixture
def hanging_disk(monkeypatch):
    """Makes the threads of all directories wait for the event, and every read find its place on the disk."""
    healed = trio.Event()
    do, read = DirectoryThreads.do, ReadableLog.read

    async def hang(self, work, owner=None):
        await healed.wait()
        return await do(self, work, owner)

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if nowait:
            raise BlockingIOError(errno.EAGAIN, "not in the cache")
        return read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)

    def begin() -> trio.Event:
        monkeypatch.setattr(DirectoryThreads, "do", hang)
        monkeypatch.setattr(ReadableLog, "read", cold)
        return healed

    yield begin
    healed.set()  # or a test that fails would wait for the broker's stop


def lookup_by_time() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=5)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="written", partitions=[partition])])


WAITING: dict[str, tuple[Any, int]] = {
    "a cold Fetch": (fetch_request("written"), 12),
    "a lookup by time": (lookup_by_time(), 7),
    "the first batch of a leader epoch": (produce_request("new", b"value", acks=1), 9),
}


@pytest.mark.parametrize("name", WAITING)
async def test_a_request_that_waits_for_a_disk_leaves_the_only_slot_to_others(broker, hanging_disk, name):
    request, version = WAITING[name]
    async with connected(broker) as waiting, connected(broker) as other:
        for topic in ("written", "new"):
            await other.create_topic(topic)
        assert await other.produce("written", b"value") == 0
        healed = hanging_disk()
        await waiting.send(request, version)
        await until(lambda: broker.server.statistics().handlers.in_flight)
        handlers = broker.server.statistics().handlers
        assert (handlers.parked, handlers.idle) == (1, 1)
        await other.ask(MetadataRequest(topics=[]), 9)
        assert waiting.answered < waiting.sent
        healed.set()
        await waiting.receive(request, version)
