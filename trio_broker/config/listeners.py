"""Reads the listener settings: the addresses to listen on, their security protocols, and the advertised addresses.

A listener is a name, a host and a port. ``listener.security.protocol.map`` has the security protocol of each name. With
an empty host a listener accepts connections on every interface. In an advertised address an empty host stands for
the address that the client has connected to, which is certain to be reachable; Kafka would advertise the machine's host
name, which other containers often cannot resolve.

Listeners named in ``controller.listener.names`` are left out, so that Kafka's own sample file works unchanged.

Source: Kafka's EndPoint, SocketServerConfigs.listenerListToEndPoints and KafkaConfig.validateValues.
"""

from __future__ import annotations

import re

import attrs

from trio_broker.common.host_port import host_port, parse_host_port
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.errors import ConfigError
from trio_broker.config.socket_server_config import SocketServerConfig

_LISTENER_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

UNROUTABLE_HOSTS = frozenset({"0.0.0.0", "::"})
"""Hosts that mean every interface. A server can listen on them, but a client cannot connect to them."""


@attrs.frozen
class Endpoint:
    """One listener or its advertised address. An empty host is every interface, or the address of the connection."""

    listener_name: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener_name}://{host_port(self.host, self.port)}"


def listener_endpoints(config: SocketServerConfig) -> tuple[Endpoint, ...]:
    """Return the listeners to open, in the order of the setting.

    Raises:
        ConfigError: a listener is malformed or named twice, or none is left.
    """
    endpoints = _endpoints(config, "listeners", config.listeners)
    if not endpoints:
        raise ConfigError("listeners: no listener is left for clients after controller.listener.names")
    _refuse_taken_ports(endpoints)
    return endpoints


def advertised_endpoints(config: SocketServerConfig) -> tuple[Endpoint, ...]:
    """Return the advertised address of each listener, in the order of ``listeners``.

    A listener without an advertised address advertises itself; port 0 stands for the port that the system picked.

    Raises:
        ConfigError: an address is malformed or unroutable, or belongs to no listener.
    """
    listeners = listener_endpoints(config)
    given = config.advertised_listeners or ()
    advertised = {item.listener_name: item for item in _endpoints(config, "advertised.listeners", given)}
    if unknown := advertised.keys() - {listener.listener_name for listener in listeners}:
        raise ConfigError(f"advertised.listeners: {', '.join(sorted(unknown))} is not in listeners")
    for endpoint in advertised.values():
        if endpoint.host in UNROUTABLE_HOSTS:
            raise ConfigError(f"advertised.listeners: no client can connect to {endpoint}; name a real address")
    return tuple(advertised.get(listener.listener_name) or _dialled(listener) for listener in listeners)


def inter_broker_listener(config: SocketServerConfig) -> str:
    """Return the name of the listener by which other brokers reach this one.

    Raises:
        ConfigError: there is no listener of the name in the setting, or both settings are given.
    """
    names = [listener.listener_name for listener in listener_endpoints(config)]
    given, protocol = config.inter_broker_listener_name, config.security_inter_broker_protocol
    if given and protocol:
        raise ConfigError("inter.broker.listener.name, security.inter.broker.protocol: give one of the two")
    name = (given or protocol or names[0]).upper()
    if name not in names:
        key = "security.inter.broker.protocol" if protocol else "inter.broker.listener.name"
        raise ConfigError(f"{key}: {name} is not in listeners")
    return name


def _dialled(listener: Endpoint) -> Endpoint:
    return attrs.evolve(listener, host="") if listener.host in UNROUTABLE_HOSTS else listener


def _endpoints(config: SocketServerConfig, setting: str, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
    """Return the endpoints in ``texts``, without those of the controller, after checking that names are unique."""
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
    """Refuse two listeners with the same host and port, unless the port is 0, which is another port each time."""
    seen: dict[tuple[str, int], Endpoint] = {}
    for endpoint in endpoints:
        address = (endpoint.host, endpoint.port)
        if endpoint.port and address in seen:
            raise ConfigError(f"listeners: {seen[address]} and {endpoint} want the same port")
        seen[address] = endpoint
