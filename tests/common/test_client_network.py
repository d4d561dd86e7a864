"""What a limit by address counts by."""

from __future__ import annotations

import pytest

from trio_broker.common.client_network import LOOPBACK, client_network


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", LOOPBACK),
        ("127.9.8.7", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("::1", LOOPBACK),
        ("somewhere", "somewhere"),
    ],
)
def test_addresses_that_one_party_has_are_one_network(host: str, network: str) -> None:
    assert client_network(host) == network
