"""The client's half of each mechanism: the tokens that it sends, without any I/O.

``first_token`` begins, ``evaluate`` answers what the server sends. A mechanism is complete when the server has proved
what it has to, which for SCRAM is that it knows the password too.

Source: Kafka's PlainSaslClient, ScramSaslClient and OAuthBearerSaslClient; RFC 4616, 5802, 7628.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from typing import Protocol

import attrs

from kafka_wire.errors import WireError
from kafka_wire.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    TOKEN_AUTHENTICATION,
    ScramMechanism,
    ServerFirst,
    escaped,
    nonce_of,
    server_signature_of,
    xor,
)


class SaslClient(Protocol):
    """One authentication of a client; the next one has another."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""
        ...

    def first_token(self) -> bytes: ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the next token for the server, None when nothing more is to be sent. May take tens of milliseconds.

        Raises:
            WireError: the challenge is not the mechanism's, or the server does not know the password.
        """
        ...


class PlainSaslClient:
    """PLAIN: name and password as they are."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token = b"\0".join((b"", user.encode(), password.encode()))

    def first_token(self) -> bytes:
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:
        return None


class OAuthBearerSaslClient:
    """OAUTHBEARER: a token of another authority."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._token = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def first_token(self) -> bytes:
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:
        # An error of the server as JSON, which wants to be acknowledged before it refuses (RFC 7628, 3.2.3).
        return b"\x01" if challenge else None


class ScramSaslClient:
    """SCRAM: both sides prove that they know the password. ``nonce`` is of ``nonce_of``, another for each.

    With ``is_token`` the name and the password are those of a delegation token: its id, and its HMAC in base64.
    """

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.mechanism = mechanism.value
        self._scram = mechanism
        self._password = password
        self._nonce = nonce
        extension = f",{TOKEN_AUTHENTICATION}=true" if is_token else ""
        self._bare = f"n={escaped(user)},r={self._nonce}{extension}"
        self._expected_signature: bytes | None = None

    def first_token(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._expected_signature is not None:
            if not hmac.compare_digest(server_signature_of(challenge), self._expected_signature):
                raise WireError("the server does not know the password either")
            return None
        return self._final_token(ServerFirst.parse(challenge))

    def _final_token(self, first: ServerFirst) -> bytes:
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise WireError("the server's nonce does not continue the client's")
        if not MIN_ITERATIONS <= first.iterations <= MAX_ITERATIONS:
            raise WireError(f"{first.iterations} iterations; allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        scram = self._scram
        salted_password = scram.salted_password(self._password, first.salt, first.iterations)
        signed = f"c=biws,r={first.nonce}"
        auth_message = ",".join((self._bare, first.text, signed)).encode()
        client_key = scram.client_key(salted_password)
        proof = xor(client_key, scram.hmac(scram.hash(client_key), auth_message))
        self._expected_signature = scram.hmac(scram.server_key(salted_password), auth_message)
        return f"{signed},p={b64encode(proof).decode()}".encode()


@attrs.frozen
class SaslCredentials:
    """By which mechanism a client authenticates, and as whom; ``secret`` is a password, or the token of OAUTHBEARER.
    ``is_token`` says that both are of a delegation token, which SCRAM takes."""

    mechanism: str
    user: str
    secret: str = attrs.field(repr=False)
    is_token: bool = False

    def client(self, random_bytes: Callable[[int], bytes]) -> SaslClient:
        """Return the client of one authentication, whose nonce is of ``random_bytes``.

        Raises:
            ValueError: there is no such mechanism.
        """
        if self.mechanism == PlainSaslClient.mechanism:
            return PlainSaslClient(self.user, self.secret)
        if self.mechanism == OAuthBearerSaslClient.mechanism:
            return OAuthBearerSaslClient(self.secret)
        nonce = nonce_of(random_bytes)
        return ScramSaslClient(ScramMechanism(self.mechanism), self.user, self.secret, nonce, is_token=self.is_token)
