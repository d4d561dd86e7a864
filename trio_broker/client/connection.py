"""One connection to one broker. It begins with the agreement on versions; then one request at a time is under way.

``ask`` sends a request and waits for its answer. ``begin`` and ``finish`` are its two halves, for callers
that have other work until the answer arrives.

The first request is ApiVersions in the newest version that this client has. A broker that does not have that version
answers UNSUPPORTED_VERSION, always in version 0, and names the versions of ApiVersions that it does have; the second
request uses one of them (KIP-511). Afterwards each request is sent in the newest version that both sides have.

Received bytes are validated: a size out of bounds, another correlation id, or bytes that cannot be decoded close the
connection with ``NotKafka``. Memory for an answer grows with the received bytes, not with the announced size.

Source: KIP-35, KIP-511; Kafka's NetworkClient.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, cast

import attrs

from kafka_wire.apis import ApiKey, api_name
from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.framing import SIZE_PREFIX
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.schema import NEWEST, Request, VersionRange
from trio_broker import __version__
from trio_broker.client.address import Address
from trio_broker.client.connection_settings import SYSTEMS_CHOICE, ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotKafka,
    TimedOut,
    VersionNotServed,
    check,
)
from trio_broker.client.receive_buffer import ReceiveBuffer

ResponseT = TypeVar("ResponseT")

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""The default of ``socket.request.max.bytes``, Kafka's limit for requests. The Metadata of 100,000 partitions takes a
tenth of it. The first four bytes of an HTTP or TLS answer, read as a size, exceed it, so such a peer is recognised."""

MIN_RESPONSE_BYTES: Final = 4
"""A correlation id."""

MAX_CORRELATION_ID: Final = 2**31 - 1
"""The largest int32. After it they begin anew at 0, long after the answer to that one."""

CONNECT_SECONDS: Final = 10.0
"""The longest wait for one address to accept a connection, Kafka's default of ``socket.connection.setup.timeout.ms``.
An address that drops packets silently must leave time for the next address."""

SOFTWARE_NAME: Final = "trio-broker"
"""The name under which brokers count this client. Only letters, digits, dots and dashes are allowed (KIP-511)."""


@attrs.frozen
class Pending(Generic[ResponseT]):
    """A request that was sent and is not yet answered. It belongs to the connection that returned it."""

    api_key: int
    version: int
    correlation_id: int
    response: type[ResponseT]


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

    ``served`` has the version range of each API that the broker serves, ``features`` its features sorted by name.
    """

    def __init__(self, address: Address, sock: socket.socket, client_id: str) -> None:
        self.address = address
        self.served: Mapping[int, VersionRange] = {}
        self.features: tuple[Feature, ...] = ()
        self._socket = sock
        self._client_id = client_id
        self._correlation_id = 0
        self._pending: Pending[Any] | None = None
        self.is_usable = True

    @classmethod
    def open(cls, address: Address, settings: ConnectionSettings, deadline: Deadline) -> BrokerConnection:
        """Connect and agree on versions.

        Raises:
            ConnectFailed: there is no such host, or the connection is refused.
            ConnectionLost, NotKafka, TimedOut, Refused: ApiVersions was not answered, or not as Kafka answers it.
        """
        connection = cls(address, _connect(address, settings, deadline), settings.client_id)
        try:
            connection._agree_on_versions(deadline)
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

    def _agree_on_versions(self, deadline: Deadline) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response = self._api_versions(request, ApiVersionsRequest.VERSIONS.high, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            ranges = _ranges(response)
            # Brokers before Kafka 2.4 name no API beside this error. Version 0, which all brokers since 0.10 serve, is
            # then the fallback, as in Kafka's NetworkClient.handleApiVersionsResponse.
            highest = ranges.get(ApiKey.API_VERSIONS, VersionRange(0, 0)).high
            response = self._api_versions(request, min(highest, ApiVersionsRequest.VERSIONS.high), deadline)
        check(f"{self.address}: ApiVersions", response.error_code)
        self.served = _ranges(response)
        self.features = _features(response)

    def _api_versions(self, request: ApiVersionsRequest, version: int, deadline: Deadline) -> ApiVersionsResponse:
        """Send ApiVersions once and decode the answer, which is in version 0 if it begins with UNSUPPORTED_VERSION."""
        pending = self._send_request(request, ApiVersionsResponse, version, deadline)
        frame, position = self._receive_answer(pending, deadline, ReceiveBuffer(), MAX_RESPONSE_BYTES)
        # Every version begins with the error code, so it can be read before the version of the answer is known.
        code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        return self._decoded(ApiVersionsResponse, ApiKey.API_VERSIONS, version, frame, position)

    def version_for(self, kind: type[Request[Any]], *, at_least: int = 0, at_most: int = NEWEST) -> int:
        """Return the newest version of a request that both sides have, between the two bounds.

        Raises:
            VersionNotServed: they have none in common.
        """
        ours = VersionRange(max(kind.VERSIONS.low, at_least), min(kind.VERSIONS.high, at_most))
        served = self.served.get(kind.API_KEY, VersionRange(0, -1))
        version = min(ours.high, served.high)
        if version < max(ours.low, served.low):
            raise VersionNotServed(
                f"{self.address} serves {api_name(kind.API_KEY)} in versions {served}; versions {ours} are needed"
                if served
                else f"{self.address} does not serve {api_name(kind.API_KEY)}"
            )
        return version

    def serves(self, kind: type[Request[Any]]) -> bool:
        """Whether both sides have a version of a request in common."""
        served = self.served.get(kind.API_KEY, VersionRange(0, -1))
        return max(kind.VERSIONS.low, served.low) <= min(kind.VERSIONS.high, served.high)

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
        self._send_request(request, type(request).RESPONSE, version, deadline)
        self._pending = None

    def begin(self, request: Request[ResponseT], deadline: Deadline, version: int | None = None) -> Pending[ResponseT]:
        """Send a request and return without waiting; ``finish`` has to be called before the next request.

        Raises:
            VersionNotServed, ClientError, ConnectionLost, TimedOut: as ``ask``.
        """
        if version is None:
            version = self.version_for(type(request))
        return self._send_request(request, type(request).RESPONSE, version, deadline)

    def finish(
        self,
        pending: Pending[ResponseT],
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
        frame, position = self._receive_answer(pending, deadline, buffer or ReceiveBuffer(), max_bytes)
        return self._decoded(pending.response, pending.api_key, pending.version, frame, position)

    def _send_request(
        self, request: Request[Any], response: type[Any], version: int, deadline: Deadline
    ) -> Pending[Any]:
        assert self.is_usable, f"the connection to {self.address} was used after an error"
        assert self._pending is None, f"{self._pending} of {self.address} was not finished"
        self._correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        pending = Pending(request.API_KEY, version, self._correlation_id, response)
        header = request_header(RequestHeader(pending.api_key, version, pending.correlation_id, self._client_id))
        try:
            chunks = cast("list[bytes]", encode(request, version))
        except ValueError as error:
            raise ClientError(f"{api_name(pending.api_key)} cannot be asked so: {error}") from None
        size = SIZE_PREFIX.pack(len(header) + sum(map(len, chunks)))
        with self._ends_with_errors(pending.api_key, deadline):
            # Only the records of a Produce are chunks of their own: to join them with the rest would copy them again.
            # All that is before them is sent by one write, as one packet.
            self._send(b"".join((size, header, *chunks[:1])), deadline)
            for chunk in chunks[1:]:
                self._send(chunk, deadline)
        self._pending = pending
        return pending

    def _receive_answer(
        self, pending: Pending[Any], deadline: Deadline, buffer: ReceiveBuffer, max_bytes: int
    ) -> tuple[memoryview, int]:
        """Return the frame of an answer, and where the body begins in it."""
        assert pending is self._pending, f"{pending} is not what {self.address} was asked, which is {self._pending}"
        self._pending = None
        with self._ends_with_errors(pending.api_key, deadline):
            frame = self._receive_frame(deadline, buffer, max_bytes)
        return frame, self._body_position(pending, frame)

    @contextlib.contextmanager
    def _ends_with_errors(self, api_key: int, deadline: Deadline) -> Iterator[None]:
        """Close the connection after any error of the socket, and raise it as a ``ClientError``."""
        try:
            yield
        # Before OSError, of which TimeoutError is a subclass: the caller distinguishes the two.
        except TimeoutError:
            self.close()
            waited = f"within {deadline.timeout_seconds:g} s"
            raise TimedOut(f"{self.address} did not answer {api_name(api_key)} {waited}") from None
        except OSError as error:
            self.close()
            raise ConnectionLost(
                f"the connection to {self.address} ended while it was asked for {api_name(api_key)}: {_reason(error)}"
            ) from None
        except WireError as error:
            self.close()
            raise self._not_kafka(api_key, error) from None

    def _body_position(self, pending: Pending[Any], frame: memoryview) -> int:
        """Return where the body of an answer begins, once it is known to be the answer to this request."""
        try:
            correlation_id, position = read_response_header(pending.api_key, pending.version, frame)
        # IndexError: the tagged fields of a flexible header reach past the end of the frame.
        except (WireError, IndexError) as error:
            self.close()
            raise self._not_kafka(pending.api_key, error) from None
        if correlation_id != pending.correlation_id:
            self.close()
            why = f"it answered request {correlation_id}, not {pending.correlation_id}"
            raise self._not_kafka(pending.api_key, why)
        return position

    def _decoded(
        self, kind: type[ResponseT], api_key: int, version: int, frame: memoryview, position: int
    ) -> ResponseT:
        try:
            return decode(kind, version, frame, position)[0]
        except WireError as error:
            self.close()
            raise self._not_kafka(api_key, error) from None

    def _not_kafka(self, api_key: int, why: object) -> NotKafka:
        hint = "" if self.served else " (no Kafka broker, or a listener that wants TLS)"
        return NotKafka(
            f"{self.address} answered {api_name(api_key)} with something else than Kafka's bytes{hint}: {why}"
        )

    # --- Bytes ---

    def _send(self, data: bytes, deadline: Deadline) -> None:
        self._socket.settimeout(_socket_seconds(deadline.remaining_seconds))
        self._socket.sendall(data)

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
    seconds = min(CONNECT_SECONDS, deadline.remaining_seconds)
    try:
        sock = socket.create_connection((address.host, address.port), _socket_seconds(seconds))
        # A request may be two writes. Nagle's algorithm would hold the second until the broker's system has
        # acknowledged the first, and systems delay acknowledgements by 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Not set by default: with any explicit value the system stops adapting the buffer to the traffic.
        if settings.receive_buffer_bytes != SYSTEMS_CHOICE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        return settings.security.secured(sock, address.host)
    except TimeoutError:
        raise ConnectFailed(f"cannot connect to {address}: no answer within {seconds:.3g} s") from None
    # UnicodeError: a host that is no domain name. OverflowError: a port above 65535, as a broken broker may announce.
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConnectFailed(f"cannot connect to {address}: {_reason(error)}") from None


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
    return getattr(error, "strerror", None) or str(error)


def _ranges(response: ApiVersionsResponse) -> dict[int, VersionRange]:
    return {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}


def _features(response: ApiVersionsResponse) -> tuple[Feature, ...]:
    # An epoch of -1 says that the broker does not know the finalized features (KIP-584).
    is_known = response.finalized_features_epoch >= 0
    finalized = {each.name: each.max_version_level for each in response.finalized_features if is_known}
    supported = sorted(response.supported_features, key=lambda each: each.name)
    return tuple(Feature(each.name, each.min_version, each.max_version, finalized.get(each.name)) for each in supported)
