"""Throws broken requests at the admin page of a running broker, and sees that Kafka's clients do not notice.

The admin page is served by hypercorn, which three short requests were known to kill; they are among the ones to begin
with. Beside them stand requests that the page answers. All are cut, flipped, spliced and repeated. Asked for:

* a healthy client of the broker produces and reads back all the while,
* ``/healthz`` answers,
* the process lives, its memory grows by less than ``MAX_GROWTH_BYTES``, and its output tells of no bug.

    python -m fuzz.admin_http --seconds 30 --seed 1

The same seed sends the same bytes. A finding is printed with the latest requests, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from fuzz.decoders import mutated, until
from fuzz.live_socket import RECENT_REQUESTS, Finding, Statistics, Watch, report
from fuzz.raw_client import HealthyClient, RawConnection
from trio_broker.testing.process import BrokerProcess

CONNECTIONS: Final = 8
"""Kept open at a time, so that some are idle in every state while others come."""

CHECK_EVERY: Final = 50
"""Requests between two looks at the broker."""

HEALTHZ: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

H2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

KNOWN_TRIGGERS: Final = (
    # An upgrade to a websocket, with a byte behind it that no websocket sends.
    b"GET /api/v1/brokers/1/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nx",
    # Upgrades to HTTP/2 with settings that are not base64, and with a setting of an impossible value.
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: \xff!not-base64\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAIAAAAJ\r\n\r\n",
)
"""What used to end hypercorn's server rather than one connection."""


def change(body: bytes, *, length: int | None = None) -> bytes:
    """Return a request to change the configuration."""
    return (
        b"PATCH /api/v1/config HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: fuzz\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (len(body) if length is None else length)
    ) + body


SEEDS: Final = (
    *KNOWN_TRIGGERS,
    HEALTHZ,
    *(
        b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path
        for path in (b"/", b"/readyz", b"/metrics", b"/api/v1/config", b"/api/v1/brokers/1/threads", b"/api/v1/topics")
    ),
    b"GET /api/v1/brokers/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
    change(b'{"num.io.threads": 9}'),
    change(b'{"num.io.threads": null, "log.retention.ms": "100000"}'),
    change(b'{"num.io.threads": 1e400, "x": [[[[[[]]]]]]}'),
    change(b"{", length=1 << 62),
    change(b"[" * 20_000),
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nffffffffff\r\n",
    H2_PREFACE + b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00" + b"\x00\x00\x04\x08" + 9 * b"\x00",
    H2_PREFACE + b"\x00\x00\x00\x04" + 5 * b"\x00" + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x00",
)


def piece(chance: random.Random) -> bytes:
    """Return one request, mostly broken."""
    seed = chance.choice(SEEDS)
    return seed if chance.random() < 0.3 else mutated(seed, chance.choice(SEEDS), chance)


def is_healthy(port: int) -> bool:
    """Whether the page still answers."""
    with RawConnection.open(port) as connection:
        connection.send(HEALTHZ)
        return connection.sock.recv(1 << 16).startswith(b"HTTP/1.1 200")


def fuzz(broker: BrokerProcess, seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Yield findings; each round sends ``CHECK_EVERY`` pieces and then looks."""
    chance = random.Random(seed)
    admin_port = int(broker.admin_url.rstrip("/").rpartition(":")[2])
    healthy = HealthyClient(broker.port, "healthy")
    watch = Watch(healthy, broker, statistics)
    recent, connections = deque[bytes](maxlen=RECENT_REQUESTS), deque[RawConnection]()
    try:
        for _ in rounds:
            for _ in range(CHECK_EVERY):
                recent.append(piece(chance))
                send(admin_port, recent[-1], connections)
                statistics.sent += 1
            for problem in watch.problems():
                yield Finding(problem, tuple(recent))
            if broker.process.poll() is not None:
                return
            if not is_healthy(admin_port):
                yield Finding("/healthz does not answer", tuple(recent))
    finally:
        healthy.close()
        for connection in connections:
            connection.close()


def send(port: int, data: bytes, connections: deque[RawConnection]) -> None:
    """Send ``data`` on a new connection, take what has come on the oldest of ``connections``, and close that one."""
    connections.append(RawConnection.open(port))
    connections[-1].send(data)
    if len(connections) > CONNECTIONS:
        oldest = connections.popleft()
        oldest.sock.setblocking(False)
        with contextlib.suppress(OSError):  # Nothing came, or it was dropped.
            oldest.sock.recv(1 << 16)
        oldest.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw broken requests at the admin page of a broker.")
    parser.add_argument("--seconds", type=float, default=30, help="how long to go on (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="where the randomness starts (default: 0)")
    arguments = parser.parse_args()
    statistics = Statistics()
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory), overrides={"log.durability": "page-cache"}) as broker,
    ):
        rounds = until(time.monotonic() + arguments.seconds)
        findings = report(fuzz(broker, arguments.seed, rounds, statistics))
    print(
        f"{statistics.sent} requests sent, {statistics.checks} checks, "
        f"memory grew by {statistics.growth_bytes / (1 << 20):.1f} MiB, {findings} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
