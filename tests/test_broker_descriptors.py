"""A broker with more partitions and more clients than it has descriptors, as a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import trio

from kafka_wire.error_codes import ErrorCode
from tests.running_broker import PATIENCE_SECONDS, Connection
from trio_broker.testing.process import BrokerProcess

DESCRIPTORS = 128
"""Of the process. 32 files stay open, 48 with unsynced ones; 16 are for connections; 64 for all else."""

PARTITIONS = 100
CLIENTS = 30


class PoorBrokerProcess(BrokerProcess):
    """A broker that may have few descriptors."""

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *super().command()]


def open_descriptors(process: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


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
        with trio.fail_after(4 * PATIENCE_SECONDS):
            others = [await connection_to(process) for _ in range(CLIENTS)]
            assert await others[0].produce("orders", b"more", partition=7) == ErrorCode.NONE
            async with httpx.AsyncClient(base_url=process.admin_url) as admin:
                assert (await admin.get("/readyz")).status_code == 200
            assert open_descriptors(process) < DESCRIPTORS
            for other in others[:-1]:
                await other.stream.aclose()
            assert await others[-1].produce("orders", b"last") == ErrorCode.NONE
            await others[-1].stream.aclose()
        await client.stream.aclose()
        assert process.stop() == 0
    told = "\n".join(process.output)
    assert "Too many open files" not in told
    assert told.count("all that the limit of open files leaves room for: accepting pauses") == 1
