"""Every key by name: the fields of the settings classes, in the order in which ``docs/config.md`` shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trio_broker.config.alert_config import AlertConfig
from trio_broker.config.authorizer_config import AuthorizerConfig
from trio_broker.config.config_key import ConfigKey, group_keys_of, keys_of, topic_keys_of
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.keys_without_effect import BROKER_KEYS_WITHOUT_EFFECT, GROUP_KEYS_WITHOUT_EFFECT
from trio_broker.config.listener_keys import FIELDS_OF_TLS, BrokerKeys
from trio_broker.config.log_config import LogConfig
from trio_broker.config.log_manager_config import LogManagerConfig
from trio_broker.config.metadata_store_config import MetadataStoreConfig
from trio_broker.config.node_config import NodeConfig, RequestConfig
from trio_broker.config.quota_config import QuotaConfig
from trio_broker.config.replication_config import ReplicationConfig
from trio_broker.config.sasl_config import SaslConfig
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.config.ssl_config import SslConfig
from trio_broker.config.transaction_coordinator_config import TransactionCoordinatorConfig


def _by_all_names(keys: Iterable[ConfigKey]) -> dict[str, list[ConfigKey]]:
    found: dict[str, list[ConfigKey]] = {}
    for key in keys:
        for name in key.names:
            found.setdefault(name, []).append(key)
    return found


LISTENERS_SUBJECT = "Listeners and connections"
TLS_SUBJECT = "TLS"

SETTINGS: Mapping[str, type] = {
    "Node": NodeConfig,
    "Metadata store": MetadataStoreConfig,
    "Authorisation": AuthorizerConfig,
    "Alerts": AlertConfig,
    LISTENERS_SUBJECT: SocketServerConfig,
    "Authentication": SaslConfig,
    TLS_SUBJECT: SslConfig,
    "Topics and requests": RequestConfig,
    "Background work of the logs": LogManagerConfig,
    "Logs": LogConfig,
    "Replication": ReplicationConfig,
    "Quotas": QuotaConfig,
    "Groups": GroupCoordinatorConfig,
    "Transactions": TransactionCoordinatorConfig,
}
"""The settings classes by subject."""

WITHOUT_EFFECT_SUBJECT = "Without effect here"

KEY_GROUPS: Mapping[str, tuple[ConfigKey, ...]] = {
    **{subject: keys_of(each) for subject, each in SETTINGS.items()},
    WITHOUT_EFFECT_SUBJECT: BROKER_KEYS_WITHOUT_EFFECT,
}
"""The broker's keys by subject."""

BROKER_KEYS = BrokerKeys(key for keys in KEY_GROUPS.values() for key in keys)
"""The broker's keys by name."""

KEYS_BY_NAME: Mapping[str, Sequence[ConfigKey]] = _by_all_names(BROKER_KEYS.values())
"""The keys to which a text under a name may give a value: the one of this name, and those that fall back to it."""

KEY_SUBJECTS: Mapping[str, str] = {key.name: subject for subject, keys in KEY_GROUPS.items() for key in keys}
"""The subject of each of the broker's keys that are listed."""

TOPIC_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in topic_keys_of(LogConfig, BROKER_KEYS)}
"""The keys that a topic may set for itself, by name."""

GROUP_KEYS: Mapping[str, ConfigKey] = {
    key.name: key for key in (*group_keys_of(GroupCoordinatorConfig, BROKER_KEYS), *GROUP_KEYS_WITHOUT_EFFECT)
}
"""The keys that a group may set for itself, by name."""


def subject_of(key: ConfigKey) -> str:
    """The subject of a key of the broker; that of one listener need not have the subject of the plain one."""
    if key.listener:
        if key.without_effect:
            return WITHOUT_EFFECT_SUBJECT
        return TLS_SUBJECT if key.field in FIELDS_OF_TLS else LISTENERS_SUBJECT
    return KEY_SUBJECTS[key.name]
