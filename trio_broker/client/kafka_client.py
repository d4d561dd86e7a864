"""The client of a cluster: sends each request to the right broker, and repeats it where that helps.

A Metadata request to one of the bootstrap addresses returns the addresses of all brokers. ``any_broker``,
``controller``, ``node`` and ``coordinator`` return connections, which are kept until the client is closed or a request
on them fails.

``attempt`` repeats a request that a broker refused with a retriable code: the broker is no longer the coordinator, is
loading the group, or the partition has no leader at the moment. A request whose answer was lost, or does not come, is
repeated only if it is idempotent; otherwise the error says that the outcome is unknown.

Source: Kafka's KafkaAdminClient (Call, its node providers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from types import TracebackType
from typing import Final, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import (
    BATCHED_SINCE_VERSION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    KeyType,
)
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from kafka_wire.schema import NEWEST, Request
from trio_broker.client.address import Address
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline, retry
from trio_broker.client.error_codes import PERHAPS_DONE, RETRIED_BY_COMMANDS
from trio_broker.client.errors import (
    BrokerUnreachable,
    ConnectFailed,
    ConnectionLost,
    Refused,
    TimedOut,
    TlsFailed,
    check,
    only,
)

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")

LOST_CONNECTIONS: Final = 3
"""How many connections one request may lose or fail to make. Another attempt reaches a broker that restarts; an address
where nothing listens is reported instead of tried until the deadline."""

REQUEST_SECONDS: Final = 10.0
"""The longest wait for the answer to a request that can be repeated: by then another broker has the place of one that
hangs, since brokers replace one that they have not heard of for ``broker.session.timeout.ms``, 9 s by default."""

KEY_TYPES_FROM: Final = 1
"""The version of FindCoordinator from which on it takes a key that is no group's (KIP-98)."""


@attrs.frozen
class Node:
    """A broker's id and address, as Metadata returns them."""

    node_id: int
    address: Address
    rack: str | None = None


@attrs.frozen
class Brokers:
    """The brokers of a cluster; ``controller_id`` is the broker to send changes to, or -1 if Metadata names none."""

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]


class KafkaClient:
    """Connections to the brokers of one cluster, for one command. Use it as a context manager, or call ``close``.

    ``deadline`` counts for all requests of a command; a program that runs for longer assigns a new deadline before each
    request.
    """

    def __init__(self, settings: ConnectionSettings, deadline: Deadline) -> None:
        self.settings = settings
        self.deadline = deadline
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: Brokers | None = None
        self._known_addresses: tuple[Address, ...] = ()
        self._turn = 0
        self._coordinators: dict[tuple[int, str], Node] = {}

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
        """Drop the cached brokers and coordinators, which may have changed, so that they are requested again, and of
        another broker: one that is cut off from the others answers with what it knew before."""
        self._turn += 1
        self._brokers = None
        self._coordinators.clear()

    # --- Finding the broker ---

    def any_broker(self) -> BrokerConnection:
        """Return a connection to a bootstrap address that works, otherwise to a broker that Metadata named: to the same
        one until it fails, or ``forget`` is called.

        Raises:
            ConnectFailed: no address accepts a connection; the text names them all.
            ClientError: an address accepts it and then does not answer as Kafka, or the deadline has passed.
        """
        failures: list[str] = []
        addresses = list(dict.fromkeys(self.settings.bootstrap + self._known_addresses))
        for _ in addresses:
            try:
                return self._connected(addresses[self._turn % len(addresses)])
            except ConnectFailed as error:
                failures.append(str(error))
                self._turn += 1
        raise ConnectFailed("; ".join(failures))

    def brokers(self) -> Brokers:
        """Return the cluster's brokers, which are requested unless a response has named them, and cached."""
        if self._brokers is None:
            broker = self.any_broker()
            # In version 0 an empty list of topics asks for all topics; from version 1 on, for none.
            version = broker.version_for(MetadataRequest, at_least=1)
            response = broker.ask(MetadataRequest(topics=[]), self.deadline, version)
            check("Metadata", response.error_code)
            return self.learn_brokers(response)
        return self._brokers

    def learn_brokers(self, response: MetadataResponse) -> Brokers:
        """Cache the brokers that a response to Metadata names, whatever it was asked for, and return them."""
        self._brokers = Brokers(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            nodes=tuple(Node(each.node_id, Address(each.host, each.port), each.rack) for each in response.brokers),
        )
        # ``forget`` keeps these addresses: the only bootstrap address may belong to the broker that is down.
        self._known_addresses = tuple(node.address for node in self._brokers.nodes)
        return self._brokers

    def controller(self) -> BrokerConnection:
        """Return a connection to the broker that takes changes of topics and configs."""
        brokers = self.brokers()
        if any(node.node_id == brokers.controller_id for node in brokers.nodes):
            return self.node(brokers.controller_id)
        # Metadata names no controller (-1), or one that it does not list. A KRaft broker names a random live broker,
        # since every broker forwards changes to the real controller, which clients cannot reach (KIP-590).
        return self.any_broker()

    def node(self, node_id: int) -> BrokerConnection:
        """Return a connection to one broker.

        Raises:
            Refused: the cluster has no such broker now (BROKER_NOT_AVAILABLE).
            BrokerUnreachable: it has, and there is no connection to it.
        """
        for node in self.brokers().nodes:
            if node.node_id == node_id:
                return self._learnt(node)
        raise Refused(f"broker {node_id}", ErrorCode.BROKER_NOT_AVAILABLE, "it is not among the cluster's live brokers")

    def coordinator_node(self, group_id: str) -> Node:
        """Return the broker that coordinates a group, which is requested once and cached.

        Raises:
            Refused: no broker coordinates it at the moment, or the group's id is not allowed.
        """
        return self._find_coordinator(KeyType.GROUP, group_id)

    def coordinator(self, group_id: str) -> BrokerConnection:
        """Return a connection to the broker that coordinates a group; errors as ``coordinator_node``."""
        return self._learnt(self.coordinator_node(group_id))

    def transaction_coordinator(self, transactional_id: str) -> BrokerConnection:
        """Return a connection to the broker that coordinates a transactional id.

        Raises:
            Refused: no broker coordinates it at the moment, or the id is not allowed.
        """
        return self._learnt(self.transaction_coordinator_node(transactional_id))

    def transaction_coordinator_node(self, transactional_id: str) -> Node:
        """Return the broker that coordinates a transactional id, which is requested once and cached; errors as
        ``transaction_coordinator``.
        """
        return self._find_coordinator(KeyType.TRANSACTIONAL_ID, transactional_id)

    def _find_coordinator(self, key_type: int, key: str) -> Node:
        if (key_type, key) not in self._coordinators:
            broker = self.any_broker()
            at_least = 0 if key_type == KeyType.GROUP else KEY_TYPES_FROM
            version = broker.version_for(FindCoordinatorRequest, at_least=at_least)
            if version < BATCHED_SINCE_VERSION:
                request = FindCoordinatorRequest(key=key, key_type=key_type)
            else:
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            what = "group" if key_type == KeyType.GROUP else "transactional id"
            response = broker.ask(request, self.deadline, version)
            self._coordinators[key_type, key] = _coordinator(f"coordinator of {what} {key!r}", response)
        return self._coordinators[key_type, key]

    def ask(
        self, broker: BrokerConnection, request: Request[ResponseT], *, at_least: int = 0, at_most: int = NEWEST
    ) -> ResponseT:
        """Send a request in the newest common version between the bounds; errors as ``BrokerConnection.ask``."""
        version = broker.version_for(type(request), at_least=at_least, at_most=at_most)
        return broker.ask(request, self.deadline, version)

    def _connected(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_usable:
            connection = self._connections[address] = BrokerConnection.open(address, self.settings, self.deadline)
        return connection

    def _learnt(self, node: Node) -> BrokerConnection:
        """Connect to an address that the cluster returned.

        Raises:
            BrokerUnreachable, TlsFailed: the text says where the address is from: a wrong ``advertised.listeners`` is a
                common cause.
        """
        try:
            return self._connected(node.address)
        except (ConnectFailed, TlsFailed) as error:
            is_given = node.address in self.settings.bootstrap
            origin = "" if is_given else ", the address that the cluster gives for it"
            kind = TlsFailed if isinstance(error, TlsFailed) else BrokerUnreachable
            raise kind(f"broker {node.node_id}: {error}{origin}") from None

    # --- Another attempt ---

    @property
    def may_replace(self) -> bool:
        """Whether the cluster has brokers that may have the place of one that is lost."""
        return len(self._known_addresses) > 1

    @contextmanager
    def repeatable_request(self) -> Iterator[None]:
        """Limit the requests of the block to ``REQUEST_SECONDS`` in all, so that there is time for another attempt."""
        whole, self.deadline = self.deadline, self.deadline.within(REQUEST_SECONDS)
        try:
            yield
        finally:
            self.deadline = whole

    def attempt(self, ask: Callable[[], T], *, repeatable: bool = True) -> T:
        """Return what ``ask`` returns, and call it again after a retriable error until the deadline.

        ``repeatable`` says that the request is idempotent. For one that is not, a lost answer ends the attempts. A
        broker that cannot be reached is waited for, or for the one that gets its place, where there are several.

        Raises:
            ClientError: the last failure of ``ask``, when another attempt would not help or would come too late.
        """
        lost = count(1)

        def is_retriable(error: Exception) -> bool:
            match error:
                case Refused(code=code):
                    return code in RETRIED_BY_COMMANDS and (repeatable or code not in PERHAPS_DONE)
                # Nothing was sent, so even a request that is not idempotent may be repeated.
                case BrokerUnreachable() if self.may_replace:
                    return True
                case ConnectFailed():
                    return next(lost) < LOST_CONNECTIONS
                case ConnectionLost() | TimedOut():
                    return repeatable and next(lost) < LOST_CONNECTIONS
            return False

        def ask_within() -> T:
            with self.repeatable_request() if repeatable else nullcontext():
                return ask()

        try:
            # After any of these errors another broker may be the controller, leader or coordinator.
            return retry(ask_within, self.deadline, is_retriable, lambda _: self.forget())
        except ConnectionLost as error:
            if repeatable:
                raise
            raise ConnectionLost(f"{error}; whether it was done is not known") from None


def _coordinator(subject: str, response: FindCoordinatorResponse) -> Node:
    # Up to version 3 the one coordinator is in the response's own fields.
    if not response.coordinators:
        check(subject, response.error_code, response.error_message)
        return Node(response.node_id, Address(response.host, response.port))
    found = only(response.coordinators, subject)
    check(subject, found.error_code, found.error_message)
    return Node(found.node_id, Address(found.host, found.port))
