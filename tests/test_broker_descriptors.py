"""A broker with more partitions and more clients than it has descriptors, as a process of its own."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import trio

from kafka_wire.error_codes import ErrorCode
from tests.running_broker import WAIT_SECONDS, Connection, until
from tests.waits import fail_after, scaled
from trio_broker.common.log_throttle import LOG_INTERVAL_SECONDS
from trio_broker.testing.process import BrokerProcess

DESCRIPTORS = 128
"""Of the process. 32 files stay open, 48 with unsynced ones; 16 are for connections; 64 for all else."""

PARTITIONS = 100
CLIENTS = 30

ROUNDS = 8
"""Of requests without descriptors: several checkpoints are written meanwhile, and accepting is tried as often."""


class PoorBrokerProcess(BrokerProcess):
    """A broker that may have few descriptors."""

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *super().command()]


def open_descriptors(process: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@contextmanager
def none_left(process: BrokerProcess) -> Iterator[None]:
    """Let the process open nothing more that needs a descriptor behind its highest one."""
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir(f"/proc/{process.pid}/fd")))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)


def count_in_output(process: BrokerProcess, text: str) -> int:
    return sum(text in line for line in list(process.output))


async def connection_to(process: BrokerProcess) -> Connection:
    host, _, port = process.bootstrap_servers.rpartition(":")
    return Connection(await trio.open_tcp_stream(host, int(port)))


async def test_more_partitions_and_clients_than_descriptors(tmp_path: Path):
    """Every partition is served, connections beyond the limit wait for their turn, and the admin server answers."""
    with PoorBrokerProcess(tmp_path, overrides={"log.durability": "fsync"}) as process:
        client = await connection_to(process)
        await client.create_topic("orders", PARTITIONS)
        for partition in range(PARTITIONS):
            assert await client.produce("orders", b"%d" % partition, partition=partition) == ErrorCode.NONE
        assert await client.values("orders") == [b"0"]
        with fail_after(4 * WAIT_SECONDS):
            others = [await connection_to(process) for _ in range(CLIENTS)]
            assert await others[0].produce("orders", b"more", partition=7) == ErrorCode.NONE
            async with httpx.AsyncClient(base_url=process.admin_url, timeout=scaled(WAIT_SECONDS)) as admin:
                assert (await admin.get("/readyz")).status_code == 200
            assert open_descriptors(process) < DESCRIPTORS
            for other in others[:-1]:
                await other.stream.aclose()
            assert await others[-1].produce("orders", b"last") == ErrorCode.NONE
            await others[-1].stream.aclose()
        await client.stream.aclose()
        assert process.stop() == 0
    output = "\n".join(process.output)
    assert "Too many open files" not in output
    assert output.count("all that the limit of open files leaves room for: accepting pauses") == 1


async def test_accepting_without_descriptors(tmp_path: Path):
    """Who is connected is served meanwhile, and the others come in as soon as it is over.

    Files that are written all the time take descriptors for a moment, which no new connection may take from them.
    """
    overrides = {
        "log.durability": "fsync",
        "log.initial.task.delay.ms": "0",
        "replica.high.watermark.checkpoint.interval.ms": "10",
    }
    with BrokerProcess(tmp_path, overrides=overrides) as process:
        client = await connection_to(process)
        await client.create_topic("orders")
        assert await client.produce("orders", b"one") == ErrorCode.NONE
        async with httpx.AsyncClient(base_url=process.admin_url, timeout=scaled(WAIT_SECONDS)) as admin:
            assert (await admin.get("/readyz")).status_code == 200
            admin_port = int(process.admin_url.rstrip("/").rpartition(":")[2])
            began = trio.current_time()
            with none_left(process):
                others = [await connection_to(process) for _ in range(CLIENTS)]
                streams = [await trio.open_tcp_stream("127.0.0.1", admin_port) for _ in range(CLIENTS)]
                await until(lambda: count_in_output(process, "accepting on PLAINTEXT pauses"))
                await until(lambda: count_in_output(process, "accepting for the admin server pauses"))
                for _ in range(ROUNDS):
                    for _ in range(CLIENTS):
                        assert await client.produce("orders", b"more") == ErrorCode.NONE
                    # Its connection stays open by that, as every browser's page keeps its own.
                    assert (await admin.get("/readyz")).status_code == 200
            with fail_after(WAIT_SECONDS):
                for other in others:
                    assert await other.produce("orders", b"after all") == ErrorCode.NONE
                    await other.stream.aclose()
                async with httpx.AsyncClient(base_url=process.admin_url, timeout=scaled(WAIT_SECONDS)) as another:
                    assert (await another.get("/readyz")).status_code == 200
            seconds = trio.current_time() - began
            for stream in streams:
                await stream.aclose()
        await client.stream.aclose()
        assert process.stop() == 0
    lines = [
        count_in_output(process, f"accepting {where} pauses") for where in ("on PLAINTEXT", "for the admin server")
    ]
    assert max(lines) <= 1 + seconds / LOG_INTERVAL_SECONDS, "not one for each try"
    assert count_in_output(process, "Traceback") == 0
