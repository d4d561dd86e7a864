"""One connection to one broker: versions are agreed on first, then one request at a time.

``ask`` sends a request and waits for its answer. ``begin`` and ``finish`` are its two halves, for callers
that have other work until the answer is here.

The first request is ApiVersions in the newest version we know. A broker that does not know that version answers in
version 0 and tells its own range for this one API, so the second attempt cannot fail (KIP-511). Afterwards each
request goes out in the newest version that both sides know.

Received bytes are validated: a size out of bounds, another correlation id, or bytes that do not decode close the
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
from trio_broker.client.address import Address
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
"""What Kafka takes as a request by default; the description of a hundred thousand partitions is a tenth of it. The
first four bytes of an HTTP or TLS answer, read as a size, are above it."""

MIN_RESPONSE_BYTES: Final = 4
"""A correlation id."""

CONNECT_SECONDS: Final = 10.0
"""The longest wait for one address to take a connection, as ``socket.connection.setup.timeout.ms``; an address that
swallows packets must not use up the time of the others."""

SYSTEMS_CHOICE: Final = -1
"""As a size of the socket's receive buffer: what the system takes, which grows it as it sees fit."""

SOFTWARE_NAME: Final = "trio-broker"
"""What the broker's statistics call us; letters, digits, dots and dashes (KIP-511)."""


@attrs.frozen
class Identity:
    """The client id of every request, and the version of the software."""

    client_id: str
    software_version: str


@attrs.frozen
class Pending(Generic[ResponseT]):
    """A request that was sent and not yet answered; only the connection that returned it can use it."""

    api_key: int
    version: int
    correlation_id: int
    response: type[ResponseT]


@attrs.frozen
class Feature:
    """A feature that a broker could run, from which version to which, and the version that the cluster runs.

    The cluster's is None where it runs none, or the broker does not know it.
    """

    name: str
    min_version: int
    max_version: int
    finalized_version: int | None


class BrokerConnection:
    """A connected socket on which the versions are agreed; not usable after any error.

    ``served`` has the versions of every API that the broker named, ``features`` those that it named, by name.
    """

    def __init__(self, address: Address, sock: socket.socket, identity: Identity) -> None:
        self.address = address
        self.served: Mapping[int, VersionRange] = {}
        self.features: tuple[Feature, ...] = ()
        self._socket = sock
        self._identity = identity
        self._correlation_id = 0
        self._pending: Pending[Any] | None = None
        self.is_usable = True

    @classmethod
    def open(
        cls, address: Address, identity: Identity, deadline: Deadline, *, receive_buffer_bytes: int = SYSTEMS_CHOICE
    ) -> BrokerConnection:
        """Connect and agree on versions. ``receive_buffer_bytes`` is the size of the socket's buffer.

        Raises:
            ConnectFailed: there is no such host, or the connection is refused.
            ConnectionLost, NotKafka, TimedOut, Refused: the first answer did not come, or is none of Kafka's.
        """
        connection = cls(address, _connect(address, deadline, receive_buffer_bytes), identity)
        try:
            connection._agree_on_versions(deadline)
        # KeyboardInterrupt too: nobody else has the socket yet.
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
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=self._identity.software_version
        )
        response = self._api_versions(request, ApiVersionsRequest.VERSIONS.high, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            ranges = _ranges(response)
            # Brokers before Kafka 2.4 name no API beside this error (KIP-511); version 0 is served by all.
            highest = ranges.get(ApiKey.API_VERSIONS, VersionRange(0, 0)).high
            response = self._api_versions(request, min(highest, ApiVersionsRequest.VERSIONS.high), deadline)
        check(f"{self.address}: ApiVersions", response.error_code)
        self.served = _ranges(response)
        self.features = _features(response)

    def _api_versions(self, request: ApiVersionsRequest, version: int, deadline: Deadline) -> ApiVersionsResponse:
        """Ask once; an answer that begins with UNSUPPORTED_VERSION is read as the version 0 that it is."""
        pending = self._send_request(request, ApiVersionsResponse, version, deadline)
        frame, position = self._receive_answer(pending, deadline, ReceiveBuffer(), MAX_RESPONSE_BYTES)
        code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        return self._decoded(ApiVersionsResponse, ApiKey.API_VERSIONS, version, frame, position)

    def version_for(self, kind: type[Request[Any]], *, at_least: int = 0, at_most: int = NEWEST) -> int:
        """Return the newest version of a request that both sides know, between the two bounds.

        Raises:
            VersionNotServed: there is none.
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
        """Whether there is a version of a request that both sides know."""
        served = self.served.get(kind.API_KEY, VersionRange(0, -1))
        return max(kind.VERSIONS.low, served.low) <= min(kind.VERSIONS.high, served.high)

    # --- Asking ---

    def ask(self, request: Request[ResponseT], deadline: Deadline, version: int | None = None) -> ResponseT:
        """Send a request, in the newest common version unless one is given, and return its response.

        Raises:
            VersionNotServed: there is no common version; nothing was sent.
            ClientError: a value does not fit into the request; nothing was sent.
            ConnectionLost: the connection ended before the answer was here.
            NotKafka: what came is not the answer.
            TimedOut: the deadline came first.
        """
        return self.finish(self.begin(request, deadline, version), deadline)

    def tell(self, request: Request[Any], deadline: Deadline, version: int) -> None:
        """Send a request that is not answered, as Produce with ``acks=0`` is.

        Raises:
            ClientError, ConnectionLost, TimedOut: as ``ask``.
        """
        self._send_request(request, type(request).RESPONSE, version, deadline)
        self._pending = None

    def begin(self, request: Request[ResponseT], deadline: Deadline, version: int | None = None) -> Pending[ResponseT]:
        """Send a request and return at once; ``finish`` has to be called before the next one.

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
        """Wait for the answer to what ``begin`` sent, and return it.

        With ``buffer`` the answer is received there, and records in it are good only as long as that memory is.
        ``max_bytes`` is the largest frame that is taken.

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
        self._correlation_id += 1
        pending = Pending(request.API_KEY, version, self._correlation_id, response)
        header = request_header(
            RequestHeader(pending.api_key, version, pending.correlation_id, self._identity.client_id)
        )
        try:
            chunks = cast("list[bytes]", encode(request, version))
        except ValueError as error:
            raise ClientError(f"{api_name(pending.api_key)} cannot be asked so: {error}") from None
        size = SIZE_PREFIX.pack(len(header) + sum(map(len, chunks)))
        with self._ends_with_errors(pending.api_key, deadline):
            # A chunk of its own is only what is large, records to be written: joining would copy them once more.
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
        """Close the connection after any error of the socket, and raise it as one of ours."""
        try:
            yield
        # Before OSError, whose subclass it is: the two are different errors to the caller.
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
            # Set before each call: a socket's timeout begins anew with every byte, and a broker that sends one a second
            # would never time out.
            self._socket.settimeout(_socket_seconds(deadline.remaining_seconds))
            received = self._socket.recv_into(rest)
            if not received:
                raise ConnectionError("the broker closed it")
            return received

        (size,) = SIZE_PREFIX.unpack(buffer.fill(SIZE_PREFIX.size, receive_into))
        if not MIN_RESPONSE_BYTES <= size <= max_bytes:
            raise WireError(f"a frame of {size} bytes; allowed are {MIN_RESPONSE_BYTES} to {max_bytes}")
        return buffer.fill(size, receive_into)


def _connect(address: Address, deadline: Deadline, receive_buffer_bytes: int) -> socket.socket:
    seconds = min(CONNECT_SECONDS, deadline.remaining_seconds)
    try:
        sock = socket.create_connection((address.host, address.port), _socket_seconds(seconds))
        # A request may be two writes. Nagle's algorithm would keep the second back until the broker acknowledges the
        # first, which systems delay by 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Not set unless asked for: any value ends the system's own growing of the buffer.
        if receive_buffer_bytes != SYSTEMS_CHOICE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    except TimeoutError:
        raise ConnectFailed(f"cannot connect to {address}: no answer within {seconds:.3g} s") from None
    # UnicodeError: a host that is no domain name. OverflowError: a port above 65535, as a broken broker may announce.
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConnectFailed(f"cannot connect to {address}: {_reason(error)}") from None
    return sock


def _socket_seconds(remaining: float) -> float:
    """Return a timeout that sockets take; zero would mean not to wait at all rather than that the time is over."""
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _reason(error: Exception) -> str:
    """Return the system's words without its number."""
    return getattr(error, "strerror", None) or str(error)


def _ranges(response: ApiVersionsResponse) -> dict[int, VersionRange]:
    return {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}


def _features(response: ApiVersionsResponse) -> tuple[Feature, ...]:
    # Below zero the broker does not know what the cluster runs (KIP-584).
    is_known = response.finalized_features_epoch >= 0
    finalized = {each.name: each.max_version_level for each in response.finalized_features if is_known}
    supported = sorted(response.supported_features, key=lambda each: each.name)
    return tuple(Feature(each.name, each.min_version, each.max_version, finalized.get(each.name)) for each in supported)
