"""Sockets of a simulated network behave as a broker expects of TCP."""

from __future__ import annotations

import socket

import pytest

from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener, listen, prepare_socket
from trio_broker.runtime.network import unread_bytes
from trio_broker.runtime.simulated_network import SimulatedNetwork

CONFIG = SocketServerConfig()


def test_bytes_are_there_as_soon_as_they_are_sent():
    network = SimulatedNetwork()
    with listen(Listener("PLAINTEXT", "127.0.0.1", 9092), CONFIG, network) as listening:
        client = network.client_socket(9092)
        accepted, peer = listening.accept()
        prepare_socket(accepted, CONFIG)
        with client, accepted:
            client.send(b"request")
            assert unread_bytes(accepted) == 7
            assert accepted.recv(100) == b"request"
            accepted.send(b"response")
            assert client.recv(100) == b"response"
            assert accepted.getsockname() == listening.getsockname() == ("127.0.0.1", 9092)
            assert isinstance(peer[0], str)
            accepted.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
            assert unread_bytes(accepted) == 0
        assert unread_bytes(accepted) == 0


def test_port_0_gets_a_port_of_its_own():
    network = SimulatedNetwork()
    with (
        listen(Listener("A", "127.0.0.1", 0), CONFIG, network) as one,
        listen(Listener("B", "127.0.0.1", 0), CONFIG, network) as other,
    ):
        assert one.getsockname() != other.getsockname()


def test_a_port_that_nobody_listens_on_refuses():
    network = SimulatedNetwork()
    with pytest.raises(ConnectionRefusedError):
        network.client_socket(9092)
    listen(Listener("PLAINTEXT", "127.0.0.1", 9092), CONFIG, network).close()
    with pytest.raises(ConnectionRefusedError):
        network.client_socket(9092)


def test_a_port_is_taken_once_and_by_network():
    network, other = SimulatedNetwork(), SimulatedNetwork()
    with listen(Listener("A", "127.0.0.1", 9092), CONFIG, network):
        with pytest.raises(OSError, match="in use"):
            listen(Listener("B", "127.0.0.1", 9092), CONFIG, network)
        listen(Listener("A", "127.0.0.1", 9092), CONFIG, other).close()
