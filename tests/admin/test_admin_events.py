"""Claims about the event stream, driven over ASGI so that the test holds the clock and the connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import pytest
import trio
from starlette.applications import Starlette

from broker_admin.app import create_app, create_forwarded_app
from broker_admin.app_state import MAX_EVENT_STREAMS
from broker_admin.forwarding import PIECE_SECONDS, answer_forwarded
from broker_admin.logins import Logins
from broker_admin.routes.events import HEARTBEAT_SECONDS
from broker_admin.views.cluster.peers import PeerUnavailable
from tests.admin.fake_broker import FakeBroker, NoPeers
from tests.scheduling import ORDERS, PASSES, deterministic_scheduling
from trio_broker.broker_view.node.events import KEPT_EVENTS


@attrs.define
class Stream:
    """One open stream: what came of it so far, and the ends by which to pull at it."""

    received: trio.MemoryReceiveChannel[dict[str, Any]]
    disconnected: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def text(self) -> str:
        """The next piece of the stream."""
        message = await self.received.receive()
        return str(message["body"].decode())

    async def event(self) -> tuple[str, Any]:
        """The next event: its name and its data."""
        name, data = (await self.text()).strip().split("\n")
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@asynccontextmanager
async def open_stream(app: Starlette, *, room: float = 1000, broker_id: int = 1) -> AsyncIterator[Stream]:
    """Open a broker's stream; its reader takes ``room`` pieces without being asked, then only what is taken out."""
    sender, receiver = trio.open_memory_channel[dict[str, Any]](room)
    stream = Stream(receiver)

    async def receive() -> dict[str, Any]:
        await stream.disconnected.wait()
        return {"type": "http.disconnect"}

    async def run() -> None:
        await app(scope(broker_id), receive, sender.send)  # type: ignore[arg-type]  # plain dictionaries, as any ASGI server's
        stream.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        assert (await receiver.receive())["status"] == 200
        assert await stream.text() == "retry: 2000\n\n"
        yield stream
        stream.disconnected.set()


def scope(broker_id: int = 1) -> dict[str, Any]:
    path = f"/api/v1/brokers/{broker_id}/events"
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 5555),
        "server": ("127.0.0.1", 9644),
    }


async def test_each_sample_is_sent_as_it_is_taken(fake: FakeBroker) -> None:
    async with open_stream(create_app(fake.view)) as stream:
        fake.tick()
        name, sample = await stream.event()
        assert name == "sample"
        assert sample["sampled_at_ms"] == fake.now_ms
        assert len(sample["io_idle_ratios"]) == 8


async def test_a_change_made_anywhere_is_sent_at_once(fake: FakeBroker, autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(create_app(fake.view)) as stream:
        before = trio.current_time()
        await fake.view.cluster.config.change({"num.io.threads": "12"}, changed_by="kafka client rdkafka from 10.0.0.7")
        name, change = await stream.event()
        assert (name, change["key"], change["old"], change["new"]) == ("config", "num.io.threads", "8", "12")
        assert change["changed_by"] == "kafka client rdkafka from 10.0.0.7"
        assert trio.current_time() == before


async def test_groups_that_rebalanced_are_shown_by_their_ids(fake: FakeBroker) -> None:
    async with open_stream(create_app(fake.view)) as stream:
        fake.rebalanced("checkout", "a/\n\nb")
        name, event = await stream.event()
        assert (name, event["group_ids"], event["further_groups"]) == ("groups", ["checkout", "a/\n\nb"], 0)


async def test_a_secret_is_not_streamed(fake: FakeBroker) -> None:
    async with open_stream(create_app(fake.view)) as stream:
        await fake.view.cluster.config.change({"password": "new secret"}, changed_by="test")
        _, change = await stream.event()
        assert (change["key"], change["old"], change["new"]) == ("password", None, None)


@attrs.define
class Judge:
    """An authorizer that gives the same answer to all."""

    allows: bool = True

    def may(self, *question: Any, asked_for: str = "") -> bool:
        return self.allows


async def test_a_stream_ends_with_the_right_to_it(fake: FakeBroker) -> None:
    judge = Judge()
    cluster = attrs.evolve(fake.view.cluster, authorization=judge)  # type: ignore[arg-type]  # nobody logs in
    view = attrs.evolve(fake.view, cluster=cluster)
    async with open_stream(create_app(view, logins=Logins(None, has_users=True))) as stream:
        fake.tick()
        assert (await stream.event())[0] == "sample"
        judge.allows = False
        fake.tick()
        last = await stream.received.receive()
        assert (last["body"], last["more_body"]) == (b"", False)
        await stream.ended.wait()


async def test_a_quiet_stream_has_a_heartbeat(fake: FakeBroker, autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(create_app(fake.view)) as stream:
        before = trio.current_time()
        assert (await stream.text()).startswith(":")
        assert trio.current_time() - before == pytest.approx(HEARTBEAT_SECONDS)


async def test_what_happens_at_the_very_moment_of_a_heartbeat_is_sent(
    fake: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    for order in range(ORDERS):
        for passes in range(PASSES):
            with deterministic_scheduling(order):
                async with open_stream(create_app(fake.view)) as stream:
                    await trio.sleep(HEARTBEAT_SECONDS)
                    for _ in range(passes):
                        await trio.lowlevel.checkpoint()
                    fake.tick()
                    pieces = [await stream.text()]
                    if pieces[0].startswith(":"):
                        pieces.append(await stream.text())
                    assert f'"sampled_at_ms":{fake.now_ms}' in pieces[-1]


async def test_a_stream_ends_when_its_client_is_gone(fake: FakeBroker) -> None:
    async with open_stream(create_app(fake.view)) as stream:
        stream.disconnected.set()
        await stream.ended.wait()


async def test_a_stream_ends_when_the_server_stops(fake: FakeBroker) -> None:
    stopping = trio.Event()
    async with open_stream(create_app(fake.view, stopping=stopping)) as stream:
        stopping.set()
        await stream.ended.wait()


async def test_the_stream_of_a_reader_that_falls_behind_ends(fake: FakeBroker) -> None:
    """It connects again and reads the history; memory for it stays bounded meanwhile."""
    async with open_stream(create_app(fake.view), room=0) as stream:
        await trio.testing.wait_all_tasks_blocked()
        fake.tick(KEPT_EVENTS + 5)
        events = 0
        while not stream.ended.is_set():
            with trio.move_on_after(1):
                events += bool(await stream.text())
        assert events <= KEPT_EVENTS + 1


async def test_the_number_of_streams_is_bounded(fake: FakeBroker) -> None:
    app = create_app(fake.view)
    app.state.app_state.streams.open = MAX_EVENT_STREAMS
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.get("/api/v1/brokers/1/events")
    assert answer.status_code == 503
    assert "history" in answer.json()["detail"]


async def test_no_more_streams_are_opened_than_there_may_be_however_many_ask_at_once(fake: FakeBroker) -> None:
    app = create_app(fake.view)
    statuses: list[int] = []
    answered, gone = trio.Event(), trio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        # A head is not written at once: the server's writes wait for each other.
        await trio.lowlevel.checkpoint()
        if "status" in message:
            statuses.append(message["status"])
        if len(statuses) == MAX_EVENT_STREAMS + 10:
            answered.set()

    async with trio.open_nursery() as nursery:
        for _ in range(MAX_EVENT_STREAMS + 10):
            nursery.start_soon(app, scope(), receive, send)
        await answered.wait()
        assert sorted(statuses) == [200] * MAX_EVENT_STREAMS + [503] * 10
        gone.set()
    assert app.state.app_state.streams.open == 0


async def test_a_stream_that_ended_makes_room(fake: FakeBroker) -> None:
    app = create_app(fake.view)
    async with open_stream(app):
        assert app.state.app_state.streams.open == 1
    assert app.state.app_state.streams.open == 0


@attrs.define
class OneOther(NoPeers):
    """Broker 2, which answers while there is an app of it."""

    app: Starlette | None

    def broker_ids(self) -> list[int]:
        return [2]

    async def ask(self, broker_id: int, question: bytes) -> bytes:
        if self.app is None:
            raise PeerUnavailable("it has ended")
        return await answer_forwarded(self.app, question)


async def test_the_stream_of_another_broker_is_passed_on_until_that_does_not_answer(
    fake: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    other = FakeBroker(node_id=2)
    peers = OneOther(create_forwarded_app(other.view))
    app = create_app(attrs.evolve(fake.view, cluster=attrs.evolve(fake.view.cluster, peers=peers)))
    async with open_stream(app, broker_id=2) as stream:
        other.tick()
        other.rebalanced("checkout")
        before = trio.current_time()
        sample, groups, _ = (await stream.text()).split("\n\n")
        assert trio.current_time() - before == pytest.approx(PIECE_SECONDS)
        assert (sample.partition("\n")[0], groups.partition("\n")[0]) == ("event: sample", "event: groups")
        assert (await stream.text()).startswith(":"), "nothing has happened meanwhile"
        other.tick(KEPT_EVENTS + 1)
        await stream.ended.wait()
    async with open_stream(app, broker_id=2) as stream:
        peers.app = None
        await stream.ended.wait()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/api/v1/brokers/2/events")).status_code == 502
