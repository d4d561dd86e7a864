"""The links between the brokers of a cluster in one process, which a test can cut.

A broker that is cut off reaches neither the brokers on other sides nor the metadata, unless its side is the largest.
Its connections to them break, and new ones are refused: at once what a link that drops everything comes to after a
while. Clients reach every broker at any time.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs
import trio

from kafka_wire.primitives import NO_UUID
from trio_broker.cluster.local_metadata_store import LocalMetadataStore, LocalTail
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import AppendUnknown, Claim, CommittedBatch, LeaderAndEpoch, PreparedBatch
from trio_broker.runtime.network import Network


class ClusterLinks:
    """Who reaches whom. ``node_at`` returns the broker that listens on a port, from the moment it does."""

    def __init__(self, store: LocalMetadataStore, node_at: Callable[[int], int | None]) -> None:
        self.store = store
        self.node_at = node_at
        self._sides: Sequence[frozenset[int]] = ()
        self._streams: dict[trio.SocketStream, frozenset[int]] = {}
        self._healed = trio.Event()

    def cut(self, sides: Sequence[frozenset[int]]) -> None:
        """Let only brokers of one of ``sides`` reach each other."""
        self._sides = sides
        for stream, ends in list(self._streams.items()):
            if not self.reaches(*ends):
                # As the end of the other process would; both sides notice. It may have ended before.
                with suppress(OSError):
                    stream.socket.shutdown(socket.SHUT_RDWR)
        leader = self.store.controller().leader_id
        if not self.reaches_metadata(leader):
            self.store.expire(leader)

    def heal(self) -> None:
        """Let every broker reach every other one, and the metadata."""
        self._sides = ()
        self._healed.set()
        self._healed = trio.Event()

    def reaches(self, *nodes: int) -> bool:
        """Whether these brokers are on one side."""
        return not self._sides or any(side.issuperset(nodes) for side in self._sides)

    def reaches_metadata(self, node_id: int) -> bool:
        return not self._sides or node_id in max(self._sides, key=len)

    async def wait_for_metadata(self, node_id: int) -> None:
        """Wait until a broker reaches the metadata."""
        while not self.reaches_metadata(node_id):
            await self._healed.wait()

    def require_metadata(self, node_id: int) -> None:
        """Raise what a broker gets that does not reach the metadata."""
        if not self.reaches_metadata(node_id):
            raise TimeoutError(errno.ETIMEDOUT, "the metadata is not reached")

    def keep(self, stream: trio.SocketStream, *nodes: int) -> None:
        """Note a connection between two brokers, which breaks when they are cut off from each other."""
        self._streams = {each: ends for each, ends in self._streams.items() if each.socket.fileno() >= 0}
        self._streams[stream] = frozenset(nodes)


@attrs.frozen
class CutNetwork:
    """The network as one broker has it."""

    links: ClusterLinks
    node_id: int
    network: Network

    def max_connections(self) -> int:
        return self.network.max_connections()

    def stream_socket(self, host: str, port: int) -> tuple[socket.socket, Any]:
        return self.network.stream_socket(host, port)

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        node = self.links.node_at(port)
        stream = await self.network.connect(host, port)
        if node is None:
            return stream
        assert isinstance(stream, trio.SocketStream), "the real network has sockets"
        # Behind the wait, during which they may have been cut off.
        if not self.links.reaches(self.node_id, node):
            await stream.aclose()
            raise OSError(errno.EHOSTUNREACH, f"broker {node} is cut off from broker {self.node_id}")
        self.links.keep(stream, self.node_id, node)
        return stream


@attrs.define(eq=False)
class CutMetadataStore:
    """The shared metadata as one broker reaches it. Implements ``MetadataStore``."""

    links: ClusterLinks
    node_id: int
    _known: LeaderAndEpoch = attrs.field(factory=LeaderAndEpoch, init=False)

    @property
    def max_batch_bytes(self) -> int:
        return self.links.store.max_batch_bytes

    @property
    def problem(self) -> str:
        return "" if self.links.reaches_metadata(self.node_id) else "the metadata is not reached"

    async def claim(self, node_id: int, incarnation_id: bytes = NO_UUID) -> Claim:
        while True:
            await self.links.wait_for_metadata(node_id)
            claim = await self.links.store.claim(node_id, incarnation_id)
            if self.links.reaches_metadata(node_id):
                return claim
            # Cut off while it waited.
            self.links.store.expire(node_id)

    async def wait_lost(self, claim: Claim) -> None:
        await self.links.store.wait_lost(claim)

    async def resign(self, claim: Claim) -> None:
        if self.links.reaches_metadata(self.node_id):
            await self.links.store.resign(claim)

    def controller(self) -> LeaderAndEpoch:
        if self.links.reaches_metadata(self.node_id):
            self._known = self.links.store.controller()
        return self._known

    async def append(self, batch: PreparedBatch, *, claim: Claim, expected_end: int) -> int:
        if not self.links.reaches_metadata(self.node_id):
            raise AppendUnknown("the metadata is not reached")
        return await self.links.store.append(batch, claim=claim, expected_end=expected_end)

    async def end_offset(self) -> int:
        self.links.require_metadata(self.node_id)
        return await self.links.store.end_offset()

    def tail(self, from_offset: int) -> CutTail:
        return CutTail(self, self.links.store.tail(from_offset))

    async def snapshot(self) -> MetadataSnapshot | None:
        self.links.require_metadata(self.node_id)
        return await self.links.store.snapshot()

    async def take_snapshot(self, snapshot: MetadataSnapshot, *, claim: Claim) -> None:
        self.links.require_metadata(self.node_id)
        await self.links.store.take_snapshot(snapshot, claim=claim)


@attrs.frozen
class CutTail:
    """What comes next of the metadata, once its broker reaches them."""

    store: CutMetadataStore
    tail: LocalTail

    def __aiter__(self) -> CutTail:
        return self

    async def __anext__(self) -> CommittedBatch:
        batch = await anext(self.tail)
        await self.store.links.wait_for_metadata(self.store.node_id)
        return batch
