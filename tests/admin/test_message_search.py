"""The stream of a search: each turn's finds at once, to the end, in turns with others, and ended with its client."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from broker_admin.app_state import MAX_STREAMED_SEARCHES, AppState
from broker_admin.event_stream import EventStream
from broker_admin.messages import partition_scan, search
from broker_admin.messages.query import RecordsQuery, decoders_of
from broker_admin.messages.rows import show_rows
from broker_admin.record_search import prepared_search
from broker_admin.routes import message_search
from broker_admin.routes.message_search import StreamedSearch
from broker_admin.views.cluster.messages import NewMessage, PartitionBatches
from tests.admin.live_admin import LiveAdmin

SEARCH = "/api/v1/topics/orders/search"


async def filled(live: LiveAdmin, count: int, size: int = 1, partitions: int = 1) -> None:
    """``orders`` with batches of ten records, whose number is their time and in their value."""
    await live.kafka.create_topic("orders", partitions=partitions)
    for start in range(0, count, 10):
        messages = [
            NewMessage(
                key=b"k%d" % number,
                value=b'{"n": %d, "x": "' % number + b"x" * size + b'"}',
                partition=start // 10 % partitions,
                timestamp_ms=number,
            )
            for number in range(start, start + 10)
        ]
        await live.view.cluster.messages.append("orders", messages)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def numbers(turns: list[Any]) -> list[int]:
    return [record["value"]["data"]["n"] for turn in turns for record in turn["records"]]


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of ten records."""
    monkeypatch.setattr(message_search, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(search, "MIN_TURN_RECORDS", 10)


@pytest.mark.usefixtures("short_turns")
async def test_each_turn_sends_what_it_found_and_how_far_the_search_is(live: LiveAdmin) -> None:
    await filled(live, 100)
    answer = await live.http.get(SEARCH, params={"where": "value.n % 25 == 3", "from": "oldest"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    turns = lines(answer.text)
    assert numbers(turns) == [3, 28, 53, 78]
    assert numbers(turns[:1]) == [3]
    assert [turn["searched_records"] for turn in turns] == list(range(10, 101, 10))
    assert [turn["left_records"] for turn in turns] == list(range(90, -1, -10))
    assert {turn["ended_by"] for turn in turns[:-1]} == {None}
    assert turns[-1]["ended_by"] == "end"
    again = await live.get("/api/v1/topics/orders/records", cursor=turns[4]["next_cursor"], limit=1)
    assert again["records"][0]["value"]["data"]["n"] == 50


@pytest.mark.usefixtures("short_turns")
async def test_it_ends_when_it_has_found_enough(live: LiveAdmin) -> None:
    await filled(live, 100)
    turns = lines((await live.http.get(SEARCH, params={"where": "value.n >= 0", "limit": 25})).text)
    assert (numbers(turns), turns[-1]["ended_by"]) == (list(range(99, 74, -1)), "limit")
    rest = lines((await live.http.get(SEARCH, params={"cursor": turns[-1]["next_cursor"], "limit": 1000})).text)
    assert numbers(rest) == list(range(74, -1, -1))


async def test_as_html_records_are_rows_of_the_page(live: LiveAdmin) -> None:
    await filled(live, 10)
    [turn] = lines((await live.http.get(SEARCH, params={"limit": 2, "format": "html", "where": "k9"})).text)
    assert turn["records"] == []
    assert turn["rows"].count("<tr ") == 1
    page = (await live.http.get("/topics/orders/messages", params={"limit": 2, "where": "k9"})).text
    row = turn["rows"].strip().removesuffix("</tr>")
    assert "/topics/orders/messages/0/9?limit=2&amp;where=k9" in row
    assert row in page


async def test_a_search_is_refused_before_it_begins(live: LiveAdmin) -> None:
    await filled(live, 10)
    for query, status in (("where=value.", 400), ("from=offset", 400), ("partitions=7", 404), ("format=csv", 400)):
        assert (await live.http.get(f"{SEARCH}?{query}")).status_code == status
    assert (await live.http.get("/api/v1/topics/missing/search")).status_code == 404


async def test_a_turn_searches_a_thousand_records_whatever_the_clock_says(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(live, 1200)
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    answer = await live.get("/api/v1/topics/orders/records", where="nowhere")
    assert (answer["ended_by"], answer["searched_records"]) == ("time", search.MIN_TURN_RECORDS)


async def test_reading_begins_small_however_many_partitions_there_are(live: LiveAdmin) -> None:
    """Of each partition a first piece is read before any record is searched."""
    await filled(live, 400, size=5000, partitions=4)
    answer = await live.get("/api/v1/topics/orders/records", where="value.n >= 0", limit=1)
    assert answer["searched_records"] == 1
    batch_bytes = 10 * 5100
    assert answer["searched_bytes"] <= 4 * (partition_scan.FIRST_PIECE_BYTES + batch_bytes)


async def test_a_window_of_large_records_behind_small_ones_is_not_read_as_a_whole(live: LiveAdmin) -> None:
    """By the mean of the log a first window has hundreds of records; at its end each of them has 100 KB."""
    await live.kafka.create_topic("orders")
    small = [NewMessage(b"k", b"small")] * 500
    for _ in range(60):
        await live.view.cluster.messages.append("orders", small)
    large = NewMessage(b"k", b"x" * 100_000)
    for _ in range(60):
        await live.view.cluster.messages.append("orders", [large] * 4)
    answer = await live.get("/api/v1/topics/orders/records", where="key == 'k'", limit=1)
    assert answer["searched_records"] == 1
    assert answer["searched_bytes"] < 2_000_000
    turns = lines((await live.http.get(SEARCH, params={"where": "no such word"})).text)
    assert (turns[-1]["ended_by"], turns[-1]["searched_records"]) == ("end", 60 * 500 + 240)


@attrs.define(slots=False)
class OpenSearch:
    """A streamed search in its own task; ``turns`` are its lines as they come."""

    live: LiveAdmin
    gone: trio.Event = attrs.field(factory=trio.Event)
    state: AppState = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.state = AppState(self.live.view, trio.Event())
        self.sender, self.turns = trio.open_memory_channel[Any](0)

    async def run(self) -> None:
        query = RecordsQuery(where="value.n >= 0", from_="oldest", limit=1000)
        made = await prepared_search(self.state, "orders", query, show_rows(decoders_of(query), 100))
        streamed = StreamedSearch(self.state, "orders", made, {})
        stream = EventStream(self.state, streamed.send_lines, self.state.searches, "application/x-ndjson")
        await stream({"method": "GET"}, self.receive, self.send)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        for line in message.get("body", b"").splitlines():
            await self.sender.send(json.loads(line))


@pytest.mark.usefixtures("short_turns")
async def test_it_ends_when_its_client_goes_and_reads_no_more(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(live, 100)
    monkeypatch.setattr(partition_scan, "FIRST_PIECE_BYTES", 1)
    monkeypatch.setattr(search, "MAX_PIECE_BYTES", 1)
    monkeypatch.setattr(search, "MIN_PIECE_BYTES", 1)
    reads = 0
    fetch = live.view.cluster.messages.fetch_batches

    async def counted(*arguments: Any, **others: Any) -> list[PartitionBatches]:
        nonlocal reads
        reads += 1
        return list(await fetch(*arguments, **others))

    monkeypatch.setattr(live.view.cluster.messages, "fetch_batches", counted)
    opened = OpenSearch(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opened.run)
        turn = await opened.turns.receive()
        assert (turn["searched_records"], turn["ended_by"]) == (10, None)
        # The next line is not taken, so the search stands still.
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert reads < 6
        assert opened.state.searches.open == 1
        opened.gone.set()
    assert (opened.state.searches.open, opened.state.streams.open) == (0, 0)
    assert opened.state.searching.borrowed_tokens == 0


@pytest.mark.usefixtures("short_turns")
async def test_a_long_search_leaves_turns_to_others(live: LiveAdmin) -> None:
    await filled(live, 100)
    opened = OpenSearch(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opened.run)
        await opened.turns.receive()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert opened.state.searching.borrowed_tokens == 0
        opened.gone.set()


async def test_the_number_of_streamed_searches_is_bounded(live: LiveAdmin) -> None:
    await filled(live, 10)
    app = live.http._transport.app  # type: ignore[attr-defined]
    app.state.app_state.searches.open = MAX_STREAMED_SEARCHES
    answer = await live.http.get(SEARCH)
    assert (answer.status_code, "4 searches" in answer.json()["detail"]) == (503, True)
    assert (await live.http.get("/api/v1/topics/orders/records")).status_code == 200


async def test_a_forgotten_search_ends_with_its_cursor(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(live, 100)
    monkeypatch.setattr(message_search, "STREAM_SECONDS", 0.0)
    monkeypatch.setattr(message_search, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(search, "MIN_TURN_RECORDS", 10)
    [turn] = lines((await live.http.get(SEARCH, params={"from": "oldest"})).text)
    assert (turn["ended_by"], turn["searched_records"]) == ("time", 10)
    assert turn["next_cursor"] == "f0.10"
