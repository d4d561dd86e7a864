"""``/api/v1/topics/{topic}/tail``: the records that come from now on, as server-sent events.

``event: records`` has up to fifty rows, at most four times a second, and how many were skipped: those that did not fit,
and those that came faster than they are looked at. ``event: end`` says why the stream ends: after ten minutes, when the
topic goes, or when the server stops. It goes on when another broker leads. Nothing is queued: while the client does not
take what was sent, nothing is read, and afterwards the stream is back at the newest records.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import AppState, state_of
from broker_admin.event_stream import STILL_HERE, EventStream, SendText, require_room
from broker_admin.filters.record_filter import RecordFilter, Verdict
from broker_admin.messages.pace import run_in_slices
from broker_admin.messages.query import RecordSelection, chosen_partitions, compiled_filter, decoders_of
from broker_admin.messages.rows import Decoders, MessageRow, RecordVariables, message_row
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem
from broker_admin.record_rows import HTML, JSON, PREVIEW_BYTES, event_data
from broker_admin.record_search import NO_SUCH_TOPIC, PROBLEMS, require_contents
from broker_admin.requirements import of_metadata_log, of_topic, requires
from broker_admin.routing import Route
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from broker_admin.views.cluster.messages import PartitionBatches, UnreadableBatch
from trio_broker.handlers.support.rights import READ_TOPIC

TAIL_SECONDS = 600.0
"""A tail that was forgotten in a tab ends by itself."""

ROUND_SECONDS = 0.25
"""Between two events: as often as one can see a change."""

ROWS_PER_ROUND = 50
"""With the pause between rounds, 200 rows a second: far more than can be read."""

ROUND_BYTES = 512 * 1024
"""What is read in a round. Of a topic that gets more than 2 MB a second, the rest is skipped."""

UNREADABLE_SECONDS = 30.0
"""How long a partition may lack a leader, or one that answers: longer than an election takes."""

WAIT_SECONDS = 5.0
"""How long a fetch waits for records; then a comment line shows that the stream lives."""


@attrs.frozen(kw_only=True)
class TailQuery(RecordSelection):
    """A tail. ``format`` is json, or html for ``rows`` of the page's table instead of ``records``."""

    format: str = bounded(JSON, enum=[JSON, HTML])


@attrs.frozen
class TailEvent:
    """New records, oldest first. ``failed`` counts those for which the filter had no value."""

    records: tuple[MessageRow, ...]
    skipped: int
    failed: int


@attrs.define
class TailRound:
    """What one round found: the newest matches, how many there were, and where each partition goes on."""

    rows: deque[MessageRow] = attrs.field(factory=lambda: deque(maxlen=ROWS_PER_ROUND))
    matches: int = 0
    positions: dict[int, int] = attrs.field(factory=dict)


@attrs.frozen
class MessageTail:
    """One client's tail, and where it is."""

    state: AppState
    topic: str
    positions: dict[int, int]
    filter: RecordFilter | None
    decoders: Decoders
    shown_bytes: int
    asked: Mapping[str, str] = attrs.field(factory=dict)
    """The parameters of its address."""

    async def send_events(self, send_text: SendText) -> None:
        """Send what comes until it cannot be read any more, or the time is over."""
        reason = "ten minutes are over"
        with trio.move_on_after(TAIL_SECONDS):
            await send_text(": waiting for records\n\n")
            reason = await self.forward(send_text)
        await send_text(f"event: end\ndata: {json.dumps(reason)}\n\n")

    async def forward(self, send_text: SendText) -> str:
        """Send rounds of records until they cannot be read any more; returns why."""
        last_whole = trio.current_time()
        while True:
            fetched = await self.state.cluster.messages.fetch_batches(
                self.topic, self.positions, max_bytes=ROUND_BYTES, max_wait_seconds=WAIT_SECONDS
            )
            errors = [each.error for each in fetched if each.error is not None]
            if not errors:
                last_whole = trio.current_time()
            elif trio.current_time() - last_whole > UNREADABLE_SECONDS or await self.is_gone():
                return f"the topic cannot be read any more: {errors[0]}"
            fetched = [each for each in fetched if each.error is None]
            if not any(each.size_bytes for each in fetched):
                await send_text(STILL_HERE)
                if errors:
                    await trio.sleep(ROUND_SECONDS)
                continue
            found = TailRound()
            await run_in_slices(self.walk(fetched, found), self.state.search_threads)
            skipped = found.matches - len(found.rows)
            # To the end, wherever the walk stopped: a tail shows what is new, not all that there is.
            for each in fetched:
                position = max(found.positions.get(each.partition, 0), self.positions[each.partition])
                skipped += max(0, each.end_offset - position)
                self.positions[each.partition] = max(each.end_offset, position)
            failed = 0 if self.filter is None else self.filter.failures
            rows = sorted(found.rows, key=lambda row: (row.timestamp_ms or 0, row.partition, row.offset))
            event = TailEvent(tuple(rows), skipped, failed)
            data = await trio.to_thread.run_sync(
                event_data, event, self.topic, self.asked, limiter=self.state.search_threads
            )
            await send_text(f"event: records\ndata: {data}\n\n")
            await trio.sleep(ROUND_SECONDS)

    async def is_gone(self) -> bool:
        return await self.state.cluster.messages.readable_partitions(self.topic) is None

    def walk(self, fetched: Sequence[PartitionBatches], found: TailRound) -> Iterator[None]:
        """Look at what was fetched. Runs in a worker thread, in slices."""
        for each in fetched:
            try:
                for batch in each.batches():
                    for record in batch.records():
                        if not self.positions[each.partition] <= record.offset < each.end_offset:
                            continue
                        variables = RecordVariables(record, each.partition, self.decoders, batch.own_format)
                        if self.filter is None or self.filter.verdict(variables) is Verdict.MATCHES:
                            found.matches += 1
                            found.rows.append(message_row(variables, batch.info, self.decoders, self.shown_bytes))
                        yield
                    found.positions[each.partition] = batch.info.last_offset + 1
            except UnreadableBatch:
                continue  # counted as skipped


@requires(Role.VIEWER, of_topic(READ_TOPIC), of_metadata_log())
@operation(None, query=TailQuery, media_type="text/event-stream", problems=PROBLEMS)
async def get_tail(request: Request) -> Response | EventStream:
    """The records that come from now on, as server-sent events, at most 200 a second; it ends after ten minutes."""
    state, topic = state_of(request), request.path_params["topic"]
    selection = query_of(request, TailQuery)
    require_contents(state)
    readable = await state.cluster.messages.readable_partitions(topic)
    if readable is None:
        raise Problem(404, NO_SUCH_TOPIC)
    require_room(state, state.tails)
    chosen = [each for each in chosen_partitions(selection.partitions, readable) if each.error is None]
    tail = MessageTail(
        state=state,
        topic=topic,
        positions={each.partition: each.end_offset for each in chosen},
        filter=compiled_filter(selection.where),
        decoders=decoders_of(selection),
        shown_bytes=min(selection.max_value_bytes, PREVIEW_BYTES),
        asked=dict(request.query_params),
    )
    return EventStream(state, tail.send_events, state.tails)


ROUTES = [Route("/api/v1/topics/{topic}/tail", get_tail)]
