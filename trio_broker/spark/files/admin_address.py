"""Finds the admin app of a broker by asking the broker itself.

Its address is the config ``admin.listener``, which any Kafka client may read. The value is meant as seen from the
broker: a wildcard stands for the address that the job reached the broker by, and a loopback address means that only
programs on its machine can connect.

Source: docs/config.md, ``admin.listener``; Kafka's DescribeConfigs API.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from kafka_wire.config_resources import ConfigResourceType
from trio_broker.client.configs import Resource, describe_broker
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.spark.errors import OptionError

ADMIN_LISTENER: Final = "admin.listener"
ADMIN_URL_OPTION: Final = "adminUrl"


def admin_url_of(client: KafkaClient, node_id: int) -> str:
    """Return where a broker says that its admin app listens.

    Raises:
        OptionError: it does not say, so that ``adminUrl`` has to.
        ClientError: it cannot be asked.
    """
    resource = Resource(ConfigResourceType.BROKER, str(node_id))
    entries = describe_broker(client, resource, [ADMIN_LISTENER])[resource]
    address = client.node(node_id).address
    if not entries or entries[0].value is None:
        reason = f"broker {address} is no trio-broker: its files cannot be read beside it"
        raise OptionError(ADMIN_URL_OPTION, reason)
    return url_of(entries[0].value, address.host)


def url_of(listener: str, broker_host: str) -> str:
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
        host = _numeric(broker_host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
