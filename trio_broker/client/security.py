"""How connections to brokers are secured: not at all today, but for a login. Each other protocol is one more class."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import ClassVar, Final

import attrs

from kafka_wire.sasl.mechanisms import PlainSaslClient, SaslCredentials
from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.security.sasl.jaas import parse_jaas

SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"

MECHANISMS: Final = (PlainSaslClient.mechanism, *(mechanism.value for mechanism in ScramMechanism))
"""By which this client logs in."""


@attrs.frozen
class Plaintext:
    """Connections without encryption and login: anyone between client and broker can read and change the bytes."""

    PROTOCOL: ClassVar = "PLAINTEXT"

    def secured(self, sock: socket.socket, host: str) -> socket.socket:
        """Return the socket for the requests, once ``sock`` is connected to ``host``."""
        return sock


def parse_security(protocol: str) -> Plaintext:
    """Return what a name of Kafka's ``security.protocol`` stands for.

    Raises:
        ValueError: this client does not have the protocol.
    """
    if protocol.upper() != Plaintext.PROTOCOL:
        raise ValueError(f"{protocol} is not served yet; only {Plaintext.PROTOCOL} listeners can be asked")
    return Plaintext()


def parse_login(settings: Mapping[str, str]) -> SaslCredentials | None:
    """Return whom the settings of a client of Kafka's log in as; None where they ask for no login.

    They are ``security.protocol``, ``sasl.mechanism`` and ``sasl.jaas.config``.

    Raises:
        ValueError: this client does not have the protocol or the mechanism, or the login module has no user and
            password. The text has no secret in it.
    """
    protocol = settings.get("security.protocol", Plaintext.PROTOCOL)
    if protocol.upper() != SASL_PLAINTEXT:
        parse_security(protocol)
        return None
    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism: {mechanism} is none of {', '.join(MECHANISMS)}")
    try:
        return parse_jaas(settings.get("sasl.jaas.config", "")).credentials(mechanism)
    except ValueError as error:
        raise ValueError(f"sasl.jaas.config: {error}") from None
