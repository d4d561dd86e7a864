"""The client of a cluster: sends each request to the right broker, and repeats it where that helps.

The brokers' addresses come from any of the bootstrap addresses by Metadata. ``any_broker``,
``controller``, ``node`` and ``coordinator`` return connections, which are kept until the client is closed or a request
fails in a way that makes them doubtful.

``attempt`` repeats what a broker refused with a retriable code: it is no longer the coordinator, is loading, elects. A
request whose answer was lost is repeated only if it is idempotent; else the error says that the outcome is unknown.

Source: Kafka's AdminClient, KafkaAdminClient's call types; the retriable exceptions of its Errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.schema import NEWEST, Request
from trio_broker.client.address import Address
from trio_broker.client.connection import SYSTEMS_CHOICE, BrokerConnection, Identity
from trio_broker.client.deadline import Deadline, pauses
from trio_broker.client.errors import ClientError, ConnectFailed, ConnectionLost, Refused, check, only

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")

NOT_NOW: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes that say: not done, and soon it may be possible, here or at another broker."""

PERHAPS_DONE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})
"""Codes after which the change may still happen, so that only what may be done twice is asked again."""

LOST_CONNECTIONS: Final = 3
"""How many connections one question may lose or fail to make. A broker that restarts is worth another attempt; an
address that nobody listens at is better reported than tried for the rest of the time."""

GROUP_KEY_TYPE: Final = 0
BATCHED_COORDINATORS_FROM: Final = 4
"""The version of FindCoordinator that takes a list of keys."""


@attrs.frozen
class Node:
    """A broker, as the cluster tells of it."""

    node_id: int
    address: Address
    rack: str | None = None


@attrs.frozen
class Brokers:
    """The brokers of a cluster; ``controller_id`` is one that takes changes, or -1 where any does."""

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]


class KafkaClient:
    """Connections to the brokers of one cluster, for one command. Use it as a context manager, or call ``close``.

    ``bootstrap`` are the addresses that were given. ``deadline`` is when to give up; a program that asks more than once
    puts another one there each time.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        identity: Identity,
        deadline: Deadline,
        *,
        receive_buffer_bytes: int = SYSTEMS_CHOICE,
    ) -> None:
        self.deadline = deadline
        self._receive_buffer_bytes = receive_buffer_bytes
        self.bootstrap = tuple(bootstrap)
        self._identity = identity
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: Brokers | None = None
        self._told_addresses: tuple[Address, ...] = ()
        self._coordinators: dict[str, Node] = {}

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def forget(self) -> None:
        """Drop the cached brokers and coordinators, which may have changed, so that they are requested again."""
        self._brokers = None
        self._coordinators.clear()

    # --- Finding the broker ---

    def any_broker(self) -> BrokerConnection:
        """Return a connection to the first bootstrap address that works, else to another broker that was heard of.

        Raises:
            ConnectFailed: none takes a connection; the text names them all.
            ClientError: one takes it and then makes no sense, or the time is over.
        """
        failures: list[str] = []
        for address in dict.fromkeys(self.bootstrap + self._told_addresses):
            try:
                return self._connected(address)
            except ConnectFailed as error:
                failures.append(str(error))
        raise ConnectFailed("; ".join(failures))

    def brokers(self) -> Brokers:
        """Return the cluster's brokers; asked for once and kept."""
        if self._brokers is None:
            broker = self.any_broker()
            # Before version 1 an empty list of topics asked for all of them.
            version = broker.version_for(MetadataRequest, at_least=1)
            response = broker.ask(MetadataRequest(topics=[]), self.deadline, version)
            check("Metadata", response.error_code)
            self._brokers = Brokers(
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                nodes=tuple(Node(each.node_id, Address(each.host, each.port), each.rack) for each in response.brokers),
            )
            # Kept even when the rest is forgotten: the bootstrap address may be the one broker that is down.
            self._told_addresses = tuple(node.address for node in self._brokers.nodes)
        return self._brokers

    def controller(self) -> BrokerConnection:
        """Return a connection to the broker that takes changes of topics and configs."""
        brokers = self.brokers()
        if any(node.node_id == brokers.controller_id for node in brokers.nodes):
            return self.node(brokers.controller_id)
        # No broker has the controller's id: it is -1, or that of a KRaft controller, which clients cannot reach. Any
        # broker forwards changes then (KIP-590).
        return self.any_broker()

    def node(self, node_id: int) -> BrokerConnection:
        """Return a connection to one broker.

        Raises:
            Refused: the cluster has no such broker now (BROKER_NOT_AVAILABLE).
        """
        for node in self.brokers().nodes:
            if node.node_id == node_id:
                return self._learnt(node)
        raise Refused(f"broker {node_id}", ErrorCode.BROKER_NOT_AVAILABLE, "it is not among the cluster's live brokers")

    def coordinator_node(self, group_id: str) -> Node:
        """Return the broker that looks after a group; asked for once and kept.

        Raises:
            Refused: there is none now, or the group's name is not allowed.
        """
        if group_id not in self._coordinators:
            broker = self.any_broker()
            version = broker.version_for(FindCoordinatorRequest)
            if version < BATCHED_COORDINATORS_FROM:
                request = FindCoordinatorRequest(key=group_id)
            else:
                request = FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[group_id])
            response = broker.ask(request, self.deadline, version)
            self._coordinators[group_id] = _coordinator(group_id, response)
        return self._coordinators[group_id]

    def coordinator(self, group_id: str) -> BrokerConnection:
        """Return a connection to the broker that looks after a group; errors as ``coordinator_node``."""
        return self._learnt(self.coordinator_node(group_id))

    def ask(
        self, broker: BrokerConnection, request: Request[ResponseT], *, at_least: int = 0, at_most: int = NEWEST
    ) -> ResponseT:
        """Send a request in the newest common version between the bounds; errors as ``BrokerConnection.ask``."""
        version = broker.version_for(type(request), at_least=at_least, at_most=at_most)
        return broker.ask(request, self.deadline, version)

    def _connected(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_usable:
            connection = BrokerConnection.open(
                address, self._identity, self.deadline, receive_buffer_bytes=self._receive_buffer_bytes
            )
            self._connections[address] = connection
        return connection

    def _learnt(self, node: Node) -> BrokerConnection:
        """Connect to an address that the cluster told, and say so when that fails: it is often the wrong one for us."""
        try:
            return self._connected(node.address)
        except ConnectFailed as error:
            told = ", the address that the cluster gives for it" if node.address not in self.bootstrap else ""
            raise ConnectFailed(f"broker {node.node_id}: {error}{told}") from None

    # --- Another attempt ---

    def attempt(self, ask: Callable[[], T], *, repeatable: bool = True) -> T:
        """Return what ``ask`` returns, calling it again while it is refused for now and there is time.

        ``repeatable`` says that doing it twice is the same as doing it once. Where it is not, an answer that did not
        come ends the attempts.

        Raises:
            ClientError: the last failure of ``ask``, when another attempt would not help or would come too late.
        """
        lost = 0
        for pause in pauses():
            try:
                return ask()
            except Refused as error:
                if not (error.code in NOT_NOW or (repeatable and error.code in PERHAPS_DONE)):
                    raise
                failure: ClientError = error
            # Nothing was sent, so that even what is not repeatable may be asked again.
            except ConnectFailed as error:
                failure = error
                lost += 1
            except ConnectionLost as error:
                if not repeatable:
                    raise ConnectionLost(f"{error}; whether it was done is not known") from None
                failure = error
                lost += 1
            # Whatever failed: the next attempt asks anew which broker is the right one.
            self.forget()
            if lost >= LOST_CONNECTIONS or not self.deadline.pause(pause):
                raise failure
        raise AssertionError("pauses never end")


def _coordinator(group_id: str, response: FindCoordinatorResponse) -> Node:
    subject = f"coordinator of group {group_id!r}"
    if not response.coordinators:
        check(subject, response.error_code, response.error_message)
        return Node(response.node_id, Address(response.host, response.port))
    found = only(response.coordinators, subject)
    check(subject, found.error_code, found.error_message)
    return Node(found.node_id, Address(found.host, found.port))
