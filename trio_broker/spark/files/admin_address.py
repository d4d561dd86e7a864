"""Finds the admin app of a job's broker by asking the broker itself.

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
from trio_broker.client.configs import Resource, describe_configs
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.spark.errors import OptionError, SourceUnavailable
from trio_broker.spark.files.manifest import AdminManifests
from trio_broker.spark.options.kafka_settings import KafkaSettings

ADMIN_LISTENER: Final = "admin.listener"
ADMIN_URL_OPTION: Final = "adminUrl"


def admin_manifests(kafka: KafkaSettings, admin_url: str | None, admin_token: str | None = None) -> AdminManifests:
    """Return the source of manifests: at ``admin_url``, or where the broker says that its admin app listens.

    Raises:
        OptionError: the broker does not say, so that ``adminUrl`` has to.
        SourceUnavailable: the broker cannot be asked.
    """
    if admin_url is not None:
        return AdminManifests(admin_url, token=admin_token)
    deadline = Deadline(kafka.request_timeout_ms / 1000)
    where = ", ".join(map(str, kafka.bootstrap_servers))
    try:
        with KafkaClient(kafka.connection, deadline) as client:
            brokers = client.attempt(client.brokers)
            if len(brokers.nodes) != 1:
                raise OptionError(
                    ADMIN_URL_OPTION, f"is needed: the cluster at {where} has {len(brokers.nodes)} brokers"
                )
            node = brokers.nodes[0]
            resource = Resource(ConfigResourceType.BROKER, str(node.node_id))
            entries = describe_configs(client, [resource])[resource]
    except ClientError as error:
        raise SourceUnavailable(f"kafka.bootstrap.servers {where}: {error}") from None
    listener = next((entry.value for entry in entries if entry.name == ADMIN_LISTENER), None)
    if listener is None:
        raise OptionError(
            ADMIN_URL_OPTION, f"broker {node.address} is no trio-broker: its files cannot be read beside it"
        )
    return AdminManifests(url_of(listener, node.address.host), node.node_id, brokers.cluster_id, token=admin_token)


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
