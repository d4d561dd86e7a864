"""What a page that stays open over a restart of the broker gets: a reason, and no traceback in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from starlette.routing import Route

from broker_admin.app import create_app
from tests.admin.api_requests import ApiDescription
from tests.admin.fake_broker import FakeBroker
from tests.admin.test_api_conformance import DOCUMENT, NAMES
from tests.running_broker import WAIT_SECONDS, admin_client, connected, hold_in_flight, running
from tests.test_broker import brokers_alone
from tests.test_broker_start import HTML, HeldLoads, crash_with_topics, held, starting
from tests.waits import fail_after

__all__ = ["held"]

STREAM = "/api/v1/brokers/1/events"
TAIL = "/api/v1/topics/orders/tail"


def addresses() -> Iterator[str]:
    """Every address that a GET may ask for, with names of what is there."""
    for route in create_app(FakeBroker().view).routes:
        if isinstance(route, Route) and "GET" in (route.methods or ()):
            path = re.sub(r":\w+}", "}", route.path)
            yield path.format_map({**NAMES, "name": "page.css", "offset": "0", "number": "1"})


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """What the admin server logs at ERROR, or with a traceback."""
    found: list[str] = []

    class Finder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR or record.exc_info:
                found.append(record.getMessage())

    finder = Finder()
    log = logging.getLogger("broker_admin")
    log.addHandler(finder)
    yield found
    log.removeHandler(finder)


async def test_no_address_breaks_while_the_broker_starts(tmp_path, held: HeldLoads, errors):
    await crash_with_topics(tmp_path, held)
    async with starting(tmp_path, held) as (admin, _):
        answer = await admin.get(STREAM)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["detail"].startswith("recovering 0 of 3 logs")
        assert (await admin.head(STREAM)).status_code == 503
        for address in addresses():
            answer = await admin.get(address, headers=HTML)
            assert answer.status_code != 500, f"{address}: {answer.status_code} {answer.text[:200]}"
    assert errors == []


async def test_no_address_breaks_while_the_broker_stops_and_its_streams_end(tmp_path, errors):
    settings = {"admin_listener": "127.0.0.1:0", "shutdown_grace_ms": "600000"}
    api = ApiDescription(DOCUMENT)
    async with running(tmp_path, **settings) as broker, connected(broker) as client:
        await client.create_topic("orders", 2)
        await client.produce("orders", b"one", b"two")
        finish = await hold_in_flight(broker, client, brokers_alone(), 12)
        async with (
            admin_client(broker) as admin,
            admin.stream("GET", STREAM) as events,
            admin.stream("GET", TAIL) as tail,
        ):
            broker.stop()
            for address in addresses():
                if not address.startswith("/api/"):
                    answer = await admin.get(address, headers=HTML)
                    assert answer.status_code != 500, f"{address}: {answer.text[:200]}"
            for path, methods in DOCUMENT["paths"].items():
                if path in (STREAM.replace("/1/", "/{broker_id}/"), TAIL.replace("orders", "{topic}")):
                    continue
                for method in methods:
                    for request in api.requests(path, method, NAMES, 2):
                        answer = await admin.request(
                            request.method, request.address, headers=request.headers, json=request.json
                        )
                        assert answer.status_code != 500, f"{request} → {answer.text[:300]}"
            finish.set()
            with fail_after(WAIT_SECONDS):
                assert [line async for line in events.aiter_lines() if line.startswith("retry")]
                assert [line async for line in tail.aiter_lines()]
                await broker.stopped.wait()
    assert errors == []
