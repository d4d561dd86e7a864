"""The settings of listeners, connections and the pools that serve them.

Names and defaults are Kafka's, except for the defaults of the buffers and the backlog. Linux adapts the buffers of a
socket to its traffic unless a program sets them, and then moves bulk data with a third less CPU than with Kafka's 100
KiB (``bench/beside-kafka.md``). Kafka's backlog of 50 overflows when many clients reconnect at once, and a client whose
connection was dropped by the kernel tries again only after a second.

Source: Kafka's SocketServerConfigs and ServerConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.config_key import INT_MAX, ConfigType, UpdateMode, key, split_list
from trio_broker.config.validators import (
    CONNECTION_OVERRIDES,
    NOT_EMPTY,
    POOL_SIZE,
    at_least,
    one_of,
    optionally,
    parse_connection_overrides,
)

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
LONG = ConfigType.LONG

DEFAULT_PROTOCOL_MAP = ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL")
"""Every security protocol of Kafka is also the name of a listener."""


@attrs.frozen(kw_only=True)
class ListenerLimits:
    """The limits of one listener, beside those of the broker, which count its connections too."""

    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


NO_LIMITS = ListenerLimits()


@attrs.define(kw_only=True)
class SocketServerConfig:
    """Listeners and connections. A running server changes its copy, so its parts read a limit each time they use it."""

    listeners: tuple[str, ...] = key(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where clients may connect, as NAME://host:port; no host is every interface, port 0 a free one.",
        validator=NOT_EMPTY,
    )
    advertised_listeners: tuple[str, ...] | None = key(
        None,
        "The addresses given to clients; unset, or without a host, each client gets the one it dialled.",
        type=ConfigType.LIST,
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        DEFAULT_PROTOCOL_MAP, "The security protocol of each listener name, as NAME:PROTOCOL.",
        type=ConfigType.STRING, parser=split_list, formatter=",".join,
    )  # fmt: skip
    inter_broker_listener_name: str | None = key(
        None, "The listener by which brokers of a cluster reach this one; unset, the first of them."
    )
    security_inter_broker_protocol: str | None = key(
        None,
        "In place of inter.broker.listener.name: the listener with the name of this protocol.",
        type=ConfigType.STRING, validator=optionally(one_of(*SecurityProtocol.__members__)),
    )  # fmt: skip
    controller_listener_names: tuple[str, ...] = key(
        (), "Listeners of this name are not opened: here the controller is a part of the broker."
    )
    num_network_threads: int = key(
        3,
        "Processors: they read requests and write responses; each has a thread for socket work that blocks.",
        update_mode=CLUSTER_WIDE, validator=POOL_SIZE, thread_pool=True,
    )  # fmt: skip
    num_io_threads: int = key(
        8,
        "How many requests are handled at a time, and how many threads do their blocking disk work.",
        update_mode=CLUSTER_WIDE, validator=POOL_SIZE, thread_pool=True,
    )  # fmt: skip
    queued_max_requests: int = key(
        500,
        "How many requests may wait for a handler before reading stops. Live here, read-only in Kafka.",
        update_mode=CLUSTER_WIDE, validator=at_least(1),
    )  # fmt: skip
    queued_max_request_bytes: int = key(
        -1, "How many bytes of requests may wait before the Processors stop reading; -1 is no limit.", type=LONG
    )
    socket_request_max_bytes: int = key(
        100 * 1024 * 1024,
        "The largest request that is read; a larger one closes its connection.",
        validator=at_least(1),
    )
    # A larger or growing buffer costs the kernel more for each byte, a smaller one more turns (bench/beside-kafka.md).
    # A line whose bandwidth times its round trip is more than this needs -1.
    socket_send_buffer_bytes: int = key(
        256 * 1024,
        "SO_SNDBUF of client connections (102400 in Kafka); -1, for fast lines of long delay, lets the system adapt.",
    )
    socket_receive_buffer_bytes: int = key(
        -1,
        "SO_RCVBUF of client connections; -1 leaves it to the system, which adapts it (102400 in Kafka).",
    )
    socket_listen_backlog_size: int = key(
        1024,
        "How many connections the kernel may hold that were not accepted yet (50 in Kafka).",
        validator=at_least(1),
    )
    max_connections: int = key(
        INT_MAX,
        "How many connections may be open at once; further ones wait until another closes.",
        update_mode=CLUSTER_WIDE, validator=at_least(1),
    )  # fmt: skip
    max_connections_per_ip: int = key(
        INT_MAX,
        "How many connections one address may have open; further ones are closed at once.",
        update_mode=CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    max_connections_per_ip_overrides: Mapping[str, int] = key(
        MappingProxyType({}),
        "Other limits for some addresses, as host:count,host:count.",
        update_mode=CLUSTER_WIDE, parser=parse_connection_overrides, validator=CONNECTION_OVERRIDES,
    )  # fmt: skip
    max_connection_creation_rate: int = key(
        INT_MAX,
        "How many connections are accepted in a second; faster ones wait.",
        update_mode=CLUSTER_WIDE, validator=at_least(1),
    )  # fmt: skip
    connections_max_idle_ms: int = key(
        600_000, "A connection without a request for this long is closed; negative is never.", type=LONG
    )
    listener_limits: Mapping[str, ListenerLimits] = MappingProxyType({})
    """The limits of each listener that has some, by its name in lower case: ``listener.name.<name>.max.connections``
    and ``….max.connection.creation.rate``."""

    def limits_of(self, listener: str) -> ListenerLimits:
        """Return the limits of the listener of this name, which may be in any case."""
        return self.listener_limits.get(listener.lower(), NO_LIMITS)
