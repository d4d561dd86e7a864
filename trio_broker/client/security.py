"""How connections to brokers are secured, which is not at all today: each other protocol is one more class here."""

from __future__ import annotations

import socket
from typing import ClassVar

import attrs


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
