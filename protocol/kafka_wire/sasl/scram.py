"""SCRAM (RFC 5802, RFC 7677): the mechanisms, the keys that stand for a password, and the four messages.

    client first   n,,n=user,r=nonce
    server first   r=nonce + server's,s=salt,i=iterations
    client final   c=biws,r=nonce + server's,p=proof
    server final   v=signature

A password is not normalised (RFC 4013), as in Kafka: it is its UTF-8. Channel binding is not offered. What is signed
are the bytes that were sent, extensions included.

Source: Kafka's ScramMechanism, ScramFormatter and ScramMessages.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import re
import string
from collections.abc import Callable
from typing import Final

import attrs

from kafka_wire.errors import WireError

MIN_ITERATIONS: Final = 4096
"""Of RFC 7677, and the least that Kafka accepts."""

MAX_ITERATIONS: Final = 16384
"""Kafka's limit for a new password. A client takes no more from a broker either: each is two blocks of a hash, and a
number that the other side chooses must not hold it for minutes."""

MAX_MESSAGE_BYTES: Final = 8192
"""Room for a name of some thousand letters. One of half a megabyte, which anybody may send before a login, takes a
sixth of a second to read and a hundred megabytes."""

SALT_BITS: Final = 130
"""Of the salts that Kafka's tools make, which are text: a number to the base of 36."""

SALT_DIGITS: Final = string.digits + string.ascii_lowercase

NONCE_BYTES: Final = 24
"""As random as the keys that it protects need; 32 characters."""

_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*)"

_CLIENT_FIRST = re.compile(rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})")  # fmt: skip  # noqa: E501
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(?P<signed>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})")  # fmt: skip  # noqa: E501
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^\x00,]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")

TOKEN_AUTHENTICATION: Final = "tokenauth"
"""The extension by which a client says that its name and password are those of a delegation token (KIP-48)."""


class ScramMechanism(enum.Enum):
    """The hashes that Kafka offers; the value is the mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def number(self) -> int:
        """As requests and metadata records have it."""
        return 1 if self is ScramMechanism.SHA_256 else 2

    @property
    def hash_name(self) -> str:
        """As ``hashlib`` names it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The size of a key, a proof and a signature."""
        return hashlib.new(self.hash_name).digest_size

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return PBKDF2 of a password, which takes milliseconds by intent."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Server Key")

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def credential(self, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Return what a server keeps of a password."""
        stored_key = self.hash(self.client_key(salted_password))
        return ScramCredential(salt, stored_key, self.server_key(salted_password), iterations)


MECHANISMS_BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in ScramMechanism}


@attrs.frozen(repr=False)
class ScramCredential:
    """What a server keeps of a password: enough to check it, and to prove to the client that it does."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@attrs.frozen
class ClientFirst:
    """``gs2_header`` says that there is no channel binding, and names another user to act as, or none. ``bare`` is what
    is signed."""

    gs2_header: str
    bare: str
    user: str
    authorization_id: str
    nonce: str
    is_token: bool

    @classmethod
    def parse(cls, token: bytes) -> ClientFirst:
        """Read the message.

        Raises:
            WireError: it is none, or asks for channel binding.
        """
        found = _matched(_CLIENT_FIRST, token, "client first message")
        return cls(
            gs2_header=found["gs2"],
            bare=found["bare"],
            user=_unescaped(found["name"]),
            authorization_id=_unescaped(found["authzid"] or ""),
            nonce=found["nonce"],
            is_token=f",{TOKEN_AUTHENTICATION}=true" in found["extensions"].lower(),
        )


@attrs.frozen
class ServerFirst:
    """``nonce`` is that of both sides, the client's first; ``text`` is what is signed."""

    nonce: str
    salt: bytes
    iterations: int
    text: str

    @classmethod
    def of(cls, nonce: str, salt: bytes, iterations: int) -> ServerFirst:
        return cls(nonce, salt, iterations, f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}")

    @classmethod
    def parse(cls, token: bytes) -> ServerFirst:
        """Read the message.

        Raises:
            WireError: it is none.
        """
        found = _matched(_SERVER_FIRST, token, "server first message")
        return cls(found["nonce"], base64.b64decode(found["salt"]), int(found["iterations"]), found.string)


@attrs.frozen(repr=False)
class ClientFinal:
    """``signed`` is the message without its proof."""

    channel_binding: bytes
    nonce: str
    proof: bytes
    signed: str

    @classmethod
    def parse(cls, token: bytes) -> ClientFinal:
        """Read the message.

        Raises:
            WireError: it is none.
        """
        found = _matched(_CLIENT_FINAL, token, "client final message")
        channel, proof = base64.b64decode(found["channel"]), base64.b64decode(found["proof"])
        return cls(channel, found["nonce"], proof, found["signed"])


def server_signature_of(token: bytes) -> bytes:
    """Return the signature in the server's final message.

    Raises:
        WireError: it is no such message, or says what is wrong instead.
    """
    found = _matched(_SERVER_FINAL, token, "server final message")
    if found["error"] is not None:
        raise WireError(f"the server refuses: {found['error']}")
    return base64.b64decode(found["signature"])


def escaped(name: str) -> str:
    """Return a user's name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def xor(first: bytes, second: bytes) -> bytes:
    """Return the exclusive or of two values of one size."""
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def nonce_of(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new nonce."""
    return base64.b64encode(random_bytes(NONCE_BYTES)).decode()


def salt_of(randomness: bytes) -> bytes:
    """Return a salt as those of Kafka's tools, by at least 17 bytes that nobody can guess.

    All look alike: what a broker makes up for a user who does not exist must not differ from the salt of one who does.
    """
    number = int.from_bytes(randomness) % (1 << SALT_BITS)
    digits = ""
    while number:
        number, digit = divmod(number, len(SALT_DIGITS))
        digits = SALT_DIGITS[digit] + digits
    return digits.encode()


def _unescaped(name: str) -> str:
    # In this order: "=3D2C" is a name with "=2C" in it, not one with a comma.
    return re.sub("=2C|=3D", lambda found: "," if found[0] == "=2C" else "=", name)


def _matched(pattern: re.Pattern[str], token: bytes, name: str) -> re.Match[str]:
    if len(token) > MAX_MESSAGE_BYTES:
        raise WireError(f"the SCRAM {name} has {len(token)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    # The message itself is left out of the error: it may have a proof or a name in it.
    try:
        found = pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise WireError(f"no SCRAM {name}")
    return found
