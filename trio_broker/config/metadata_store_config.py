"""The settings of the metadata store: where the cluster's metadata is, and how etcd is spoken to.

Source: docs/decisions/0090-one-contract-for-metadata-stores.md, docs/formats/metadata-in-etcd.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trio_broker.common.host_port import parse_host_port
from trio_broker.config.config_key import ConfigType, Validator, key

LOCAL = "local"
"""The value of ``metadata.store`` of a broker alone: its own metadata log."""

ETCD_SCHEMES = {"etcd": False, "etcds": True}
"""The schemes of ``metadata.store``, and whether each is over TLS."""

DEFAULT_PREFIX = "/trio-broker/"
"""Of the keys in etcd where the value names none."""


@attrs.frozen
class EtcdLocation:
    """The members of an etcd, and the prefix of a cluster's keys there, which ends in ``/``."""

    endpoints: Sequence[tuple[str, int]]
    prefix: str
    is_tls: bool


def etcd_location(text: str) -> EtcdLocation:
    """Return what ``text``, as in ``etcd://one:2379,two:2379/prefix``, says.

    Raises:
        ValueError: it is not of that form.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ETCD_SCHEMES:
        raise ValueError(f"{text!r} does not begin with etcd:// or etcds://")
    members, slash, path = rest.partition("/")
    endpoints = [parse_host_port(member) for member in members.split(",")]
    if any(not host or not port for host, port in endpoints):
        raise ValueError(f"{text!r} names a member without a host or a port")
    prefix = f"/{path.strip('/')}/" if slash and path.strip("/") else DEFAULT_PREFIX
    return EtcdLocation(endpoints, prefix, ETCD_SCHEMES[scheme])


def _is_store(text: str) -> bool:
    try:
        return text == LOCAL or bool(etcd_location(text))
    except ValueError:
        return False


@attrs.frozen(kw_only=True)
class MetadataStoreConfig:
    """Where the metadata is, and the login to etcd."""

    metadata_store: str = key(
        LOCAL,
        "Ours. Where the cluster's metadata is: local in the first data directory, or in etcd, for several brokers.",
        validator=Validator("local, or etcd://host:port,…/prefix, or the same with etcds:// for TLS", _is_store),
    )
    metadata_store_user: str = key("", "Ours. The user of etcd; empty where etcd has no users.")
    metadata_store_password: str = key(
        "", "Ours. The password of metadata.store.user.", type=ConfigType.PASSWORD, sensitive=True
    )
    metadata_store_ca_file: str = key(
        "", "Ours. The PEM file with the certificates that etcd's is checked by; empty means those of the system."
    )
    metadata_store_certificate_file: str = key(
        "", "Ours. The PEM file with this broker's certificate and its key, where etcd asks for one; empty means none."
    )
