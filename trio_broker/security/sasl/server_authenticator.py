"""The authentication of one connection: a frame in, and what is to be done with it out. Knows no socket.

    HANDSHAKE ── SaslHandshake ──▶ AUTHENTICATE ── tokens ──▶ COMPLETE ── SaslHandshake ──▶ AUTHENTICATE …
        │ ApiVersions is answered                     │
        └────────── anything else ──▶ FAILED ◀────────┘

Before a client is authenticated it may ask for its versions, choose a mechanism, and send that mechanism's tokens: in
SaslAuthenticate, or behind a handshake of version 0 as they are. Whatever else it sends ends the connection. A client
whose session has an end authenticates again on the same connection, by the same mechanism and as the same user
(KIP-368); its first request after the end of the session closes the connection.

Promise: no frame raises anything, and none is answered with more than Kafka would.

Source: Kafka's SaslServerAuthenticator; Processor.processCompletedReceives for sessions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from kafka_wire.apis import ApiKey, api_name
from kafka_wire.codec import decode, encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.framing import MIN_REQUEST_BYTES
from kafka_wire.headers import RequestHeader, read_request_header, response_header
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from trio_broker.config.errors import ConfigError
from trio_broker.runtime.clock import Clock
from trio_broker.security.sasl.failed_attempts import FailedAttempts
from trio_broker.security.sasl.sasl_server import Identity, SaslFailure, SaslServer

MIN_REAUTHENTICATION_SECONDS: Final = 1.0
"""Between two authentications of one connection, as in Kafka; an earlier one is answered as out of place."""

_SASL_HANDSHAKE_KEY: Final = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")

NewSaslServer = Callable[[], SaslServer]
"""Raises ConfigError where nobody can log in by the settings, which may have changed."""


class SaslState(enum.Enum):
    """What is expected of the client."""

    HANDSHAKE = enum.auto()
    """ApiVersions, or the choice of a mechanism."""
    AUTHENTICATE = enum.auto()
    """A token."""
    COMPLETE = enum.auto()
    """Requests."""
    FAILED = enum.auto()
    """Nothing more."""


@attrs.frozen
class SaslStep:
    """What comes of a frame of the authenticator's: ``answer`` is for the client, with a header and without its size.

    ``user`` is who the client has proved to be, ``by_token`` whether with a delegation token; ``failure`` is why its
    connection ends, behind the answer if there is one. User and failure are None while the exchange goes on.
    """

    header: RequestHeader
    answer: Sequence[bytes] | None
    user: str | None = None
    failure: str | None = None
    by_token: bool = False


@attrs.frozen(kw_only=True)
class SaslLimits:
    """The bounds of one connection.

    ``max_receive_bytes`` is the largest frame before the client has logged in, ``max_request_bytes`` the largest after
    that. ``failure_delay_seconds`` is what a client that has failed waits for the answer. ``max_reauth_ms`` is how long
    a session may last before its client has to log in again, by mechanism; 0 for no limit.
    """

    max_receive_bytes: int
    max_request_bytes: int
    failure_delay_seconds: float
    max_reauth_ms: Mapping[str, int]


@attrs.define(eq=False)
class SaslServerAuthenticator:
    """``mechanisms`` makes the server of each that the listener has, by name; ``attempts`` has the failures of all
    clients, and of this one's ``host``."""

    mechanisms: Mapping[str, NewSaslServer]
    clock: Clock
    limits: SaslLimits
    host: str
    attempts: FailedAttempts
    state: SaslState = SaslState.HANDSHAKE
    session_ends: float | None = None
    """Of ``Clock.monotonic``; None for a session without an end."""
    mechanism: str = ""
    _user: str | None = None
    _server: SaslServer | None = None
    _has_headers: bool = False
    """Whether tokens travel in SaslAuthenticate."""
    _header: RequestHeader = attrs.field(factory=lambda: RequestHeader(ApiKey.SASL_AUTHENTICATE, 0, 0, None))
    """Of the latest request, for tokens without one."""
    _refusal: str = ""
    """Why the credential of this authentication was refused, before the client has acknowledged it."""
    _began: float = 0.0
    """When the latest authentication began."""

    @property
    def min_frame_bytes(self) -> int:
        """The size of the smallest frame that may come next: a token without a header may be empty."""
        return 0 if self.state is SaslState.AUTHENTICATE and not self._has_headers else MIN_REQUEST_BYTES

    @property
    def max_frame_bytes(self) -> int:
        """The size of the largest frame that may come next."""
        return self.limits.max_request_bytes if self.is_authenticated else self.limits.max_receive_bytes

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has ever been: what it sent before that is bounded more closely."""
        return self._user is not None

    def receive(self, frame: memoryview) -> SaslStep | None:
        """Take a frame; None if it is a request that is handled as any other."""
        if self.state is SaslState.COMPLETE:
            return self._after_authentication(frame)
        try:
            return self._receive(frame)
        except WireError as error:
            return self._failed(f"not Kafka's protocol during {self._attempt}: {error}")

    # --- Requests ---

    def _after_authentication(self, frame: memoryview) -> SaslStep | None:
        now = self.clock.monotonic()
        if frame[:2] == _SASL_HANDSHAKE_KEY and now - self._began >= MIN_REAUTHENTICATION_SECONDS:
            self.state = SaslState.HANDSHAKE
            return self.receive(frame)
        if self.session_ends is not None and now > self.session_ends:
            return self._failed("the session has expired, and its client did not authenticate again")
        return None

    def _receive(self, frame: memoryview) -> SaslStep | None:
        if self.state is SaslState.AUTHENTICATE and not self._has_headers:
            return self._evaluate(bytes(frame), 0)
        header, position = read_request_header(frame)
        self._header = header
        if self.state is SaslState.HANDSHAKE:
            if header.api_key == ApiKey.API_VERSIONS and not self.is_authenticated:
                return None
            if header.api_key == ApiKey.SASL_HANDSHAKE:
                return self._choose_mechanism(decode(SaslHandshakeRequest, header.api_version, frame, position)[0])
        elif self.state is SaslState.AUTHENTICATE and header.api_key == ApiKey.SASL_AUTHENTICATE:
            request = decode(SaslAuthenticateRequest, header.api_version, frame, position)[0]
            return self._evaluate(bytes(request.auth_bytes), header.api_version)
        # Some clients take a refusal for a success.
        why = f", behind a refusal: {self._refusal}" if self._refusal else ""
        return self._failed(f"unexpected {api_name(header.api_key)} request during {self._attempt}{why}")

    def _choose_mechanism(self, request: SaslHandshakeRequest) -> SaslStep:
        mechanism, names = request.mechanism, list(self.mechanisms)
        if mechanism not in self.mechanisms:
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            return self._failed(f"Unsupported SASL mechanism {mechanism[:100]!r}", self._encoded(refusal))
        self._began, self._refusal = self.clock.monotonic(), ""
        try:
            self._server = self.mechanisms[mechanism]()
        except ConfigError as error:
            return self._failed(str(error))
        if self.is_authenticated and mechanism != self.mechanism:
            self._server = _OtherMechanism(mechanism, self.mechanism)
        self.mechanism = mechanism
        self._has_headers = self._header.api_version >= 1
        self.state = SaslState.AUTHENTICATE
        return SaslStep(self._header, self._encoded(SaslHandshakeResponse(mechanisms=names)))

    # --- Tokens ---

    def _evaluate(self, token: bytes, version: int) -> SaslStep:
        assert self._server is not None, "a mechanism was chosen"
        try:
            if self.attempts.is_exhausted(self.host):
                text = "Authentication failed: too many failed attempts"
                raise SaslFailure(text, for_client=text)
            evaluation = self._server.evaluate(token)
            identity = evaluation.identity
            if identity is not None:
                self._require_same_user(identity.user)
        except SaslFailure as failure:
            if not self._refusal:
                self.attempts.note(self.host)
            return self._refused(failure)
        if evaluation.refusal:
            self._refusal = evaluation.refusal
            self.attempts.note(self.host)
        lifetime_ms = 0 if identity is None else self._begin_session(identity)
        if not self._has_headers:
            answer: Sequence[bytes] = [evaluation.token]
        else:
            answer = self._encoded(
                SaslAuthenticateResponse(
                    error_message=None, auth_bytes=evaluation.token, session_lifetime_ms=lifetime_ms
                )
            )
        if identity is None:
            return SaslStep(self._header, answer)
        return SaslStep(self._header, answer, identity.user, by_token=identity.by_token)

    def _require_same_user(self, user: str) -> None:
        if self._user not in (None, user):
            for_client = f"Cannot change principals during re-authentication from User.{self._user}: User.{user}"
            raise SaslFailure(for_client, for_client=for_client)

    def _begin_session(self, identity: Identity) -> int:
        """Complete the authentication; return how long the session lasts, in milliseconds, 0 for no end."""
        max_reauth_ms = self.limits.max_reauth_ms.get(self.mechanism, 0)
        ends = [max_reauth_ms] if max_reauth_ms > 0 else []
        if identity.expires_at_ms is not None:
            ends.append(max(0, identity.expires_at_ms - self.clock.now_ms()))
        self.state, self._user, self._server = SaslState.COMPLETE, identity.user, None
        self.session_ends = self.clock.monotonic() + min(ends) / 1000 if ends else None
        return min(ends, default=0)

    def _refused(self, failure: SaslFailure) -> SaslStep:
        reason = f"{failure} ({self.mechanism}, {self._attempt})"
        if not self._has_headers:
            return self._failed(reason)
        for_client = failure.for_client
        if for_client is None:
            for_client = (
                f"Authentication failed during {self._attempt} due to invalid credentials with SASL mechanism"
                f" {self.mechanism}"
            )
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        refusal = SaslAuthenticateResponse(error_code=code, error_message=for_client, auth_bytes=b"")
        return self._failed(reason, self._encoded(refusal))

    def _failed(self, reason: str, answer: Sequence[bytes] | None = None) -> SaslStep:
        self.state, self._server = SaslState.FAILED, None
        return SaslStep(self._header, answer, failure=reason)

    @property
    def _attempt(self) -> str:
        """As Kafka calls it."""
        return "re-authentication" if self.is_authenticated else "authentication"

    def _encoded(self, response: Any) -> list[bytes]:
        header = self._header
        prefix = response_header(header.api_key, header.api_version, header.correlation_id)
        return [prefix, encode_bytes(response, header.api_version)]


@attrs.frozen
class _OtherMechanism:
    """Refuses a client that authenticates again by another mechanism, at its first token, as Kafka does."""

    requested: str
    previous: str

    def evaluate(self, token: bytes) -> Any:
        for_client = (
            f"SASL mechanism '{self.requested}' requested by client is not supported for re-authentication of mechanism"
            f" '{self.previous}'"
        )
        raise SaslFailure(for_client, for_client=for_client)
