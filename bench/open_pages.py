"""Five open pages of the admin app and one tail, without a browser: a process of its own that asks as their scripts do.

Each page is loaded once with what it links, holds an event stream, reads itself again every few seconds (``fresh.js``,
``groups.js``, ``tuning.js``, ``overview.js``) and asks every ten whether clients are served (``live.js``). A browser
would take the cores from broker and load; this takes next to nothing.

    python -m bench.open_pages http://127.0.0.1:9644 topic        # prints ``open`` when all pages are there
"""

from __future__ import annotations

import http.client
import re
import sys
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import attrs

READINESS_SECONDS = 10.0
REFRESH_SECONDS = 3.0

LINKED = re.compile(rb'(?:href|src)="(/static/[^"]+)"')

ON_LOAD = ("/api/v1/brokers/1", "/readyz")
"""Read by every page when its stream opens."""

CHARTS = ("/api/v1/brokers/1/history", "/api/v1/changes")
"""Read once by the pages with charts; then their samples come by the stream."""


@attrs.frozen
class OpenPage:
    """A page: what it reads when it is opened, and what again and again."""

    address: str
    loads: Sequence[str] = ()
    refreshes: Sequence[str] = ()


def open_pages(topic: str) -> list[OpenPage]:
    """The five pages."""
    return [
        OpenPage("/", CHARTS, ("/",)),
        OpenPage("/brokers/1/tuning", (*CHARTS, "/api/v1/config"), ("/brokers/1/tuning",)),
        OpenPage("/groups", (), ("/groups",)),
        OpenPage(f"/topics/{topic}", (), (f"/topics/{topic}",)),
        OpenPage("/brokers/1/clients", (), ("/brokers/1/clients",)),
    ]


def get(connection: http.client.HTTPConnection, address: str) -> bytes:
    """The answer to a GET, whatever its status: a browser, too, goes on."""
    connection.request("GET", address)
    return connection.getresponse().read()


def read_stream(host: str, address: str) -> None:
    """Take what a stream of events brings until it ends."""
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", address)
    answer = connection.getresponse()
    while answer.read1(65536):
        pass


def keep_open(host: str, page: OpenPage, opened: threading.Barrier) -> None:
    """Open ``page`` and keep it up to date."""
    connection = http.client.HTTPConnection(host, timeout=60)
    for asset in LINKED.findall(get(connection, page.address)):
        get(connection, asset.decode())
    threading.Thread(target=read_stream, args=(host, "/api/v1/brokers/1/events"), daemon=True).start()
    for address in (*ON_LOAD, *page.loads):
        get(connection, address)
    opened.wait()
    ready_at = time.monotonic() + READINESS_SECONDS
    while True:
        time.sleep(REFRESH_SECONDS)
        for address in page.refreshes:
            get(connection, address)
        if time.monotonic() >= ready_at:
            get(connection, "/readyz")
            ready_at += READINESS_SECONDS


def main(url: str, topic: str) -> None:
    """Keep all pages and a tail open until the process is ended."""
    host = urlsplit(url).netloc
    pages = open_pages(topic)
    opened = threading.Barrier(len(pages) + 1)
    for page in pages:
        threading.Thread(target=keep_open, args=(host, page, opened), daemon=True).start()
    threading.Thread(target=read_stream, args=(host, f"/api/v1/topics/{topic}/tail"), daemon=True).start()
    opened.wait()
    print("open", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
