"""Keys of one listener: the prefix ``listener.name.<listener>.`` and a key of the broker.

Kafka takes them for any listener, whether it is there or not, and lets most of them be changed for one broker while it
runs, also those whose plain key is read at a start only. Here they have no effect: connections, threads and limits are
shared by all listeners. They are taken and kept all the same, as other keys without effect (docs/decisions/0072).

Source: Kafka's DynamicBrokerConfig (ListenerConfigRegex, ListenerMechanismConfigs, ClusterLevelListenerConfigs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import attrs

from trio_broker.config.config_key import ConfigKey, Fallback, UpdateMode, unchanged
from trio_broker.config.keys_without_effect import WITHOUT_EFFECT
from trio_broker.suggestion import did_you_mean

_PREFIX = re.compile(r"listener\.name\.[^.]*\.(?P<key>.+)", re.DOTALL)

KEYS_OF_MECHANISMS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""These stand behind the name of a SASL mechanism as well: ``listener.name.internal.plain.sasl.jaas.config``."""

CLUSTER_WIDE_KEYS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Those that may be a default of the cluster; others are for one broker."""

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

    def __len__(self) -> int:
        return len(self._keys)

    def _find_of_listener(self, name: str) -> ConfigKey:
        base = self._keys[_plain_name(name)]
        return attrs.evolve(
            base,
            name=name,
            documentation=WITHOUT_EFFECT,
            update_mode=UpdateMode.CLUSTER_WIDE if base.name in CLUSTER_WIDE_KEYS else UpdateMode.PER_BROKER,
            fallbacks=(Fallback(base, unchanged), *base.fallbacks),
            without_effect=True,
            thread_pool=False,
            replaced_by="",
            field="",
        )

    def hint(self, name: str) -> str:
        """What may have been meant by a name that is none of a key, as the end of a sentence."""
        found = _PREFIX.fullmatch(name)
        return did_you_mean(name if found is None else found["key"], self._keys)


def _plain_name(name: str) -> str:
    """The name of the broker's key that ``name`` sets for a listener.

    Raises:
        KeyError: it names no listener.
    """
    found = _PREFIX.fullmatch(name)
    if found is None:
        raise KeyError(name)
    key = found["key"]
    return next((each for each in KEYS_OF_MECHANISMS if key.endswith(f".{each}")), key)
