"""An etcd of one member, as a process beside this one: for a cluster on one machine, which has none of its own.

It listens on free ports of the loopback address, and keeps its data and what it prints in a directory. One that ends by
itself is started again on the same ports with the same data: meanwhile the brokers serve what they lead, and change
nothing.

Source: docs/decisions/0093-a-cluster-to-try-has-an-etcd-of-its-own.md.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import PurePath
from typing import Final

import attrs
import trio

from trio_broker.cluster.etcd.client import EtcdAddresses, EtcdClient
from trio_broker.cluster.etcd.errors import EtcdError
from trio_broker.cluster.etcd.opening import running
from trio_broker.concurrency.barrier import Backoff, background_nursery, start_background
from trio_broker.runtime.child_process import ChildProcess
from trio_broker.runtime.runtime import Runtime

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"

START_SECONDS: Final = 30.0
"""A start takes a second, and reads what is there."""

LOOK_SECONDS: Final = 0.1

OPTIONS: Final = (
    # A member alone has nobody to wait for, and would wait for a second.
    *("--heartbeat-interval", "20", "--election-timeout", "200"),
    *("--auto-compaction-mode", "revision", "--auto-compaction-retention", "10000"),
)


class EtcdDidNotStart(Exception):
    """It ended, or does not answer; the text is one line."""


def free_port() -> int:
    """A port of the loopback address that nobody has now."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


@attrs.define(eq=False)
class EtcdServer:
    """The etcd of ``program`` with its data in ``directory``, which is there."""

    program: str
    directory: PurePath
    port: int = attrs.field(factory=free_port)
    peer_port: int = attrs.field(factory=free_port)
    process: ChildProcess = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def output(self) -> PurePath:
        """The file with what it prints."""
        return self.directory / "etcd.log"

    def start(self) -> None:
        """Start it, or start it again."""
        client, peer = f"http://{self.address}", f"http://{LOOPBACK}:{self.peer_port}"
        command = [
            *(self.program, "--name", "one", "--data-dir", str(self.directory / "data")),
            *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", *OPTIONS),
        ]
        self.process = ChildProcess(command, self.output)

    async def run(self) -> None:
        """Start it again whenever it ends, until cancelled."""
        backoff = Backoff()
        while True:
            code = await self.process.wait()
            log.error("etcd has ended with %d and is started again; it says why in %s", code, self.output)
            await trio.sleep(backoff.next_pause())
            self.start()

    async def wait_ready(self, runtime: Runtime) -> None:
        """Wait until it answers.

        Raises:
            EtcdDidNotStart: it has ended, or does not answer.
        """
        client = EtcdClient(EtcdAddresses([(LOOPBACK, self.port)]), runtime.network.connect)
        async with running(client):
            with trio.move_on_after(START_SECONDS):
                while not self.process.has_ended:
                    with contextlib.suppress(EtcdError):
                        await client.txn([], [])
                        return
                    await trio.sleep(LOOK_SECONDS)
        raise EtcdDidNotStart(f"etcd does not start: it says why in {self.output}")


@contextlib.asynccontextmanager
async def started_etcd(program: str, directory: PurePath, runtime: Runtime) -> AsyncIterator[EtcdServer]:
    """An etcd that answers, with its data in ``directory``, which is made. It ends with the block.

    Raises:
        EtcdDidNotStart: it does not.
        OSError: the directory cannot be made, or the program not be started.
    """
    await runtime.workers.run(partial(runtime.disk.make_directory, directory))
    server = EtcdServer(program, directory)
    try:
        await server.wait_ready(runtime)
        async with background_nursery() as nursery:
            start_background(nursery, "etcd", server.run)
            yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.process.stop()
