"""Addresses of brokers: parsing and printing.

Source: Kafka's ``bootstrap.servers``.
"""

from __future__ import annotations

import attrs

from trio_broker.common.host_port import DEFAULT_PORT, host_port
from trio_broker.common.security_protocol import SecurityProtocol


@attrs.frozen
class Address:
    """A host and a port, printed as ``host:port``, with an IPv6 address in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Read ``host:port,host:port…``.

    Raises:
        ValueError: there is no entry, or one is not an address, or names a protocol other than PLAINTEXT.
    """
    addresses = tuple(_parse_address(entry.strip()) for entry in text.split(",") if entry.strip())
    if not addresses:
        raise ValueError("no address is given; one is written host:port")
    return addresses


def _parse_address(entry: str) -> Address:
    protocol, separator, rest = entry.rpartition("://")
    if separator:
        # A broker prints its listeners with their protocol.
        _check_protocol(protocol)
    host, port = _split(rest)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{entry!r} is not an address; one is written host:port")
    return Address(host, int(port))


def _check_protocol(protocol: str) -> None:
    if protocol.upper() != SecurityProtocol.PLAINTEXT.name:
        raise ValueError(f"{protocol}:// is not part of an address here; security.protocol is the setting for it")


def _split(text: str) -> tuple[str, str]:
    """Return host and port as text, with the default port if the text has none; an IPv6 address stands in brackets."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else rest or str(DEFAULT_PORT)
    host, colon, port = text.partition(":")
    return host, port if colon else str(DEFAULT_PORT)
