"""Reads the listener settings: where clients may connect, by which protocol, and which address is advertised.

A listener is a name, a host and a port. The name says by way of ``listener.security.protocol.map`` which security
protocol is spoken there. An empty host listens on every interface; advertised, it stands for "the address you dialled",
which is right for any client that got here, where Kafka would put a host name that containers rarely resolve.

Only PLAINTEXT listeners are served; another protocol is refused here, in one line, rather than failing in the first
handshake. Listeners named in ``controller.listener.names`` are left out, so that Kafka's own sample file just works.

Source: Kafka's EndPoint, SocketServerConfigs.listenerListToEndPoints and KafkaConfig.validateValues.
"""

from __future__ import annotations

import enum
import re

import attrs

from trio_broker.config.errors import ConfigError
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.config.validators import parse_host_port

_LISTENER_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

UNROUTABLE_HOSTS = frozenset({"0.0.0.0", "::"})
"""Hosts that mean "every interface": one can listen there, but a client cannot connect to them."""


class SecurityProtocol(enum.IntEnum):
    """How a connection is secured, numbered as RegisterBrokerRecord stores it."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


SERVED_PROTOCOLS = frozenset({SecurityProtocol.PLAINTEXT})
"""The protocols that the network floor speaks."""


@attrs.frozen
class Endpoint:
    """One listener, or the address it advertises. An empty host is every interface, or the address that was dialled."""

    listener_name: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


def listener_endpoints(config: SocketServerConfig) -> tuple[Endpoint, ...]:
    """Return the listeners to open, in the order of the setting.

    Raises:
        ConfigError: one is malformed or appears twice, its security protocol is unknown or not served, or none is left.
    """
    endpoints = _endpoints(config, "listeners", config.listeners)
    if not endpoints:
        raise ConfigError("listeners: no listener is left for clients after controller.listener.names")
    for endpoint in endpoints:
        if endpoint.security_protocol not in SERVED_PROTOCOLS:
            raise ConfigError(
                f"listeners: {endpoint} asks for {endpoint.security_protocol.name}; only PLAINTEXT listeners are served"
            )
    _refuse_taken_ports(endpoints)
    return endpoints


def advertised_endpoints(config: SocketServerConfig) -> tuple[Endpoint, ...]:
    """Return what each listener tells its clients, in the order of ``listeners``.

    A listener without an advertised address of its own advertises itself; port 0 stands for the port that was bound.

    Raises:
        ConfigError: an address is malformed or unroutable, or belongs to no listener.
    """
    listeners = listener_endpoints(config)
    given = config.advertised_listeners or ()
    advertised = {item.listener_name: item for item in _endpoints(config, "advertised.listeners", given)}
    if strangers := advertised.keys() - {listener.listener_name for listener in listeners}:
        raise ConfigError(f"advertised.listeners: {', '.join(sorted(strangers))} is not in listeners")
    for endpoint in advertised.values():
        if endpoint.host in UNROUTABLE_HOSTS:
            raise ConfigError(f"advertised.listeners: no client can connect to {endpoint}; name a real address")
    return tuple(advertised.get(listener.listener_name) or _dialled(listener) for listener in listeners)


def _dialled(listener: Endpoint) -> Endpoint:
    return attrs.evolve(listener, host="") if listener.host in UNROUTABLE_HOSTS else listener


def _endpoints(config: SocketServerConfig, setting: str, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
    """Return the endpoints in ``texts`` except the controller's; no name twice."""
    protocols = _security_protocols(config)
    controller_names = {name.upper() for name in config.controller_listener_names}
    endpoints: dict[str, Endpoint] = {}
    for text in texts:
        name, host, port = _split(setting, text)
        if name in endpoints:
            raise ConfigError(f"{setting}: the listener {name} appears twice")
        if name in controller_names:
            continue
        if name not in protocols:
            raise ConfigError(f"{setting}: {name} has no entry in listener.security.protocol.map")
        endpoints[name] = Endpoint(name, protocols[name], host, port)
    return tuple(endpoints.values())


def _split(setting: str, text: str) -> tuple[str, str, int]:
    name, separator, address = text.partition("://")
    if not separator or not _LISTENER_NAME.fullmatch(name):
        raise ConfigError(f"{setting}: {text!r} is not NAME://host:port")
    try:
        host, port = parse_host_port(address)
    except ValueError as error:
        raise ConfigError(f"{setting}: {text!r}: {error}") from None
    return name.upper(), host, port


def _security_protocols(config: SocketServerConfig) -> dict[str, SecurityProtocol]:
    protocols = {}
    for item in config.listener_security_protocol_map:
        name, separator, protocol = item.partition(":")
        if not separator or protocol.strip().upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(f"listener.security.protocol.map: {item!r} is not NAME:PROTOCOL, one of {known}")
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
    return protocols


def _refuse_taken_ports(endpoints: tuple[Endpoint, ...]) -> None:
    """Refuse a second listener on the same host and port; port 0 is a new one every time."""
    seen: dict[tuple[str, int], Endpoint] = {}
    for endpoint in endpoints:
        address = (endpoint.host, endpoint.port)
        if endpoint.port and address in seen:
            raise ConfigError(f"listeners: {seen[address]} and {endpoint} want the same port")
        seen[address] = endpoint
