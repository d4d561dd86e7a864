"""The stream of new records: what it sends, what it skips, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from broker_admin.app_state import AppState
from broker_admin.event_stream import EventStream
from broker_admin.messages.query import RecordSelection, compiled_filter, decoders_of
from broker_admin.routes import message_tail
from broker_admin.routes.message_tail import MessageTail
from broker_admin.views.cluster.messages import NewMessage, PartitionBatches
from tests.admin.live_admin import LiveAdmin
from tests.partition.real_logs import delete_topics


class OpenTail:
    """A tail in its own task; ``events`` are its events as they come."""

    def __init__(self, live: LiveAdmin, **selection: Any) -> None:
        chosen = RecordSelection(**selection)
        self.stopping = trio.Event()
        self.gone = trio.Event()
        self.sender, self.events = trio.open_memory_channel[tuple[str, Any]](100)
        self.state = AppState(live.view, self.stopping)
        self.tail = MessageTail(
            self.state, "orders", {0: 0}, compiled_filter(chosen.where), decoders_of(chosen), chosen.max_value_bytes
        )

    async def run(self) -> None:
        await EventStream(self.state, self.tail.send_events, kind=self.state.tails)(
            {"method": "GET"}, self.receive, self.send
        )

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        for block in message.get("body", b"").decode().split("\n\n"):
            if block.startswith("event: "):
                name, data = block.removeprefix("event: ").split("\ndata: ")
                await self.sender.send((name, json.loads(data)))


async def test_new_records_come_as_they_are_appended(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    tail = OpenTail(live, where="value.n > 1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail.run)
        for number in (1, 2):
            await live.view.cluster.messages.append("orders", [NewMessage(b"k", b'{"n": %d}' % number)])
        name, data = await tail.events.receive()
        while not data["records"]:
            name, data = await tail.events.receive()
        assert (name, data["skipped"]) == ("records", 0)
        assert [each["value"]["data"] for each in data["records"]] == [{"n": 2}]
        assert tail.state.tails.open == 1
        tail.gone.set()
    assert (tail.state.tails.open, tail.state.streams.open) == (0, 0)


async def test_what_does_not_fit_is_counted(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b"%d" % number) for number in range(120)])
    tail = OpenTail(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail.run)
        _, data = await tail.events.receive()
        assert data["skipped"] == 120 - message_tail.ROWS_PER_ROUND
        assert [each["offset"] for each in data["records"]] == list(range(70, 120))
        tail.gone.set()


async def test_what_comes_too_fast_is_counted_and_left_behind(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.kafka.create_topic("orders")
    monkeypatch.setattr(message_tail, "ROUND_BYTES", 10)
    for number in range(20):
        await live.view.cluster.messages.append("orders", [NewMessage(b"k", b"%d" % number)])
    tail = OpenTail(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail.run)
        _, data = await tail.events.receive()
        assert (len(data["records"]), data["skipped"], tail.tail.positions) == (1, 19, {0: 20})
        tail.gone.set()


async def test_it_ends_by_itself_and_with_its_topic(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.kafka.create_topic("orders")
    monkeypatch.setattr(message_tail, "TAIL_SECONDS", 0.01)
    tail = OpenTail(live)
    await tail.run()
    assert await tail.events.receive() == ("end", "ten minutes are over")
    monkeypatch.setattr(message_tail, "TAIL_SECONDS", 600)
    # Its log is gone, and the metadata have it still.
    monkeypatch.setattr(message_tail, "UNREADABLE_SECONDS", 0)
    tail = OpenTail(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail.run)
        await delete_topics(live.broker.services.replicas, "orders")
        name, reason = await tail.events.receive()
        assert name == "end"
        assert "cannot be read any more" in reason


async def test_it_goes_on_after_an_election(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.kafka.create_topic("orders")
    messages = live.view.cluster.messages
    await messages.append("orders", [NewMessage(b"k", b"v")])
    fetch, elections = messages.fetch_batches, [1]

    async def fetch_batches(*arguments: Any, **limits: Any) -> Sequence[PartitionBatches]:
        if elections:
            return [PartitionBatches(0, 0, 0, lambda: iter(()), f"NOT_LEADER_OR_FOLLOWER {elections.pop()}")]
        return await fetch(*arguments, **limits)

    monkeypatch.setattr(messages, "fetch_batches", fetch_batches)
    tail = OpenTail(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail.run)
        name, data = await tail.events.receive()
        assert (name, elections, len(data["records"])) == ("records", [], 1)
        tail.gone.set()
