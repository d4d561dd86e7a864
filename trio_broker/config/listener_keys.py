"""Keys of one listener: the prefix ``listener.name.<listener>.`` and a key of the broker.

Kafka takes them for any listener, whether it is there or not, and lets most of them be changed for one broker while it
runs, also those whose plain key is read at a start only. Here the limits of connections hold for their listener, beside
the broker's, and the keys of TLS and of logins in place of the broker's. The others are taken and kept, as other keys
without effect (docs/decisions/0072): threads are shared by all listeners, and Kafka itself reads most of them for the
whole broker only.

The name of the listener is in lower case. Kafka takes another one, too, and never reads it.

Source: Kafka's DynamicBrokerConfig (ListenerConfigRegex, ListenerMechanismConfigs, ClusterLevelListenerConfigs) and
SocketServer (ListenerConnectionQuota).
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from functools import lru_cache

import attrs

from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.config.config_key import ConfigKey, Fallback, UpdateMode, unchanged
from trio_broker.config.keys_without_effect import WITHOUT_EFFECT
from trio_broker.config.socket_server_config import ListenerLimits
from trio_broker.config.ssl_config import SslConfig

_NAME = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<key>.+)", re.DOTALL)

KEYS_OF_MECHANISMS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""These stand behind the name of a SASL mechanism as well: ``listener.name.internal.plain.sasl.jaas.config``."""

CLUSTER_WIDE_KEYS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""The keys that may be a default of the cluster; others are for one broker."""

LIMITS = frozenset(field.name for field in attrs.fields(ListenerLimits))
"""The fields of the settings that limit the connections of a listener."""

FIELDS_OF_TLS = frozenset(field.name for field in attrs.fields(SslConfig))
"""The fields of what a listener with TLS has."""

FIELDS_WITH_EFFECT = (
    LIMITS | FIELDS_OF_TLS | {"sasl_enabled_mechanisms", "sasl_jaas_config", "connections_max_reauth_ms"}
)
"""The fields of the settings that a listener may have for itself."""

LISTENER_PREFIX = "listener.name."
"""Of the keys of one listener; its name follows."""

CACHED_KEYS = 1000
"""Keys of listeners that are kept once they were asked for: clients choose the names."""


class BrokerKeys(Mapping[str, ConfigKey]):
    """The broker's keys by name. Those of one listener are found, and are not among those that are listed."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys = {key.name: key for key in keys}
        self._of_listener = lru_cache(CACHED_KEYS)(self._find_of_listener)

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name] if name in self._keys else self._of_listener(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def items(self) -> ItemsView[str, ConfigKey]:
        return self._keys.items()

    def __len__(self) -> int:
        return len(self._keys)

    def _find_of_listener(self, name: str) -> ConfigKey:
        found = _NAME.fullmatch(name)
        if found is None or found["listener"] != found["listener"].lower():
            raise KeyError(name)
        base = self._keys[_without_mechanism(found["key"])]
        has_effect = base.field in FIELDS_WITH_EFFECT
        return attrs.evolve(
            base,
            name=name,
            listener=found["listener"],
            documentation=base.documentation if has_effect else WITHOUT_EFFECT,
            update_mode=UpdateMode.CLUSTER_WIDE if base.name in CLUSTER_WIDE_KEYS else UpdateMode.PER_BROKER,
            fallbacks=(Fallback(base, unchanged), *base.fallbacks),
            without_effect=not has_effect,
            thread_pool=False,
            replaced_by="",
            field=base.field if has_effect else "",
        )

    def hint(self, name: str) -> str:
        """What may have been meant by a name that is none of a key, as the end of a sentence."""
        if (found := _NAME.fullmatch(name)) is None:
            return did_you_mean(name, self._keys)
        return did_you_mean(found["key"], self._keys, prefix=f"{LISTENER_PREFIX}{found['listener'].lower()}.")


def _without_mechanism(key: str) -> str:
    """``key`` without the name of a SASL mechanism before it."""
    return next((each for each in KEYS_OF_MECHANISMS if key.endswith(f".{each}")), key)
