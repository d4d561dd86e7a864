"""The client's half of a connection, without a socket: requests out, responses in, in the order of the requests.

It begins with the agreement on versions. The first request is ApiVersions in the newest version of this side. A broker
that does not have that version answers UNSUPPORTED_VERSION, always in version 0, and names the versions of ApiVersions
that it does have; the second request uses one of them (KIP-511). Where the broker wants a login, that comes next.
Afterwards a request can be sent in each version that both sides have, and several may be in flight: a broker answers
those of one connection in their order.

The caller sends the chunks that it gets, and hands in whole frames. After a ``WireError`` the connection is of no use.

Source: KIP-35, KIP-511; Kafka's NetworkClient, InFlightRequests and SaslClientAuthenticator.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import attrs

from kafka_wire.apis import ApiKey, api_name
from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.framing import frame
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.limits import INT32_MAX
from kafka_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafka_wire.primitives import ReadableBuffer
from kafka_wire.sasl.mechanisms import SaslClient
from kafka_wire.schema import NEWEST, NO_VERSIONS, Request, VersionRange

ResponseT = TypeVar("ResponseT")

ToSend: TypeAlias = list[ReadableBuffer]
"""The chunks of a request with its size, in the order in which they are sent."""

SESSION_SHARE: Final = 0.85
"""Of the lifetime of a login after which there should be another one, as in Kafka's clients."""

MAX_CORRELATION_ID: Final = INT32_MAX
"""The largest int32. After it they begin anew at 0, long after the answer to that one."""


@attrs.frozen
class InFlightRequest(Generic[ResponseT]):
    """A request that was sent and is not yet answered. It belongs to the connection that returned it."""

    api_key: int
    version: int
    correlation_id: int
    response: type[ResponseT]


class ApiNotServed(Exception):
    """Both sides have no version of an API in common; nothing was sent."""


class ClientConnection:
    """``served`` has the version range of each API of the broker, ``api_versions`` all that it said of itself.

    ``new_sasl_client`` makes what logs in, None at a listener without a login.
    """

    def __init__(
        self,
        client_id: str,
        software_name: str,
        software_version: str,
        new_sasl_client: Callable[[], SaslClient] | None = None,
    ) -> None:
        self.login_seconds = math.inf
        """How long after a login requests may follow, before it is time for another one."""
        self._new_sasl_client = new_sasl_client
        self._sasl_client: SaslClient | None = None
        self.served: Mapping[int, VersionRange] = {}
        self.api_versions: ApiVersionsResponse | None = None
        self.in_flight: deque[InFlightRequest[Any]] = deque()
        """Oldest first: the next frame is the answer to that one."""
        self._client_id = client_id
        self._software = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=software_version
        )
        self._correlation_id = 0

    # --- Versions ---

    def begin(self) -> ToSend:
        """Return what to send first; the answer is for ``receive_opening``."""
        return self.request(self._software, ApiVersionsRequest.VERSIONS.high)[1]

    def receive_api_versions(self, answer: ReadableBuffer) -> ToSend | None:
        """Take the first answer, or the second; return what to send for a second one, or None: versions are agreed on.

        Raises:
            KafkaError: the broker refuses.
            WireError: the frame is not the answer.
        """
        in_flight, position = self._answered(answer)
        # Every version begins with the error code, so it can be read before the version of the answer is known.
        code = int.from_bytes(answer[position : position + 2], "big", signed=True)
        is_refused = code == ErrorCode.UNSUPPORTED_VERSION
        response, _ = decode(ApiVersionsResponse, 0 if is_refused else in_flight.version, answer, position)
        ranges = {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}
        if is_refused and self._correlation_id == 1:
            # Brokers before Kafka 2.4 name no API beside this error. Version 0, which all brokers since 0.10 serve, is
            # then the fallback, as in Kafka's NetworkClient.handleApiVersionsResponse.
            highest = ranges.get(ApiKey.API_VERSIONS, VersionRange(0, 0)).high
            return self.request(self._software, min(highest, ApiVersionsRequest.VERSIONS.high))[1]
        if code != ErrorCode.NONE:
            raise KafkaError(code=_known_code(code))
        self.api_versions, self.served = response, ranges
        return None

    # --- Login ---

    def receive_opening(self, answer: ReadableBuffer) -> ToSend | None:
        """Take an answer before the first request, or within a later login; return what to send next, or None:
        requests may follow. May take tens of milliseconds.

        Raises:
            KafkaError: the broker refuses; the text is its reason for refusing the login.
            WireError: the frame is not the answer, or the broker does not know the password.
            ApiNotServed: it has no SaslAuthenticate.
        """
        if not self.in_flight or self.in_flight[0].api_key == ApiKey.API_VERSIONS:
            next_request = self.receive_api_versions(answer)
            return self.begin_login() if next_request is None and self._new_sasl_client is not None else next_request
        response = self.receive_response(answer)[1]
        assert self._sasl_client is not None, "a login has begun"
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code != ErrorCode.NONE:
                text = f"{self._sasl_client.mechanism} is none of its mechanisms, {', '.join(response.mechanisms)}"
                raise KafkaError(text, code=_known_code(response.error_code))
            return self._send_token(self._sasl_client.first_token())
        if not isinstance(response, SaslAuthenticateResponse):
            raise WireError("an answer to something else than the login")
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(response.error_message or "", code=_known_code(response.error_code))
        self.login_seconds = SESSION_SHARE * response.session_lifetime_ms / 1000 or math.inf
        token = self._sasl_client.evaluate(bytes(response.auth_bytes))
        return None if token is None else self._send_token(token)

    def begin_login(self) -> ToSend:
        """Return what to send first to log in, again if need be; the answer is for ``receive_opening``.

        Raises:
            ApiNotServed: the broker has no login.
        """
        assert self._new_sasl_client is not None, "there is something to log in with"
        self._sasl_client = self._new_sasl_client()
        # After version 0 the tokens would have no headers.
        version = self.version_for(SaslHandshakeRequest, at_least=1)
        return self.request(SaslHandshakeRequest(mechanism=self._sasl_client.mechanism), version)[1]

    def _send_token(self, token: bytes) -> ToSend:
        return self.request(SaslAuthenticateRequest(auth_bytes=token), self.version_for(SaslAuthenticateRequest))[1]

    def serves(self, kind: type[Request[Any]]) -> bool:
        """Whether both sides have a version of a request in common."""
        return bool(_common(kind.VERSIONS, self.served.get(kind.API_KEY, NO_VERSIONS)))

    def version_for(self, kind: type[Request[Any]], *, at_least: int = 0, at_most: int = NEWEST) -> int:
        """Return the newest version of a request that both sides have, between the two bounds.

        Raises:
            ApiNotServed: they have none in common; its text says what the broker has.
        """
        ours = _common(kind.VERSIONS, VersionRange(at_least, at_most))
        served = self.served.get(kind.API_KEY, NO_VERSIONS)
        if common := _common(ours, served):
            return common.high
        name = api_name(kind.API_KEY)
        raise ApiNotServed(
            f"serves {name} in versions {served}; versions {ours} are needed" if served else f"does not serve {name}"
        )

    # --- Requests out ---

    def request(self, message: Request[ResponseT], version: int) -> tuple[InFlightRequest[ResponseT], ToSend]:
        """Return a request that is in flight from now on, and what to send.

        Raises:
            ValueError: a value does not fit into the request; it is not in flight.
        """
        chunks = self.unanswered_request(message, version)
        in_flight = InFlightRequest(message.API_KEY, version, self._correlation_id, type(message).RESPONSE)
        self.in_flight.append(in_flight)
        return in_flight, chunks

    def unanswered_request(self, message: Request[Any], version: int) -> ToSend:
        """Return what to send of a request that the broker does not answer: Produce with ``acks=0``.

        Raises:
            ValueError: a value does not fit into the request.
        """
        # The body first: a request that cannot be encoded uses no correlation id.
        body = encode(message, version)
        self._correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        header = RequestHeader(message.API_KEY, version, self._correlation_id, self._client_id)
        return cast("ToSend", frame([request_header(header), *body]))

    # --- Responses in ---

    def receive_response(self, answer: ReadableBuffer) -> tuple[InFlightRequest[Any], Any]:
        """Take the frame of a response; return the request that it answers, and the response.

        Records in it are views of the frame.

        Raises:
            WireError: the frame is not the answer to the oldest request in flight.
        """
        in_flight, position = self._answered(answer)
        return in_flight, decode(in_flight.response, in_flight.version, answer, position)[0]

    def _answered(self, answer: ReadableBuffer) -> tuple[InFlightRequest[Any], int]:
        """Return which request a frame answers, and where the body begins in it."""
        if not self.in_flight:
            raise WireError("an answer to no request")
        in_flight = self.in_flight.popleft()
        correlation_id, position = read_response_header(in_flight.api_key, in_flight.version, answer)
        if correlation_id != in_flight.correlation_id:
            raise WireError(f"it answered request {correlation_id}, not {in_flight.correlation_id}")
        return in_flight, position


def _common(ours: VersionRange, theirs: VersionRange) -> VersionRange:
    return VersionRange(max(ours.low, theirs.low), min(ours.high, theirs.high))


def _known_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        raise WireError(f"error code {code}, which is none of Kafka's") from None
