"""``host:port`` as text: an IPv6 address stands in brackets, so that its last colon is that of the port."""

from __future__ import annotations

from typing import Final

DEFAULT_PORT: Final = 9092
"""Kafka's own."""


def bracketed(host: str) -> str:
    """``host`` as it stands before a colon."""
    return f"[{host}]" if ":" in host else host


def host_port(host: str, port: int | str) -> str:
    return f"{bracketed(host)}:{port}"


def parse_host_port(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; an IPv6 address stands in brackets, an empty host is every interface.

    Raises:
        ValueError: there is no colon, or the port is not a number from 0 to 65535.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host or "[" in host or "]" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:9092")
    return host, int(port)
