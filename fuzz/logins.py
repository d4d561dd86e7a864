"""Throws broken bytes at what reads them before a client has logged in: the handshake of TLS, and a login by SASL.

Logins are by PLAIN, SCRAM and OAUTHBEARER, with headers around the tokens and without, and with a request among them:
of a client that does not know the password, or has a token of another authority; of one that is bob, and wants to act
as alice; of one that has logged in as bob and logs in again, as alice with her password. Then each of their frames may
be broken. TLS connections are begun by OpenSSL, as both of its versions do; some of their flights are broken or come in
two parts, as do records of requests behind a handshake. Of each is asked:

* nothing escapes but what closes the connection,
* nobody is logged in but bob,
* it is done within ``MAX_DECODE_SECONDS`` of processor time.

What is dear and not ours is left out: PBKDF2 has one iteration on both sides, and there is no socket under TLS.

    python -m fuzz.logins --seconds 60 --seed 1

The same seed and the same number of rounds try the same bytes, but for those that OpenSSL chooses itself.
"""

from __future__ import annotations

import random
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import pbkdf2_hmac
from typing import Final, cast
from unittest.mock import patch

import attrs

from fuzz.decoders import MAX_DECODE_SECONDS, Finding, Statistics, mutated, run_command
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
from trio_broker.security.sasl.server_authenticator import (
    MIN_REAUTHENTICATION_SECONDS,
    NewSaslServer,
    SaslLimits,
    SaslServerAuthenticator,
)
from trio_broker.security.sasl.verification_keys import VerificationKeys

NOW_MS: Final = 1_700_000_000_000

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

VERSIONS: Final = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

BREAK_CHANCE: Final = 0.5
"""Of each frame: a login is to get behind its first one, too."""

BOB: Final = "bob"
"""Whose password and token the clients have; those of alice they have only for a second login."""

HELLOS: Final = 64
"""First flights that are kept to be broken: OpenSSL makes one in as long as the broker refuses ten."""

LIVE_CHANCE: Final = 0.15
"""Of a handshake that a client goes on with, for as long as it is not broken."""

RECORDS: Final = 4
"""Requests behind a handshake."""

LOGINS: Final = 10
"""In a round, beside one connection of TLS, which takes as long as four of them."""


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
    tokens: dict[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tokens = {
            **{user: signed(claims_at(NOW_MS, sub=user), key_named("right")) for user in PASSWORDS},
            "": signed(claims_at(NOW_MS), key_named("wrong"), kid="right"),
        }

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
        """Yield the frames of one or two logins, as far as the server goes on."""
        is_bob = self.chance.random() < 0.5
        yield from self.login(conversation, BOB if is_bob else "")
        # Not before bob is there: alice's password lets in who has it.
        if conversation.user and self.chance.random() < 0.7:
            self.clock.advance(2 * MIN_REAUTHENTICATION_SECONDS)
            yield from self.login(conversation, self.chance.choice(("", BOB, "alice")))
        yield request_bytes(MetadataRequest(topics=[]), 12)

    def login(self, conversation: Conversation, user: str) -> Iterator[bytes]:
        """Yield the frames of a login as ``user``, whose secret is known; with none as alice, without hers."""
        mechanism, has_headers = self.chance.choice(MECHANISMS), self.chance.random() < 0.7
        secret = self.tokens[user] if mechanism == "OAUTHBEARER" else PASSWORDS.get(user, "wrong")
        client = SaslCredentials(mechanism, user or "alice", secret).client(self.chance.randbytes)
        if self.chance.random() < 0.3:
            yield request_bytes(default_instance(ApiVersionsRequest), 3)
        yield request_bytes(SaslHandshakeRequest(mechanism=mechanism), int(has_headers))
        token: bytes | None = client.first_token()
        if token is not None and user and self.chance.random() < 0.2:
            token = acting_as_alice(token)
        while token is not None:
            version = self.chance.randrange(3)
            yield request_bytes(SaslAuthenticateRequest(auth_bytes=token), version) if has_headers else token
            try:
                token = client.evaluate(conversation.challenge(version if has_headers else None))
            except WireError:
                # What came before was broken, so the server has said something else, or nothing.
                token = None


def acting_as_alice(token: bytes) -> bytes:
    """Return the first token of a mechanism with alice as its authorization id."""
    if token.startswith(b"n,,"):
        return b"n,a=alice," + token[3:]
    return b"alice" + token


@attrs.define
class Conversation:
    """What has been sent in one login, what the server has said last, and whom it takes the client for."""

    sent: list[bytes] = attrs.field(factory=list)
    said: bytes = b""
    user: str | None = None

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
        conversation.said = b""
        step = server.receive(memoryview(piece))
        if step is not None and step.user is not None:
            conversation.user = step.user
        assert conversation.user in (None, BOB), f"{conversation.user} is logged in without a password"
        assert server.is_authenticated == (conversation.user is not None), "somebody is logged in without a name"
        if step is None:
            statistics.read += 1
            continue
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


@attrs.define(eq=False)
class BufferSocket:
    """What a channel needs of a socket, between two buffers."""

    received: bytes = b""
    sent: bytearray = attrs.field(factory=bytearray)

    def recv(self, size: int) -> bytes:
        if not self.received:
            raise BlockingIOError
        data, self.received = self.received[:size], self.received[size:]
        return data

    def send(self, data: memoryview) -> int:
        self.sent += data
        return len(data)

    def close(self) -> None:
        """There is nothing to close."""

    def take_sent(self) -> bytes:
        data = bytes(self.sent)
        self.sent.clear()
        return data


@attrs.define(eq=False)
class TlsClient:
    """OpenSSL's side of a connection, between two buffers."""

    context: ssl.SSLContext
    incoming: ssl.MemoryBIO = attrs.field(factory=ssl.MemoryBIO)
    outgoing: ssl.MemoryBIO = attrs.field(factory=ssl.MemoryBIO)
    tls: ssl.SSLObject = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tls = self.context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def flight(self, said: bytes = b"") -> bytes:
        """What the client sends next in its handshake, behind what the server has ``said``."""
        self.incoming.write(said)
        with suppress(ssl.SSLError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def record(self, data: bytes) -> bytes:
        """``data`` sealed; empty where there was no handshake."""
        with suppress(ssl.SSLError):
            self.tls.write(data)
        return self.outgoing.read()


@attrs.frozen
class Handshakes:
    """``clients`` are of each version of TLS, with a certificate and without; ``hellos`` what they begin with."""

    keys: Keys
    clients: list[ssl.SSLContext]
    hellos: list[bytes]


def new_handshakes() -> Handshakes:
    now = datetime.now(UTC)
    authority = CertificateAuthority.create("fuzz", now)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.options |= ssl.OP_NO_RENEGOTIATION
    server.num_tickets = 0
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
    hellos = [TlsClient(each).flight() for each in clients for _ in range(HELLOS // len(clients))]
    return Handshakes(Keys(server), clients, hellos)


@attrs.define
class Connection:
    """A channel of the broker's, and what is sent to it."""

    channel: TlsChannel
    socket: BufferSocket
    chance: random.Random
    other: bytes
    statistics: Statistics
    sent: list[bytes] = attrs.field(factory=list)

    def throw(self, flight: bytes) -> None:
        """Have the channel read ``flight``, or what has become of it, in one part or in two."""
        if not flight:
            return
        piece = mutated(flight, self.other, self.chance) if self.chance.random() < BREAK_CHANCE else flight
        cut = self.chance.randrange(len(piece) + 1) if self.chance.random() < 0.2 else 0
        self.sent.append(piece)
        self.statistics.tried += 1
        for part in (piece[:cut], piece[cut:]):
            if part:
                self.socket.received += part
                self.read()
        self.statistics.read += 1

    def read(self) -> None:
        """Let the channel go on, as a processor does."""
        if not self.channel.needs_handshake or self.channel.handshake():
            with suppress(BlockingIOError):
                while self.channel.receive_into(memoryview(bytearray(100))):
                    pass


def new_connection(keys: Keys, chance: random.Random, other: bytes, statistics: Statistics) -> Connection:
    sock = BufferSocket()
    return Connection(TlsChannel(cast(socket.socket, sock), keys), sock, chance, other, statistics)


def try_handshake(
    handshakes: Handshakes, chance: random.Random, other: bytes, statistics: Statistics
) -> Finding | None:
    """Return what is wrong with how a listener takes a connection, of whose flights some are broken."""
    connection, started = new_connection(handshakes.keys, chance, other, statistics), time.thread_time()
    try:
        if chance.random() < LIVE_CHANCE:
            shake_hands(connection, TlsClient(chance.choice(handshakes.clients)))
        else:
            connection.throw(chance.choice(handshakes.hellos))
            connection.throw(chance.choice(handshakes.hellos))
    except (CloseConnection, OSError):
        # As a processor takes them: BlockingIOError is an OSError, NotTls a CloseConnection.
        pass
    except Exception as error:
        return Finding("a handshake", b"\n".join(connection.sent), f"{type(error).__name__}: {error}")
    finally:
        connection.channel.close()
    return too_slow("a handshake", connection.sent, time.thread_time() - started)


def shake_hands(connection: Connection, client: TlsClient) -> None:
    """Throw what ``client`` sends, flight by flight, and then requests."""
    connection.throw(client.flight())
    while flight := client.flight(connection.socket.take_sent()):
        connection.throw(flight)
    for _ in range(RECORDS):
        connection.throw(client.record(connection.chance.randbytes(connection.chance.randrange(1, 300))))


# --- Trying ---


def fuzz(seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Yield findings. A round is ``LOGINS`` logins and a connection."""
    chance = random.Random(seed)
    logins, handshakes = Logins(chance), new_handshakes()
    others = [*logins.frames(Conversation()), *handshakes.hellos[:: HELLOS // 4], chance.randbytes(300)]
    with patch.object(ScramMechanism, "salted_password", cheap_salted_password):
        for _ in rounds:
            other = chance.choice(others)
            for finding in (
                *(try_login(logins, other, statistics) for _ in range(LOGINS)),
                try_handshake(handshakes, chance, other, statistics),
            ):
                if finding is not None:
                    yield finding


def cheap_salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of one iteration."""
    return pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, 1)


if __name__ == "__main__":
    sys.exit(run_command(fuzz, "Throw broken bytes at logins and the handshakes of TLS."))
