"""The settings of the socket server, as plain values.

They bear the names of Kafka's keys, and are read where they are used: setting an attribute is enough to change a
limit on a running server, and a pause that depends on it is looked at again within a second. The three pools are the
exception, because a change there moves tasks: ``SocketServer.resize_network_threads``, ``resize_io_threads``,
``resize_queue``.

Source: Kafka's SocketServerConfigs and ServerConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

UNLIMITED = 2**31 - 1
"""Kafka's way to say "no limit" in an int setting."""


@attrs.frozen
class Listener:
    """One address to listen on. Port 0 asks the system for a free one; see ``SocketServer.bound_addresses``."""

    name: str
    host: str
    port: int


@attrs.define
class SocketServerConfig:
    """Kafka's keys that govern connections, with Kafka's defaults, but for the buffers and the backlog.

    Linux adapts the buffers of a socket to its traffic as long as nobody sets them, which moves bulk data with a third
    less CPU than Kafka's 100 KiB does (``bench/measured.md``).

    Kafka's 50 overflows when a fleet of clients reconnects at once, and the kernel then lets each newcomer try again
    only after a second.
    """

    num_network_threads: int = 3
    num_io_threads: int = 8
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    socket_listen_backlog_size: int = 1024
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = attrs.field(factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    connections_max_idle_ms: int = 10 * 60 * 1000
