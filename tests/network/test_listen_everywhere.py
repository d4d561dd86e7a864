"""A listener without a host takes connections of IPv4 and of IPv6, where the machine has both."""

from __future__ import annotations

import socket

import pytest

from tests.waits import scaled
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener, listen
from trio_broker.runtime import network
from trio_broker.runtime.network import RealNetwork, serves_both_families

EVERYWHERE = Listener("PLAINTEXT", "", 0)


@pytest.mark.skipif(not serves_both_families(), reason="this machine has no IPv6")
def test_a_listener_without_a_host_takes_both_families():
    with listen(EVERYWHERE, SocketServerConfig(), RealNetwork()) as listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=scaled(5)).close()


def test_a_machine_without_ipv6_listens_to_the_other(monkeypatch):
    monkeypatch.setattr(network, "serves_both_families", lambda: False)
    with listen(EVERYWHERE, SocketServerConfig(), RealNetwork()) as listening:
        socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=scaled(5)).close()
