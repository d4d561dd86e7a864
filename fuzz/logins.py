"""Throws broken bytes at what reads them before a client has logged in: the handshake of TLS, and a login by SASL.

Logins are those of a client that does not know the password, or has a token of another authority, by PLAIN, SCRAM and
OAUTHBEARER, with headers around the tokens and without, and with a request among them; then each of their frames may be
broken. TLS connections are begun by OpenSSL, as both of its versions do, and one of their flights is broken. Of each is
asked:

* nothing escapes but what closes the connection,
* nobody is logged in,
* it is done within ``MAX_DECODE_SECONDS`` of processor time.

    python -m fuzz.logins --seconds 60 --seed 1

The same seed and the same number of rounds try the same bytes, but for those that OpenSSL chooses itself.
"""

from __future__ import annotations

import argparse
import random
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

import attrs

from fuzz.decoders import MAX_DECODE_SECONDS, Finding, Statistics, mutated, run
from fuzz.raw_client import request_bytes
from kafka_wire.codec import decode
from kafka_wire.errors import WireError
from kafka_wire.headers import read_response_header
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.sasl.mechanisms import SaslCredentials
from kafka_wire.sasl.scram import ScramMechanism
from kafka_wire.schema import default_instance
from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, signed
from tests.security.sasl_conversation import PASSWORDS, credential_of
from trio_broker.network.errors import CloseConnection
from trio_broker.network.tls_channel import TlsChannel
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal
from trio_broker.security.key_store import private_file
from trio_broker.security.sasl.broker_jwt_validator import BrokerJwtValidator
from trio_broker.security.sasl.failed_attempts import FailedAttempts
from trio_broker.security.sasl.oauthbearer import OAuthBearerSaslServer
from trio_broker.security.sasl.plain import PlainSaslServer
from trio_broker.security.sasl.scram import ScramSaslServer
from trio_broker.security.sasl.server_authenticator import NewSaslServer, SaslLimits, SaslServerAuthenticator
from trio_broker.security.sasl.verification_keys import VerificationKeys

NOW_MS: Final = 1_700_000_000_000

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

VERSIONS: Final = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

BREAK_CHANCE: Final = 0.5
"""Of each frame: a login is to get behind its first one, too."""


# --- Logins ---


async def no_fetch() -> bytes:
    raise AssertionError("the keys are there")


def new_validator() -> BrokerJwtValidator:
    keys = VerificationKeys("here", no_fetch, 3600, 0.1, 10)
    keys.take(key_set(key_named("right")))
    return BrokerJwtValidator(
        keys=keys,
        clock=ManualClock(NOW_MS),
        audience=(AUDIENCE,),
        issuer=ISSUER,
        sub_claim_name="sub",
        clock_skew_seconds=30,
    )


@attrs.define
class Logins:
    """Makes servers, and what clients say to them that do not know the password."""

    chance: random.Random
    validator: BrokerJwtValidator = attrs.field(factory=new_validator)
    clock: ManualClock = attrs.field(factory=lambda: ManualClock(NOW_MS))
    bearer: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.bearer = signed(claims_at(NOW_MS), key_named("wrong"), kid="right")

    def server(self) -> SaslServerAuthenticator:
        limits = SaslLimits(
            max_receive_bytes=1 << 19, max_request_bytes=1 << 20, failure_delay_seconds=0, max_reauth_ms={}
        )
        mechanisms: dict[str, NewSaslServer] = {
            "PLAIN": lambda: PlainSaslServer(PASSWORDS),
            "OAUTHBEARER": lambda: OAuthBearerSaslServer(self.validator.validate),
        }
        for each in ScramMechanism:
            mechanisms[each.value] = partial(ScramSaslServer, each, credential_of, "server", b"key")
        return SaslServerAuthenticator(mechanisms, self.clock, limits, "10.0.0.1", FailedAttempts(self.clock))

    def frames(self, conversation: Conversation) -> Iterator[bytes]:
        """Yield the frames of one login, as far as the server goes on."""
        mechanism, has_headers = self.chance.choice(MECHANISMS), self.chance.random() < 0.7
        secret = self.bearer if mechanism == "OAUTHBEARER" else "wrong"
        client = SaslCredentials(mechanism, "alice", secret).client(self.chance.randbytes)
        if self.chance.random() < 0.3:
            yield request_bytes(default_instance(ApiVersionsRequest), 3)
        yield request_bytes(SaslHandshakeRequest(mechanism=mechanism), int(has_headers))
        token: bytes | None = client.first_token()
        while token is not None:
            version = self.chance.randrange(3)
            yield request_bytes(SaslAuthenticateRequest(auth_bytes=token), version) if has_headers else token
            try:
                token = client.evaluate(conversation.challenge(version if has_headers else None))
            except WireError:
                # What came before was broken, so the server has said something else, or nothing.
                token = None
        yield request_bytes(MetadataRequest(topics=[]), 12)


@attrs.define
class Conversation:
    """What has been sent in one login, and what the server has said last."""

    sent: list[bytes] = attrs.field(factory=list)
    said: bytes = b""

    def challenge(self, version: int | None) -> bytes:
        """The server's token, which is in an answer of that version or stands alone.

        Raises:
            WireError: it has said something else.
        """
        if version is None:
            return self.said
        _, position = read_response_header(SaslAuthenticateRequest.API_KEY, version, self.said)
        return bytes(decode(SaslAuthenticateResponse, version, self.said, position)[0].auth_bytes)


def try_login(logins: Logins, other: bytes, statistics: Statistics) -> Finding | None:
    """Return what is wrong with how a server takes a login, of whose frames some are broken."""
    conversation, started = Conversation(), time.thread_time()
    try:
        converse(logins, conversation, other, statistics)
    except Exception as error:
        return Finding("a login", b"\n".join(conversation.sent), f"{type(error).__name__}: {error}")
    return too_slow("a login", conversation.sent, time.thread_time() - started)


def converse(logins: Logins, conversation: Conversation, other: bytes, statistics: Statistics) -> None:
    server, chance = logins.server(), logins.chance
    for frame in logins.frames(conversation):
        piece = mutated(frame, other, chance) if chance.random() < BREAK_CHANCE else frame
        conversation.sent.append(piece)
        statistics.tried += 1
        step = server.receive(memoryview(piece))
        assert not server.is_authenticated, "somebody is logged in without a password"
        if step is None:
            statistics.read += 1
            continue
        assert step.user is None, "somebody is logged in without a password"
        if step.failure is not None:
            return
        statistics.read += 1
        conversation.said = b"".join(step.answer or ())


def too_slow(target: str, sent: list[bytes], seconds: float) -> Finding | None:
    return Finding(target, b"\n".join(sent), f"took {seconds:.1f} s") if seconds > MAX_DECODE_SECONDS else None


# --- TLS ---


@attrs.frozen
class Keys:
    """Of a listener that asks for a certificate."""

    context: ssl.SSLContext

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        return ANONYMOUS


@attrs.frozen
class Handshakes:
    """``clients`` are of each version of TLS, with a certificate and without."""

    keys: Keys
    clients: list[ssl.SSLContext]


def new_handshakes() -> Handshakes:
    now = datetime.now(UTC)
    authority = CertificateAuthority.create("fuzz", now)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.options |= ssl.OP_NO_RENEGOTIATION
    server.verify_mode = ssl.CERT_OPTIONAL
    server.load_verify_locations(cadata=authority.trusted.decode())
    with private_file(authority.issue_server("broker", ["localhost"], now).pem) as path:
        server.load_cert_chain(path)
    clients = []
    for version in VERSIONS:
        for has_certificate in (False, True):
            client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            client.minimum_version = client.maximum_version = version
            client.load_verify_locations(cadata=authority.trusted.decode())
            if has_certificate:
                with private_file(authority.issue_client("alice", now).pem) as path:
                    client.load_cert_chain(path)
            clients.append(client)
    return Handshakes(Keys(server), clients)


def try_handshake(
    handshakes: Handshakes, chance: random.Random, other: bytes, statistics: Statistics
) -> Finding | None:
    """Return what is wrong with how a listener takes a connection, of whose flights some are broken."""
    incoming, outgoing, sent = ssl.MemoryBIO(), ssl.MemoryBIO(), list[bytes]()
    client = chance.choice(handshakes.clients).wrap_bio(incoming, outgoing, server_hostname="localhost")
    started = time.thread_time()
    with ExitStack() as stack:
        near, far = (stack.enter_context(each) for each in socket.socketpair())
        near.setblocking(False)
        far.setblocking(False)
        channel = TlsChannel(far, handshakes.keys)
        try:
            for _ in range(4):
                with suppress(ssl.SSLError):
                    client.do_handshake()
                flight = outgoing.read()
                piece = mutated(flight, other, chance) if chance.random() < BREAK_CHANCE else flight
                sent.append(piece)
                statistics.tried += 1
                near.sendall(piece)
                if channel.handshake():
                    statistics.read += 1
                    channel.receive_into(memoryview(bytearray(100)))
                with suppress(BlockingIOError):
                    incoming.write(near.recv(1 << 16))
        except (CloseConnection, OSError):
            # As a processor takes them: BlockingIOError is an OSError, NotTls a CloseConnection.
            pass
        except Exception as error:
            return Finding("a handshake", b"\n".join(sent), f"{type(error).__name__}: {error}")
    return too_slow("a handshake", sent, time.thread_time() - started)


# --- Trying ---


def fuzz(seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Yield findings. A round is a login and a connection."""
    chance = random.Random(seed)
    logins, handshakes = Logins(chance), new_handshakes()
    others = [*logins.frames(Conversation()), chance.randbytes(300)]
    for _ in rounds:
        other = chance.choice(others)
        for finding in (
            try_login(logins, other, statistics),
            try_handshake(handshakes, chance, other, statistics),
        ):
            if finding is not None:
                yield finding


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw broken bytes at logins and the handshakes of TLS.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where the randomness starts (default: 0)")
    arguments = parser.parse_args()
    return run(fuzz, arguments.seed, arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
