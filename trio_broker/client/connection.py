"""One connection to one broker. It begins with the agreement on versions; then one request at a time is under way.

``ask`` sends a request and waits for its answer. ``begin`` and ``finish`` are its two halves, for callers
that have other work until the answer arrives. Each request is sent in the newest version that both sides have.

Received bytes are validated: a size out of bounds, another correlation id, or bytes that cannot be decoded close the
connection with ``NotKafka``. Memory for an answer grows with the received bytes, not with the announced size.

What is sent and how it is answered is ``kafka_wire``'s ``ClientConnection``; the socket and its deadlines are here.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs

from kafka_wire.apis import api_name
from kafka_wire.client_connection import ApiNotServed, ClientConnection, InFlightRequest, ToSend
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.framing import MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES, SIZE_PREFIX
from kafka_wire.messages.api_versions import ApiVersionsResponse
from kafka_wire.sasl.mechanisms import SaslCredentials
from kafka_wire.schema import NEWEST, Request, VersionRange
from trio_broker import SOFTWARE_NAME, __version__
from trio_broker.client.address import Address
from trio_broker.client.connection_settings import SYSTEMS_CHOICE, ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotKafka,
    Refused,
    TimedOut,
    TlsFailed,
    VersionNotServed,
)
from trio_broker.client.receive_buffer import ReceiveBuffer
from trio_broker.client.security import ClientSecurity
from trio_broker.runtime.timeouts import CONNECT_SECONDS
from trio_broker.security.tls_failure import failure_of_server, is_failure

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")


@attrs.frozen
class Feature:
    """A feature with the lowest and highest level that the broker supports, and the finalized level (KIP-584).

    ``finalized_version`` is None if the cluster has not enabled the feature, or the broker does not know the level.
    """

    name: str
    min_version: int
    max_version: int
    finalized_version: int | None


class BrokerConnection:
    """A connected socket whose peer has reported its versions; not usable after any error.

    ``features`` are the broker's, sorted by name.
    """

    def __init__(
        self, address: Address, sock: socket.socket, client_id: str, sasl: SaslCredentials | None = None
    ) -> None:
        self.address = address
        self.features: tuple[Feature, ...] = ()
        self._socket = sock
        new_sasl_client = None if sasl is None else partial(sasl.client, os.urandom)
        self._protocol = ClientConnection(client_id, SOFTWARE_NAME, __version__, new_sasl_client)
        self._login_due = math.inf
        self.is_usable = True

    @classmethod
    def open(cls, address: Address, settings: ConnectionSettings, deadline: Deadline) -> BrokerConnection:
        """Connect, agree on versions, and log in where that is asked for.

        Raises:
            ConnectFailed: there is no such host, the connection is refused, or ApiVersions was not answered.
            TlsFailed: the broker's certificate is refused, or it refuses this client's.
            NotKafka, Refused: ApiVersions was not answered as Kafka answers it, or the login was refused.
        """
        deadline = deadline.within(CONNECT_SECONDS)
        connection = cls(address, _connect(address, settings, deadline), settings.client_id, settings.security.sasl)
        try:
            connection._open(connection._protocol.begin(), deadline)
            connection.features = _features(connection._protocol.api_versions)
        except (ConnectionLost, TimedOut) as error:
            # Nothing but ApiVersions was sent: the caller's request can go to another broker, whatever it changes.
            raise ConnectFailed(str(error)) from None
        # KeyboardInterrupt too: no other object has the socket yet, so nothing else would close it.
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the socket; calling again does nothing."""
        self.is_usable = False
        self._socket.close()

    # --- Versions ---

    def _open(self, first: ToSend, deadline: Deadline) -> None:
        """Send what comes before requests, ``first`` first, until nothing more has to be said.

        Raises:
            Refused: the broker refuses.
            ConnectionLost, NotKafka, TimedOut: as ``ask``.
        """
        to_send: ToSend | None = first
        while to_send is not None:
            api_key = self._protocol.in_flight[0].api_key
            with self._ends_with_errors(api_key, deadline):
                self._send(to_send, deadline)
                answer = self._receive_frame(deadline, ReceiveBuffer(), MAX_RESPONSE_BYTES)
                try:
                    to_send = self._protocol.receive_opening(answer)
                except KafkaError as error:
                    raise Refused(f"{self.address}: {api_name(api_key)}", error.code, str(error)) from None
                except ApiNotServed as error:
                    raise VersionNotServed(f"{self.address} {error}") from None
        self._login_due = time.monotonic() + self._protocol.login_seconds

    @property
    def served(self) -> Mapping[int, VersionRange]:
        """The version range of each API that the broker serves."""
        return self._protocol.served

    def version_for(self, kind: type[Request[Any]], *, at_least: int = 0, at_most: int = NEWEST) -> int:
        """Return the newest version of a request that both sides have, between the two bounds.

        Raises:
            VersionNotServed: they have none in common.
        """
        try:
            return self._protocol.version_for(kind, at_least=at_least, at_most=at_most)
        except ApiNotServed as error:
            raise VersionNotServed(f"{self.address} {error}") from None

    def serves(self, kind: type[Request[Any]]) -> bool:
        """Whether both sides have a version of a request in common."""
        return self._protocol.serves(kind)

    # --- Asking ---

    def ask(self, request: Request[ResponseT], deadline: Deadline, version: int | None = None) -> ResponseT:
        """Send a request, in the newest common version unless one is given, and return its response.

        Raises:
            VersionNotServed: there is no common version; nothing was sent.
            ClientError: a value does not fit into the request; nothing was sent.
            ConnectionLost: the connection ended before the answer arrived.
            NotKafka: the received bytes are not the answer.
            TimedOut: the deadline passed before.
        """
        return self.finish(self.begin(request, deadline, version), deadline)

    def tell(self, request: Request[Any], deadline: Deadline, version: int) -> None:
        """Send a request that the broker does not answer: Produce with ``acks=0``.

        Raises:
            ClientError, ConnectionLost, TimedOut: as ``ask``.
        """
        self._require_idle()
        to_send = _encoded(request, lambda: self._protocol.unanswered_request(request, version))
        with self._ends_with_errors(request.API_KEY, deadline):
            self._send(to_send, deadline)

    def begin(
        self, request: Request[ResponseT], deadline: Deadline, version: int | None = None
    ) -> InFlightRequest[ResponseT]:
        """Send a request and return without waiting; ``finish`` has to be called before the next request.

        Raises:
            VersionNotServed, ClientError, ConnectionLost, TimedOut: as ``ask``.
        """
        if version is None:
            version = self.version_for(type(request))
        self._require_idle()
        if time.monotonic() >= self._login_due:
            self._open(self._protocol.begin_login(), deadline)
        in_flight, to_send = _encoded(request, lambda: self._protocol.request(request, version))
        with self._ends_with_errors(request.API_KEY, deadline):
            self._send(to_send, deadline)
        return in_flight

    def _require_idle(self) -> None:
        assert self.is_usable, f"the connection to {self.address} was used after an error"
        assert not self._protocol.in_flight, f"{self._protocol.in_flight[0]} of {self.address} was not finished"

    def finish(
        self,
        in_flight: InFlightRequest[ResponseT],
        deadline: Deadline,
        *,
        buffer: ReceiveBuffer | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> ResponseT:
        """Wait for the answer to the request that ``begin`` sent, and return it.

        The answer is received into ``buffer`` if one is given; records in it are then valid until the buffer is used
        again. ``max_bytes`` is the size of the largest frame that is accepted.

        Raises:
            ConnectionLost, NotKafka, TimedOut: as ``ask``.
        """
        assert list(self._protocol.in_flight) == [in_flight], f"{in_flight} is not what {self.address} was asked"
        with self._ends_with_errors(in_flight.api_key, deadline):
            frame = self._receive_frame(deadline, buffer or ReceiveBuffer(), max_bytes)
            response: ResponseT = self._protocol.receive_response(frame)[1]
        return response

    @contextlib.contextmanager
    def _ends_with_errors(self, api_key: int, deadline: Deadline) -> Iterator[None]:
        """Close the connection after any error of the socket, and raise it as a ``ClientError``."""
        try:
            yield
        # Before OSError, of which TimeoutError is a subclass: the caller distinguishes the two.
        except TimeoutError:
            self.close()
            waited = f"within {deadline.timeout_seconds:.3g} s"
            raise TimedOut(f"{self.address} did not answer {api_name(api_key)} {waited}") from None
        except OSError as error:
            self.close()
            if is_failure(error):
                raise TlsFailed(f"no TLS with {self.address}: {failure_of_server(error)}") from None
            raise ConnectionLost(
                f"the connection to {self.address} ended while it was asked for {api_name(api_key)}:"
                f" {_reason(error)}{self._hint}"
            ) from None
        except WireError as error:
            self.close()
            raise self._not_kafka(api_key, error) from None

    def _not_kafka(self, api_key: int, why: object) -> NotKafka:
        return NotKafka(
            f"{self.address} answered {api_name(api_key)} with something else than Kafka's bytes{self._hint}: {why}"
        )

    @property
    def _hint(self) -> str:
        """What is often the cause where a server does not answer the first request as Kafka."""
        if self.served:
            return ""
        if isinstance(self._socket, ssl.SSLSocket):
            return " (no Kafka broker)"
        return " (no Kafka broker, or a listener that wants TLS: security.protocol=SSL or SASL_SSL)"

    # --- Bytes ---

    def _send(self, chunks: ToSend, deadline: Deadline) -> None:
        for chunk in chunks:
            self._socket.settimeout(_socket_seconds(deadline.remaining_seconds))
            self._socket.sendall(chunk)

    def _receive_frame(self, deadline: Deadline, buffer: ReceiveBuffer, max_bytes: int) -> memoryview:
        def receive_into(rest: memoryview) -> int:
            # Set before each call: a socket's timeout counts from the last received byte, so a broker that sends one
            # byte a second would never reach it.
            self._socket.settimeout(_socket_seconds(deadline.remaining_seconds))
            received = self._socket.recv_into(rest)
            if not received:
                raise ConnectionError("the broker closed it")
            return received

        (size,) = SIZE_PREFIX.unpack(buffer.fill(SIZE_PREFIX.size, receive_into))
        if not MIN_RESPONSE_BYTES <= size <= max_bytes:
            raise WireError(f"a frame of {size} bytes; allowed are {MIN_RESPONSE_BYTES} to {max_bytes}")
        return buffer.fill(size, receive_into)


def _connect(address: Address, settings: ConnectionSettings, deadline: Deadline) -> socket.socket:
    seconds = deadline.remaining_seconds
    try:
        sock = socket.create_connection((address.host, address.port), _socket_seconds(seconds))
        # A request may be two writes. Nagle's algorithm would hold the second until the broker's system has
        # acknowledged the first, and systems delay acknowledgements by 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Not set by default: with any explicit value the system stops adapting the buffer to the traffic.
        if settings.receive_buffer_bytes != SYSTEMS_CHOICE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        sock.settimeout(_socket_seconds(deadline.remaining_seconds))
    except TimeoutError:
        raise ConnectFailed(f"cannot connect to {address}: no answer within {seconds:.3g} s") from None
    # UnicodeError: a host that is no domain name. OverflowError: a port above 65535, as a broken broker may announce.
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConnectFailed(f"cannot connect to {address}: {_reason(error)}") from None
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(sock.close)
        secured = _secured(sock, address, settings.security)
        cleanup.pop_all()
        return secured


def _secured(sock: socket.socket, address: Address, security: ClientSecurity) -> socket.socket:
    try:
        return security.secured(sock, address.host)
    except TimeoutError:
        raise ConnectFailed(f"cannot connect to {address}: the TLS handshake was not answered") from None
    except OSError as error:
        if is_failure(error):
            raise TlsFailed(f"no TLS with {address}: {failure_of_server(error)}") from None
        why = f"{_reason(error)} in the TLS handshake (a listener without TLS?)"
        raise ConnectFailed(f"cannot connect to {address}: {why}") from None
    except ValueError as error:
        raise TlsFailed(f"no TLS with {address}: {error}") from None


def _encoded(request: Request[Any], encode: Callable[[], T]) -> T:
    """Return what ``encode`` makes of a request.

    Raises:
        ClientError: a value does not fit into it; nothing was sent, and the connection goes on.
    """
    try:
        return encode()
    except ValueError as error:
        raise ClientError(f"{api_name(request.API_KEY)} cannot be asked so: {error}") from None


def _socket_seconds(remaining: float) -> float:
    """Return ``remaining`` as a socket's timeout.

    Raises:
        TimeoutError: no time is left. A socket takes 0 as non-blocking, and would report that as another error.
    """
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _reason(error: Exception) -> str:
    """Return the system's text for an error, without the error number."""
    if isinstance(error, ssl.SSLError):
        return failure_of_server(error)
    return getattr(error, "strerror", None) or str(error)


def _features(response: ApiVersionsResponse | None) -> tuple[Feature, ...]:
    assert response is not None, "versions are agreed on"
    # An epoch of -1 says that the broker does not know the finalized features (KIP-584).
    is_known = response.finalized_features_epoch >= 0
    finalized = {each.name: each.max_version_level for each in response.finalized_features if is_known}
    supported = sorted(response.supported_features, key=lambda each: each.name)
    return tuple(Feature(each.name, each.min_version, each.max_version, finalized.get(each.name)) for each in supported)
