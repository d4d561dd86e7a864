"""The admin app over a real broker in the test's own event loop, with an HTTP client of the app and a Kafka client.

``tests/admin/conftest.py`` has it as the fixture ``live``; ``open_live_admin`` takes settings of the broker. A browser
needs a port: ``async with served(create_app(live.view)) as url``.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio
from starlette.types import ASGIApp

from broker_admin.app import create_app
from broker_admin.guard import serve_connections
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.running_broker import Connection, connected, running, view_of
from trio_broker.broker import Broker
from trio_broker.broker_view.live import LiveBrokerView

CHANGE_HEADERS = {"x-requested-with": "pytest"}
"""What each change needs; httpx sends the JSON content type by itself."""

ONE_PARTITION_EACH = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
"""The first group of a broker makes a topic, and to make the usual fifty partitions takes longer than most tests."""


@attrs.frozen
class LiveAdmin:
    """A running broker, its view, and clients of both sides; ``http`` sends what a change needs with every request."""

    broker: Broker
    view: LiveBrokerView
    http: httpx.AsyncClient
    kafka: Connection

    async def get(self, path: str, /, **query: Any) -> Any:
        """The JSON at ``path``, which is there."""
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def pointers(answer: httpx.Response, status: int) -> list[str]:
    """What a problem points at."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return [error["pointer"] for error in answer.json().get("errors", [])]


async def commit(live: LiveAdmin, group: str, topic: str, offset: int) -> None:
    """Commit for partition 0 as a consumer without members does."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    # The first question creates the topic of the offsets; it is loaded soon after.
    await live.kafka.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    loading, code = {14, 15, 16}, 14
    while code in loading:
        response = await live.kafka.ask(request, 8)
        code = response.topics[0].partitions[0].error_code
    assert code == 0, response


@asynccontextmanager
async def open_live_admin(directory: Path, **settings: Any) -> AsyncIterator[LiveAdmin]:
    """A broker on ``directory`` with ``settings`` (``_`` for the dots), and its admin app, inside the block.

    Its internal topics have one partition each unless ``settings`` say otherwise.
    """
    async with running(directory, **(ONE_PARTITION_EACH | settings)) as broker, connected(broker) as kafka:
        view = view_of(broker)
        transport = httpx.ASGITransport(create_app(view), raise_app_exceptions=False, client=("127.0.0.1", 5555))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=CHANGE_HEADERS, timeout=None
        ) as http:
            yield LiveAdmin(broker, view, http, kafka)


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve ``app`` on a port of its own inside the block; the address has no slash at its end."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connections, app, listening, trio.Event())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        nursery.cancel_scope.cancel()
