"""SCRAM: client and server prove to each other that they know a password, which does not travel (RFC 5802).

The name may be that of a delegation token, whose password follows from it (KIP-48); the client is its owner then.

A user who does not exist is answered like one who does, with a salt that is always the same for that name, and fails
at the end: its answers show nobody which users there are.

Source: RFC 5802, Kafka's ScramSaslServer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import attrs

from kafka_wire.errors import WireError
from kafka_wire.sasl.scram import (
    MIN_ITERATIONS,
    ClientFinal,
    ClientFirst,
    ScramCredential,
    ScramMechanism,
    ServerFirst,
    salt_of,
    xor,
)
from trio_broker.security.sasl.plain import require_own_name
from trio_broker.security.sasl.sasl_server import Evaluation, Identity, SaslFailure

FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]
"""What is kept of a user's password; None if the user has none for that mechanism."""


@attrs.frozen
class TokenLogin:
    """Whom a delegation token lets in, by which password, and until when in milliseconds since 1970."""

    owner: str
    password: str = attrs.field(repr=False)
    expires_at_ms: int


FindToken = Callable[[str], TokenLogin | None]
"""What a client logs in by with the delegation token of an id; None if there is no such token, or it is over."""


def no_token(token_id: str) -> TokenLogin | None:
    """Where there are no delegation tokens."""
    return None


TOKENS_KEPT: Final = 1000
"""Whose keys are kept, which take milliseconds to compute: each costs these once on each broker."""


@lru_cache(TOKENS_KEPT)
def token_credential(mechanism: ScramMechanism, password: str, salt: bytes) -> ScramCredential:
    """What is kept of the password of a delegation token."""
    salted_password = mechanism.salted_password(password, salt, MIN_ITERATIONS)
    return mechanism.credential(salted_password, salt, MIN_ITERATIONS)


@attrs.define
class _Exchange:
    """What the last token is checked with; it fails whatever it is unless the name ``is_known``. ``identity`` is who
    the client is then."""

    name: str
    identity: Identity
    is_known: bool
    credential: ScramCredential
    client: ClientFirst
    server: ServerFirst


@attrs.define
class ScramSaslServer:
    """``nonce`` is of ``nonce_of``, another for each. ``salt_key`` makes the salts of users who do not exist."""

    mechanism: ScramMechanism
    find_credential: FindCredential
    nonce: str
    salt_key: bytes = attrs.field(repr=False)
    find_token: FindToken = no_token
    _exchange: _Exchange | None = None

    def evaluate(self, token: bytes) -> Evaluation:
        """Take the first token, or the last."""
        try:
            if self._exchange is None:
                return self._first(ClientFirst.parse(token))
            return self._final(self._exchange, ClientFinal.parse(token))
        except WireError as error:
            raise SaslFailure(str(error)) from None

    def _first(self, first: ClientFirst) -> Evaluation:
        require_own_name(first.authorization_id, first.user)
        credential, identity = self._of_token(first.user) if first.is_token else self._of_user(first.user)
        known = credential or self._nobodys(first.user)
        # Older than the limit, or written by another hand: a password that is too cheap to guess.
        if known.iterations < MIN_ITERATIONS:
            raise SaslFailure(f"the credential of {first.user!r} has {known.iterations} iterations")
        server = ServerFirst.of(first.nonce + self.nonce, known.salt, known.iterations)
        self._exchange = _Exchange(first.user, identity, credential is not None, known, first, server)
        return Evaluation(server.text.encode())

    def _of_user(self, user: str) -> tuple[ScramCredential | None, Identity]:
        return self.find_credential(user, self.mechanism), Identity(user)

    def _of_token(self, token_id: str) -> tuple[ScramCredential | None, Identity]:
        if (login := self.find_token(token_id)) is None:
            return None, Identity("")
        # The salt that an unknown one has as well.
        credential = token_credential(self.mechanism, login.password, self._salt(token_id))
        return credential, Identity(login.owner, login.expires_at_ms, by_token=True)

    def _nobodys(self, user: str) -> ScramCredential:
        """The credential of a user who does not exist: nobody has its password."""
        no_key = bytes(self.mechanism.key_bytes)
        return ScramCredential(self._salt(user), no_key, no_key, MIN_ITERATIONS)

    def _salt(self, name: str) -> bytes:
        """The same each time, and on each broker."""
        digest = hmac.digest(self.salt_key, f"{self.mechanism.value}\0{name}".encode(), hashlib.sha512)
        return salt_of(digest)

    def _final(self, exchange: _Exchange, final: ClientFinal) -> Evaluation:
        # librdkafka before 2.6.1 repeats its own nonce before the whole one, which Kafka takes.
        if final.nonce not in (exchange.server.nonce, exchange.client.nonce + exchange.server.nonce):
            raise SaslFailure("the nonce of the last token is not that of the exchange")
        if final.channel_binding != exchange.client.gs2_header.encode():
            raise SaslFailure("the last token is of another beginning of the exchange")
        auth_message = ",".join((exchange.client.bare, exchange.server.text, final.signed)).encode()
        if not self._is_proved(exchange.credential, final.proof, auth_message) or not exchange.is_known:
            unknown = "no such token" if exchange.client.is_token else "no such user"
            raise SaslFailure(f"{'wrong password' if exchange.is_known else unknown}: {exchange.name!r}")
        signature = self.mechanism.hmac(exchange.credential.server_key, auth_message)
        return Evaluation(f"v={base64.b64encode(signature).decode()}".encode(), exchange.identity)

    def _is_proved(self, credential: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
        if len(proof) != self.mechanism.key_bytes:
            return False
        client_key = xor(proof, self.mechanism.hmac(credential.stored_key, auth_message))
        return hmac.compare_digest(self.mechanism.hash(client_key), credential.stored_key)
