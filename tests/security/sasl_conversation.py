"""A client and the broker's authenticator, frame by frame."""

from __future__ import annotations

from typing import Any

import attrs

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.sasl.scram import ScramCredential, ScramMechanism
from kafka_wire.schema import Request
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.sasl.failed_attempts import FailedAttempts
from trio_broker.security.sasl.plain import PlainSaslServer
from trio_broker.security.sasl.scram import ScramSaslServer
from trio_broker.security.sasl.server_authenticator import NewSaslServer, SaslLimits, SaslServerAuthenticator

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
SALT = b"salt"
SHA_256 = ScramMechanism.SHA_256
SERVER_NONCE = "server"


def credential_of(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    if user not in PASSWORDS:
        return None
    return mechanism.credential(mechanism.salted_password(PASSWORDS[user], SALT, 4096), SALT, 4096)


def scram_server(mechanism: ScramMechanism = SHA_256) -> ScramSaslServer:
    return ScramSaslServer(mechanism, credential_of, SERVER_NONCE, b"key")


def authenticator(clock: ManualClock, max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    mechanisms: dict[str, NewSaslServer] = {"PLAIN": lambda: PlainSaslServer(PASSWORDS), "SCRAM-SHA-256": scram_server}
    limits = SaslLimits(
        max_receive_bytes=1000,
        max_request_bytes=2000,
        failure_delay_seconds=0.1,
        max_reauth_ms=dict.fromkeys(mechanisms, max_reauth_ms),
    )
    return SaslServerAuthenticator(mechanisms, clock, limits, "10.0.0.1", FailedAttempts(clock))


@attrs.define
class Conversation:
    """Sends requests to an authenticator, and decodes its answers."""

    server: SaslServerAuthenticator

    def send(self, request: Request[Any], version: int) -> tuple[Any, Any]:
        """What the authenticator makes of a request, and its answer if there is one."""
        header = RequestHeader(request.API_KEY, version, 7, "client")
        step = self.server.receive(memoryview(request_header(header) + encode_bytes(request, version)))
        if step is None or step.answer is None:
            return step, None
        answer = b"".join(step.answer)
        correlation_id, position = read_response_header(request.API_KEY, version, answer)
        assert correlation_id == 7
        return step, decode(request.RESPONSE, version, answer, position)[0]

    def handshake(self, mechanism: str, version: int = 1) -> tuple[Any, Any]:
        return self.send(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes, version: int = 2) -> tuple[Any, Any]:
        return self.send(SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, user: str = "alice", password: str | None = None) -> tuple[Any, Any]:
        """By PLAIN."""
        self.handshake("PLAIN")
        return self.token(f"\0{user}\0{PASSWORDS[user] if password is None else password}".encode())
