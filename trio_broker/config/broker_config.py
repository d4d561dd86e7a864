"""The broker's settings: layers laid over each other, checked before they change; subscribers are notified.

Four layers, the later one wins: built-in defaults, static (file, environment, command line), the dynamic default of the
cluster, dynamic values of this broker. Names are merged first and fallbacks looked at afterwards, as in Kafka: a
``log.retention.ms`` from any layer wins over a ``log.retention.hours`` from any other.

The settings objects are plain attributes, so that they may stand in the path of a request. A dynamic layer is replaced
as a whole, by the fold over the metadata log; ``check_change`` comes before anything is written there, so what is
persisted was valid when it was written. A persisted value that is no longer valid is left out with a warning: a
broker that does not start cannot be given a better value.

Source: Kafka's DynamicBrokerConfig (layers, validateConfigs), DynamicThreadPool (the rule of half and double).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from trio_broker.config.config_key import INT_MAX, ConfigKey, UpdateMode
from trio_broker.config.consistency import check_broker_consistency
from trio_broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from trio_broker.config.errors import ConfigError
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.keys import BROKER_KEYS, KEY_GROUPS, SETTINGS
from trio_broker.config.listeners import advertised_endpoints
from trio_broker.config.log_config import LogConfig
from trio_broker.config.log_manager_config import LogManagerConfig
from trio_broker.config.node_config import NodeConfig, RequestConfig
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.config.static_settings import StaticSettings, gather_settings
from trio_broker.suggestion import did_you_mean

log = logging.getLogger(__name__)


THREAD_POOLS = tuple(key for key in BROKER_KEYS.values() if key.thread_pool)


class ConfigScope(enum.Enum):
    """Which brokers a dynamic value is meant for."""

    CLUSTER = "cluster"
    """Every broker that has no value of its own; the broker resource with an empty name."""
    BROKER = "broker"
    """This broker; the broker resource named by the node id."""

    @property
    def source(self) -> ConfigSource:
        """How DescribeConfigs calls this layer."""
        if self is ConfigScope.CLUSTER:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return ConfigSource.DYNAMIC_BROKER_CONFIG


@attrs.frozen
class PoolLimits:
    """The size of a pool, and the smallest and largest that one change may make it."""

    current: int
    minimum: int
    maximum: int


@attrs.frozen
class ValueChange:
    """An effective value before and after, as text; None where there is none, or it is a secret."""

    name: str
    old: str | None
    new: str | None


ChangeObserver = Callable[[tuple[ValueChange, ...], str], None]
"""Receives the effective values that changed, and the client that changed them."""


class BrokerConfig:
    """The effective settings of one broker, as one settings object for each part of it.

    The objects are replaced when a value in them changes, so a reader takes them from here each time or subscribes.
    """

    node: NodeConfig
    socket_server: SocketServerConfig
    request: RequestConfig
    log_manager: LogManagerConfig
    log: LogConfig
    """The defaults of topics; ``resource_config.topic_config`` lays a topic's own settings over them."""
    group_coordinator: GroupCoordinatorConfig

    def __init__(self, static: Mapping[str, str] | None = None, origins: Mapping[str, str] | None = None) -> None:
        """Take the static layer; ``origins`` says for error lines where each of its keys was found.

        A key that is not in the table is kept in ``warnings`` and otherwise ignored: Kafka's files are full of them.

        Raises:
            ConfigError: a value is not valid, or two contradict each other.
        """
        self.warnings: list[str] = []
        """One line for each thing in the static layer that has no effect."""
        origins = origins or {}
        self._static: dict[str, str] = {}
        for name, text in (static or {}).items():
            prefix = f"{origins[name]}: " if name in origins else ""
            if (key := BROKER_KEYS.get(name)) is None:
                hint = did_you_mean(name, BROKER_KEYS)
                self.warnings.append(f"{prefix}{name} is not a key of this broker and is ignored{hint}")
                continue
            try:
                key.parse(text)
            except ConfigError as error:
                raise ConfigError(f"{prefix}{error}", key=name) from None
            self._static[name] = text
        self._dynamic: dict[ConfigScope, dict[str, str]] = {scope: {} for scope in ConfigScope}
        self._subscribers: dict[str, list[Callable[[Any], None]]] = {}
        self._observers: list[ChangeObserver] = []
        self._checked: _Checked | None = None
        self._take(self._check_layers(self._dynamic))

    def value(self, key: ConfigKey) -> Any:
        """Return the effective value of ``key``, for readers that walk the table; others read the settings objects."""
        return self._values[key.name]

    def dynamic(self, scope: ConfigScope) -> Mapping[str, str]:
        """Return the texts that are set dynamically in ``scope``."""
        return dict(self._dynamic[scope])

    # --- change ---

    def check_change(
        self, scope: ConfigScope, changes: Mapping[str, str | None], *, any_pool_size: bool = False
    ) -> None:
        """Check that ``changes`` could be applied to ``scope``; None takes a value away.

        What was computed for the check is kept: applying the same change takes it from there.

        Raises:
            ConfigError: a key is unknown or may not be changed there, a value is not valid, a pool would more than
                double or halve without ``any_pool_size``, or values contradict each other.
        """
        _refuse_read_only(changes)
        for name in changes:
            _changeable_key(name, scope)
        layer = {**self._dynamic[scope], **changes}
        dynamic = {**self._dynamic, scope: {name: text for name, text in layer.items() if text is not None}}
        checked = self._check_layers(dynamic)
        if not any_pool_size:
            for key in THREAD_POOLS:
                _check_pool_size(key, self.pool_limits(key), checked.values[key.name])
        self._checked = checked

    def check_value(self, scope: ConfigScope, name: str, text: str | None) -> None:
        """Check one key of a change by itself, without its effect on others; ``check_change`` does the rest.

        Raises:
            ConfigError: the key is unknown or may not be changed in ``scope``, or the value is not valid.
        """
        key = _changeable_key(name, scope)
        if text is not None:
            key.parse(text)

    def pool_limits(self, key: ConfigKey) -> PoolLimits:
        """Return what the size of a pool may be changed to now; half of an odd size is rounded down."""
        current = self.value(key)
        return PoolLimits(current, max(1, current // 2), min(current * 2, INT_MAX))

    def set_dynamic(
        self, scope: ConfigScope, values: Mapping[str, str], *, changed_by: str = ""
    ) -> tuple[ValueChange, ...]:
        """Replace what is set dynamically in ``scope`` and notify the subscribers of each value that changed.

        ``changed_by`` names the client that asked for it, for the journal. A subscriber that raises is logged; the
        others and the observers are notified all the same, since the value counts already. Returns the effective
        values that changed.
        """
        self._dynamic[scope] = _valid_texts(scope, values)
        checked = self._checked
        if checked is None or checked.dynamic != self._dynamic:
            checked = self._check_layers(self._dynamic, strict=False)
        before = self._values
        self._take(checked)
        changes = tuple(
            ValueChange(name, _shown(key, before[name]), _shown(key, self._values[name]))
            for name, key in BROKER_KEYS.items()
            if before[name] != self._values[name]
        )
        for change in changes:
            log.info("%s changed from %s to %s", change.name, change.old, change.new)
            for callback in tuple(self._subscribers.get(change.name, ())):
                _notify(change.name, callback, self._values[change.name])
        if changes:
            for observer in tuple(self._observers):
                _notify("the settings", observer, changes, changed_by)
        return changes

    def subscribe(self, name: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call ``callback`` with the new value whenever the effective value of the key ``name`` changes.

        Returns a function that ends this.
        """
        assert name in BROKER_KEYS, name
        callbacks = self._subscribers.setdefault(name, [])
        callbacks.append(callback)
        return lambda: callbacks.remove(callback)

    def subscribe_all(self, callback: ChangeObserver) -> Callable[[], None]:
        """Call ``callback`` once for each replaced layer with all values that it changed in effect, and by whom.

        Returns a function that ends this.
        """
        self._observers.append(callback)
        return lambda: self._observers.remove(callback)

    # --- description ---

    def entries(self) -> list[ConfigEntry]:
        """Describe every key as it stands for this broker."""
        return [self._entry(key) for key in BROKER_KEYS.values() if not key.internal]

    def default_entries(self) -> list[ConfigEntry]:
        """Describe the dynamic defaults of the cluster: only what is set, as Kafka does for the unnamed broker."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries = []
        for name, text in self._dynamic[ConfigScope.CLUSTER].items():
            key = BROKER_KEYS[name]
            synonym = ConfigSynonym(name, None if key.sensitive else text, source)
            entries.append(_describe(key, synonym.value, (synonym,)))
        return entries

    def synonyms(self, key: ConfigKey) -> tuple[ConfigSynonym, ...]:
        """Return every place that a value of ``key`` could come from, the one that counts first."""
        layers: list[tuple[ConfigSource, Mapping[str, str | None]]] = [
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self._dynamic[ConfigScope.BROKER]),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._dynamic[ConfigScope.CLUSTER]),
            (ConfigSource.STATIC_BROKER_CONFIG, self._static),
            # As in Kafka, the default of a fallback is no synonym: it shows with its own key.
            (ConfigSource.DEFAULT_CONFIG, {key.name: key.default_text}),
        ]
        return tuple(
            ConfigSynonym(name, None if key.sensitive else text, source)
            for source, layer in layers
            for name in key.names
            if (text := layer.get(name)) is not None
        )

    def _entry(self, key: ConfigKey) -> ConfigEntry:
        text = self._merged(self._dynamic).get(key.name, key.default_text)
        return _describe(key, None if key.sensitive else text, self.synonyms(key))

    # --- layers ---

    def _merged(self, dynamic: Mapping[ConfigScope, Mapping[str, str]]) -> dict[str, str]:
        return {**self._static, **dynamic[ConfigScope.CLUSTER], **dynamic[ConfigScope.BROKER]}

    def _check_layers(self, dynamic: Mapping[ConfigScope, Mapping[str, str]], *, strict: bool = True) -> _Checked:
        """Return what the layers come to.

        Raises:
            ConfigError: a value is not valid, or values contradict each other; the latter only if ``strict``, since
                what was persisted before a rule existed must not keep a broker from its other settings.
        """
        merged = self._merged(dynamic)
        values = {name: key.value_in(merged) for name, key in BROKER_KEYS.items()}
        sections = {
            subject: section(**{key.field: values[key.name] for key in KEY_GROUPS[subject] if key.field})
            for subject, section in SETTINGS.items()
        }
        if strict:
            check_broker_consistency(values, sections["Logs"], sections["Groups"])
        return _Checked({scope: dict(layer) for scope, layer in dynamic.items()}, values, sections)

    def _take(self, checked: _Checked) -> None:
        self._values = checked.values
        self._checked = None
        self.node = checked.sections["Node"]
        self.socket_server = checked.sections["Listeners and connections"]
        self.request = checked.sections["Topics and requests"]
        self.log_manager = checked.sections["Background work of the logs"]
        self.log = checked.sections["Logs"]
        self.group_coordinator = checked.sections["Groups"]


@attrs.frozen
class _Checked:
    """Dynamic layers and what all layers come to: values by name, and the settings objects by subject."""

    dynamic: Mapping[ConfigScope, Mapping[str, str]]
    values: Mapping[str, Any]
    sections: Mapping[str, Any]


def _notify(subject: str, callback: Callable[..., None], *arguments: Any) -> None:
    """Call one subscriber, behind a barrier."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a part of the broker could not follow the change of %s", subject)


def _refuse_read_only(names: Iterable[str]) -> None:
    """Raise ``ConfigError`` if any of the keys is read-only: in Kafka's words, which name all of them.

    A Scala set prints itself as ``Set(…)``; Kafka's own tests and tools written for Kafka look for that text.
    """
    read_only = [
        name for name in names if name in BROKER_KEYS and BROKER_KEYS[name].update_mode is UpdateMode.READ_ONLY
    ]
    if read_only:
        raise ConfigError(f"Cannot update these configs dynamically: Set({', '.join(read_only)})", key=read_only[0])


def _changeable_key(name: str, scope: ConfigScope) -> ConfigKey:
    if (key := BROKER_KEYS.get(name)) is None:
        raise ConfigError(f"{name} is not a key of this broker", key=name)
    if key.update_mode is UpdateMode.READ_ONLY:
        raise ConfigError(f"{name} cannot be updated dynamically: it is read at start only", key=name)
    if key.update_mode is UpdateMode.PER_BROKER and scope is ConfigScope.CLUSTER:
        raise ConfigError(f"{name} cannot be a default of the cluster: it must be set for one broker", key=name)
    return key


def _check_pool_size(key: ConfigKey, limits: PoolLimits, wanted: int) -> None:
    """Refuse to resize a pool by more than a factor of two at once.

    Raises:
        ConfigError: as said; ``wanted`` below 1 never gets here, the key's own limit refuses it.
    """
    failed = f"the thread count {key.name}={wanted} is refused: it must be"
    if wanted < limits.minimum:
        raise ConfigError(f"{failed} at least half the current value {limits.current}", key=key.name)
    if wanted > limits.maximum:
        raise ConfigError(f"{failed} at most double the current value {limits.current}", key=key.name)


def _valid_texts(scope: ConfigScope, values: Mapping[str, str]) -> dict[str, str]:
    valid = {}
    for name, text in values.items():
        try:
            _changeable_key(name, scope).parse(text)
        except ConfigError as error:
            log.warning("ignoring a persisted dynamic value: %s", error)
        else:
            valid[name] = text
    return valid


def _describe(key: ConfigKey, value: str | None, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        read_only=key.update_mode is UpdateMode.READ_ONLY,
        sensitive=key.sensitive,
        type=key.type,
        documentation=key.documentation,
        update_mode=key.update_mode,
        default=None if key.sensitive else key.default_text,
    )


def _shown(key: ConfigKey, value: Any) -> str | None:
    """Return the text of a value for display; None without a value or for a secret."""
    return None if key.sensitive or value is None else key.text_of(value)


def load_broker_config(
    path: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Return the settings of ``path``, ``environment`` and ``overrides`` (the command line), checked as a whole.

    Raises:
        ConfigError: the file cannot be read, or something in it or beside it is not valid; one line that says where.
    """
    return broker_config_of(gather_settings(path, overrides or {}, environment or {}))


def broker_config_of(settings: StaticSettings) -> BrokerConfig:
    """Return what was gathered, checked as a whole.

    Raises:
        ConfigError: something in it is not valid; one line that says where.
    """
    config = BrokerConfig(settings.values, settings.origins)
    config.warnings[:0] = settings.warnings
    advertised_endpoints(config.socket_server)
    return config
