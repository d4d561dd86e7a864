"""A real etcd on ports and a directory of its own, for tests; those that need one are skipped where there is none."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import attrs
import trio

from tests.oracles import absent
from tests.waits import fail_after
from trio_broker.cluster.etcd.client import EtcdAddresses, EtcdClient
from trio_broker.cluster.etcd.errors import EtcdError
from trio_broker.cluster.etcd.messages import put
from trio_broker.cluster.etcd.server import free_port

START_SECONDS = 20.0

STATUS_SECONDS = 2.0

FAST_ELECTIONS = ("--heartbeat-interval", "10", "--election-timeout", "100")
"""A member alone waits out an election before it serves. The shortest lease is a second then."""


def etcd_program() -> str:
    """Where etcd is; without it, see ``absent``."""
    return shutil.which("etcd") or absent("etcd", "there is no etcd")


@attrs.define(eq=False)
class EtcdServer:
    """One member, alone or of ``members``. ``kill`` and ``start`` keep its data."""

    directory: Path
    arguments: Sequence[str] = FAST_ELECTIONS
    scheme: str = "http"
    port: int = attrs.field(factory=free_port)
    peer_port: int = attrs.field(factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    program: str = attrs.field(factory=etcd_program)
    members: Sequence[EtcdServer] = attrs.field(factory=list, repr=False)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was not started"
        return self.process.pid

    @property
    def name(self) -> str:
        return f"member-{self.port}"

    def start(self) -> None:
        members = ",".join(f"{each.name}={each.peer_url}" for each in self.members or [self])
        command = [
            *(self.program, "--name", self.name, "--data-dir", str(self.directory / "data")),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", members, *self.arguments),
        ]
        with (self.directory / "etcd.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def addresses(self) -> EtcdAddresses:
        return EtcdAddresses([("127.0.0.1", self.port)])

    def is_leader(self) -> bool:
        """Whether it leads the others.

        Raises:
            OSError: it does not answer.
        """
        asked = Request(f"{self.url}/v3/maintenance/status", b"{}")
        with urlopen(asked, timeout=STATUS_SECONDS) as answer:
            status = json.load(answer)
        return bool(status["leader"] == status["header"]["member_id"])


def etcd_members(directory: Path, count: int) -> list[EtcdServer]:
    """Members of one cluster, which are not started yet."""
    members = [EtcdServer(directory / f"etcd-{number}", ()) for number in range(1, count + 1)]
    for each in members:
        each.directory.mkdir()
        each.members = members
    return members


@contextlib.asynccontextmanager
async def etcd_server(directory: Path, *arguments: str, scheme: str = "http") -> AsyncIterator[EtcdServer]:
    """A member that has started; it may not take calls yet."""
    server = EtcdServer(directory, (*FAST_ELECTIONS, *arguments), scheme)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.asynccontextmanager
async def etcd_client(addresses: EtcdAddresses) -> AsyncIterator[EtcdClient]:
    """A client, whose first write has gone through."""
    async with trio.open_nursery() as nursery:
        client = EtcdClient(addresses, trio.open_tcp_stream)
        await nursery.start(client.run)
        await ready(client)
        yield client
        nursery.cancel_scope.cancel()


async def ready(client: EtcdClient) -> None:
    with fail_after(START_SECONDS):
        while True:
            try:
                await client.txn([], [put(b"ready", b"")])
                return
            except EtcdError:
                await trio.sleep(0.05)
