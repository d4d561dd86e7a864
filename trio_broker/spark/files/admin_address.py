"""Finds the admin app of a broker by asking the broker itself.

Its address is the config ``admin.listener``, which a Kafka client with the right to describe the cluster's settings may
read. The value is meant as seen from the broker: a wildcard stands for the address that the job reached the broker by,
and a loopback address means that only programs on its machine can connect. ``admin.security.protocol`` says whether it
is asked by HTTPS.

Source: docs/config.md; Kafka's DescribeConfigs API.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from kafka_wire.config_resources import ConfigResourceType
from trio_broker.client.configs import Resource, describe_broker
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.host_port import host_port
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.spark.errors import OptionError

ADMIN_LISTENER: Final = "admin.listener"
ADMIN_SECURITY_PROTOCOL: Final = "admin.security.protocol"
ADMIN_URL_OPTION: Final = "adminUrl"


def admin_url_of(client: KafkaClient, node_id: int) -> str:
    """Return where a broker says that its admin app listens.

    Raises:
        OptionError: it does not say, so that ``adminUrl`` has to.
        ClientError: it cannot be asked.
    """
    resource = Resource(ConfigResourceType.BROKER, str(node_id))
    entries = describe_broker(client, resource, [ADMIN_LISTENER, ADMIN_SECURITY_PROTOCOL])[resource]
    found = {entry.name: entry.value for entry in entries}
    address = client.node(node_id).address
    listener = found.get(ADMIN_LISTENER)
    if listener is None:
        reason = f"broker {address} is no trio-broker: its files cannot be read beside it"
        raise OptionError(ADMIN_URL_OPTION, reason)
    return url_of(listener, address.host, is_https=found.get(ADMIN_SECURITY_PROTOCOL) == SecurityProtocol.SSL.name)


def url_of(listener: str, broker_host: str, *, is_https: bool = False) -> str:
    """Return the address of the admin app for the value of ``admin.listener`` of the broker at ``broker_host``.

    Raises:
        OptionError: the app is off, or on a port that only the broker knows.
    """
    host, _, port = listener.rpartition(":")
    if not listener or port == "0":
        reason = "is off" if not listener else "has a port of the system's choice"
        raise OptionError(ADMIN_URL_OPTION, f"is needed: the broker's {ADMIN_LISTENER} {reason}")
    host = host.strip("[]")
    if host == "" or _is_wildcard(host):
        # A certificate has the names by which clients reach the broker.
        host = broker_host if is_https else _numeric(broker_host)
    return f"{'https' if is_https else 'http'}://{host_port(host, int(port))}"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _numeric(host: str) -> str:
    """Return an IP address of ``host``: the admin app accepts all of its addresses as a Host header, but few names."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return host
