"""The network that one party has to itself: what a limit by address has to count by."""

from __future__ import annotations

import ipaddress

IPV6_PREFIX_BITS = 64
"""The smallest network that a provider gives to a customer, who has all of its addresses."""

LOOPBACK = "loopback"
"""All of them are one machine's own; a program there may come from any address of 127.0.0.0/8."""


def client_network(host: str) -> str:
    """Return the network of ``host``; that itself if it is no address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.IPv6Network((address, IPV6_PREFIX_BITS), strict=False)
            return LOOPBACK if address.is_loopback else str(network)
        address = address.ipv4_mapped
    return LOOPBACK if address.is_loopback else str(address)
