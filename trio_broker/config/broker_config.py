"""The broker's settings: static and dynamic layers, and checks before a change.

There are four layers, of which a later one wins: built-in defaults, static settings (file, environment, command line),
dynamic defaults of the cluster, dynamic values of this broker. The layers are merged before fallbacks are applied: a
``log.retention.ms`` in any layer wins over a ``log.retention.hours`` in any other.

The settings objects are plain attributes, so reading them costs a request almost nothing. A dynamic layer is replaced
as a whole when the metadata log has a change. ``check_change`` is called before a change is written there, so a
persisted value was valid when it was written. A persisted value that is not valid any more is ignored with a warning,
or counts as the largest value where it is above that, because a broker that refuses to start could not be given a
better value.

Source: Kafka's DynamicBrokerConfig (layers, validateConfigs), DynamicThreadPool (the rule of half and double).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import attrs

from trio_broker.config.alert_config import AlertConfig
from trio_broker.config.authorizer_config import AuthorizerConfig
from trio_broker.config.config_key import ConfigKey, UpdateMode
from trio_broker.config.consistency import check_broker_consistency
from trio_broker.config.entries import (
    ON_TRIAL,
    ConfigDifference,
    ConfigEntry,
    ConfigLevel,
    ConfigLevelValue,
    ConfigScope,
    ConfigSource,
    ConfigSynonym,
    ValueChange,
)
from trio_broker.config.errors import ConfigError, ContradictorySettings
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.keys import BROKER_KEYS, KEY_GROUPS, KEYS_BY_NAME, LISTENERS_SUBJECT, SETTINGS, TLS_SUBJECT
from trio_broker.config.listener_keys import LIMITS, LISTENER_PREFIX
from trio_broker.config.listeners import advertised_endpoints, inter_broker_listener
from trio_broker.config.log_config import LogConfig
from trio_broker.config.log_manager_config import LogManagerConfig
from trio_broker.config.metadata_store_config import MetadataStoreConfig
from trio_broker.config.node_config import NodeConfig, RequestConfig
from trio_broker.config.quota_config import QuotaConfig
from trio_broker.config.replication_config import ReplicationConfig
from trio_broker.config.sasl_config import SaslConfig
from trio_broker.config.socket_server_config import ListenerLimits, SocketServerConfig
from trio_broker.config.ssl_config import SslConfig
from trio_broker.config.static_settings import SettingsFile, StaticSetting, StaticSettings, gather_settings
from trio_broker.config.transaction_coordinator_config import TransactionCoordinatorConfig
from trio_broker.config.validators import MAX_POOL_SIZE

log = logging.getLogger(__name__)


LEVEL_TEXTS = {
    ConfigLevel.BROKER: "the dynamic value of this broker",
    ConfigLevel.CLUSTER: "the dynamic default of the cluster",
    ConfigLevel.COMMAND_LINE: "given to the program",
    ConfigLevel.BUILT_IN: "the default",
}
"""Where a value without an origin of its own was set."""

THREAD_POOLS = tuple(key for key in BROKER_KEYS.values() if key.thread_pool)

DEFAULTS = {name: key.default for name, key in BROKER_KEYS.items()}


@attrs.frozen
class PoolLimits:
    """The size of a pool, and the smallest and largest that one change may make it."""

    current: int
    minimum: int
    maximum: int


ReconfigurationValidator = Callable[["BrokerConfig", Collection[str]], None]
"""Raises ConfigError for settings that a part of the broker could not follow, of which the names are new; may block.

Source: Kafka's Reconfigurable.validateReconfiguration."""


class BrokerConfig:
    """The effective settings of one broker, as one settings object for each part of the broker.

    An object is replaced when a value in it changes, so a reader gets it from here each time. A part that must act on a
    change is a ``BrokerReconfigurable``.
    """

    node: NodeConfig
    metadata_store: MetadataStoreConfig
    authorizer: AuthorizerConfig
    alerts: AlertConfig
    socket_server: SocketServerConfig
    sasl: SaslConfig
    request: RequestConfig
    log_manager: LogManagerConfig
    replication: ReplicationConfig
    quota: QuotaConfig
    log: LogConfig
    """The defaults of topics, which ``resource_config.topic_config`` combines with a topic's own settings."""
    group_coordinator: GroupCoordinatorConfig
    transaction_coordinator: TransactionCoordinatorConfig

    def __init__(self, static: Mapping[str, str] | StaticSettings | None = None) -> None:
        """Check and take the static layer.

        A key that nobody knows only gives a warning: a file may be written for another version of Kafka.

        Raises:
            ConfigError: a value is not valid, or two contradict each other.
        """
        settings = static if isinstance(static, StaticSettings) else _given_settings(static or {})
        self.warnings = list(settings.warnings)
        """One line for each static setting that is ignored or deprecated."""
        self.without_effect: list[str] = []
        """One line for each static setting of a key of Kafka that has no effect here."""
        self.validators: list[ReconfigurationValidator] = []
        """Of parts of the broker, asked before a change is written."""
        self._static_levels = settings.levels
        self._static: dict[str, str] = {}
        for name, setting in settings.effective.items():
            text, prefix = setting.text, f"{setting.origin}: " if setting.origin else ""
            if (key := BROKER_KEYS.get(name)) is None:
                hint = BROKER_KEYS.hint(name)
                self.warnings.append(f"{prefix}{name} is not a key of this broker and is ignored{hint}")
                continue
            try:
                self._static[name] = key.canonical(text)
            except ConfigError as error:
                raise ConfigError(f"{prefix}{error}", key=name) from None
            if key.replaced_by:
                self.warnings.append(f"{prefix}{name} is deprecated: use {key.replaced_by}")
            if key.without_effect:
                self.without_effect.append(f"{prefix}{name} has no effect here")
        _set_both_names(self._static)
        self._dynamic: dict[ConfigScope, dict[str, str]] = {scope: {} for scope in ConfigScope}
        self._tried: dict[str, str | None] = {}
        self._checked: _Checked | None = None
        self._texts: Mapping[str, str] = {}
        self._values: Mapping[str, Any] = DEFAULTS
        self._take(self._check_layers(self._dynamic, self._tried))

    def value(self, key: ConfigKey) -> Any:
        """Return the effective value of ``key``, for code about all keys; other code reads the settings objects."""
        # That of one listener is not among them.
        return self._values[key.name] if key.name in self._values else key.value_in(self._texts)

    def listener_value(self, listener: str, name: str, mechanism: str = "") -> Any:
        """Return the value of the key ``name`` for a listener, and for one of its SASL mechanisms if one is given."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        own = (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}")
        return self.value(BROKER_KEYS[next((each for each in own if each in self._texts), name)])

    def ssl_of(self, listener: str) -> SslConfig:
        """Return what a listener has for TLS: its own keys, and the broker's where it has none."""
        return SslConfig(**{key.field: self.listener_value(listener, key.name) for key in KEY_GROUPS[TLS_SUBJECT]})

    @property
    def static_texts(self) -> Mapping[str, str]:
        """What file, environment and command line say, without secrets."""
        return {name: text for name, text in self._static.items() if not BROKER_KEYS[name].sensitive}

    def dynamic(self, scope: ConfigScope) -> Mapping[str, str]:
        """Return the texts that are set dynamically in ``scope``."""
        return dict(self._dynamic[scope])

    def with_dynamic(self, layers: Mapping[ConfigScope, Mapping[str, str]]) -> BrokerConfig:
        """Return settings with the same static layer and these dynamic ones, without anything on trial."""
        other = copy(self)
        other._tried = {}
        other._dynamic = {scope: _valid_texts(scope, values) for scope, values in layers.items()}
        other._take(other._check_layers(other._dynamic, {}, strict=False))
        return other

    # --- change ---

    def check_change(
        self, scope: ConfigScope, changes: Mapping[str, str | None], *, any_pool_size: bool = False
    ) -> None:
        """Check that ``changes`` can be applied to ``scope``; None removes a value.

        The computed settings are kept, and used when the same change is applied.

        Raises:
            ConfigError: a key is unknown or may not be changed there, a value is not valid, a pool would more than
                double or halve without ``any_pool_size``, or values contradict each other.
        """
        _refuse_read_only(changes)
        dynamic = {**self._dynamic, scope: overlaid(self._dynamic[scope], _canonical_texts(scope, changes))}
        checked = self._check_layers(dynamic, self._tried_after(dynamic))
        if not any_pool_size:
            for key in THREAD_POOLS:
                _check_pool_size(key, self.pool_limits(key), checked.values[key.name])
        self._checked = checked

    def changed(self, scope: ConfigScope, changes: Mapping[str, str | None]) -> BrokerConfig:
        """Return the settings as they would be with ``changes``.

        Raises:
            ConfigError: as ``check_change``, but for the sizes of pools.
        """
        other = copy(self)
        other.check_change(scope, changes, any_pool_size=True)
        assert other._checked is not None, "it was checked"
        other._take(other._checked)
        return other

    def check_value(self, scope: ConfigScope, name: str, text: str | None) -> None:
        """Check one key of a change by itself, without its effect on other keys, which ``check_change`` checks.

        Raises:
            ConfigError: the key is unknown or may not be changed in ``scope``, or the value is not valid.
        """
        key = _changeable_key(name, scope)
        if text is not None:
            key.parse(text)

    def preview(self, scope: ConfigScope, changes: Mapping[str, str | None]) -> tuple[ConfigDifference, ...]:
        """Return what ``changes`` of ``scope`` do, which ``check_change`` has accepted and which are not made yet."""
        changes = _canonical_texts(scope, changes)
        dynamic = {**self._dynamic, scope: overlaid(self._dynamic[scope], changes)}
        tried = self._tried_after(dynamic)
        merged, stronger = self._merged(dynamic, tried), overlaid(dynamic[ConfigScope.BROKER], tried)
        differences = []
        for name, text in changes.items():
            key = BROKER_KEYS[name]
            is_shadowed = scope is ConfigScope.CLUSTER and name in stronger
            differences.append(
                ConfigDifference(
                    key=name,
                    old=None if key.sensitive else self._dynamic[scope].get(name),
                    new=None if key.sensitive else text,
                    effective_old=shown_value(key, self.value(key)),
                    effective_new=shown_value(key, key.value_in(merged)),
                    shadowed_by=ConfigLevel.BROKER if is_shadowed else None,
                )
            )
        return tuple(differences)

    def pool_limits(self, key: ConfigKey) -> PoolLimits:
        """Return the sizes to which one change may set a pool now; half of an odd size is rounded down."""
        current = self.value(key)
        return PoolLimits(current, max(1, current // 2), min(current * 2, MAX_POOL_SIZE))

    def set_dynamic(self, scope: ConfigScope, values: Mapping[str, str]) -> tuple[ValueChange, ...]:
        """Replace the dynamic values of ``scope``; return the effective values that changed.

        A value for this broker ends the trial of its key.
        """
        dynamic = {**self._dynamic, scope: _valid_texts(scope, values)}
        tried = self._tried_after(dynamic)
        checked = self._checked
        if checked is None or (checked.dynamic, checked.tried) != (dynamic, tried):
            checked = self._check_layers(dynamic, tried, strict=False)
        self._dynamic, self._tried = dynamic, tried
        return self._switch(checked)

    def _tried_after(self, dynamic: Mapping[ConfigScope, Mapping[str, str]]) -> dict[str, str | None]:
        """What is left of the trial once ``dynamic`` counts."""
        before, after = self._dynamic[ConfigScope.BROKER], dynamic[ConfigScope.BROKER]
        return {name: text for name, text in self._tried.items() if before.get(name) == after.get(name)}

    # --- trials ---

    @property
    def tried(self) -> Mapping[str, str | None]:
        """The texts on trial, which are in effect and in no layer; None stands for a value that is taken away."""
        return dict(self._tried)

    def check_trial(self, values: Mapping[str, str | None]) -> _Checked:
        """Check that ``values`` can be tried.

        Raises:
            ConfigError: as ``check_change``, or a key is a default of topics: by a retention that was tried for a
                second records are deleted for good.
        """
        _refuse_read_only(values)
        texts = _canonical_texts(ConfigScope.BROKER, values)
        for name in texts:
            if BROKER_KEYS[name] in KEY_GROUPS["Logs"]:
                raise ConfigError(f"{name} cannot be tried: what it does to the logs of topics stays", key=name)
        return self._check_layers(self._dynamic, {**self._tried, **texts})

    def try_values(self, values: Mapping[str, str | None]) -> tuple[ValueChange, ...]:
        """Lay ``values`` over this broker's own until ``end_trial``; return the effective values that changed.

        They are in memory only, so that neither a crash nor a full disk can make a tried value stay.

        Raises:
            ConfigError: as ``check_trial``.
        """
        checked = self.check_trial(values)
        self._tried = {**checked.tried}
        return self._switch(checked)

    def end_trial(self) -> tuple[ValueChange, ...]:
        """Go back to what the layers say; return the effective values that changed."""
        self._tried = {}
        return self._switch(self._check_layers(self._dynamic, self._tried, strict=False))

    def _switch(self, checked: _Checked) -> tuple[ValueChange, ...]:
        before, before_texts = self._values, self._texts
        self._take(checked)
        changes = tuple(
            ValueChange(name, shown_value(key, before[name]), shown_value(key, self._values[name]))
            for name, key in BROKER_KEYS.items()
            if before[name] != self._values[name]
        )
        changes += tuple(
            ValueChange(name, shown_value(key, key.value_in(before_texts)), shown_value(key, self.value(key)))
            for name in sorted({*before_texts, *self._texts}.difference(self._values))
            if before_texts.get(name) != self._texts.get(name)
            for key in (BROKER_KEYS[name],)
        )
        for change in changes:
            key = BROKER_KEYS[change.name]
            effect = ", without effect here" if key.without_effect else ""
            values = " (hidden)" if key.sensitive else f" from {change.old} to {change.new}"
            log.info("%s changed%s%s", change.name, values, effect)
        return changes

    # --- description ---

    def entries(self, names: Container[str] | None = None) -> list[ConfigEntry]:
        """Describe every key, or those of these ``names``, with its effective value for this broker.

        A key without effect is described only where it is set, as Kafka does with the rates of its throttles.
        """
        return [
            self._entry(key)
            for key in (*BROKER_KEYS.values(), *map(BROKER_KEYS.__getitem__, self._of_listeners))
            if not key.internal
            and (key.name in self._texts or not key.without_effect)
            and (names is None or key.name in names)
        ]

    @property
    def _of_listeners(self) -> list[str]:
        """The keys of single listeners that are set."""
        return [name for name in self._texts if name not in self._values]

    def entry(self, name: str) -> ConfigEntry | None:
        """Describe one key as ``entries`` does, even if it is not set; None if there is none of this name."""
        key = BROKER_KEYS.get(name)
        return None if key is None or key.internal else self._entry(key)

    def default_entries(self) -> list[ConfigEntry]:
        """Describe the dynamic defaults of the cluster: only what is set, as Kafka does for the unnamed broker."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries = []
        for name, text in self._dynamic[ConfigScope.CLUSTER].items():
            key = BROKER_KEYS[name]
            if key.internal:
                continue
            synonym = ConfigSynonym(name, None if key.sensitive else text, source)
            entries.append(_describe(key, synonym.value, (synonym,)))
        return entries

    def synonyms(self, key: ConfigKey) -> tuple[ConfigSynonym, ...]:
        """Return the synonyms of ``key`` that have a value, in order of precedence."""
        found = [
            ConfigSynonym(name, None if key.sensitive else layer[name], source)
            for source, layer in self._layers.items()
            for name in key.names
            if name in layer
        ]
        # As in Kafka, the default of a fallback is a synonym only of a key that is set: it shows with its own key.
        is_set = any(each.name == key.name for each in found)
        for each in (key, *(fallback.key for fallback in key.fallbacks)) if is_set else (key,):
            if (default := each.default_text) is not None:
                shown = None if key.sensitive else default
                found.append(ConfigSynonym(each.name, shown, ConfigSource.DEFAULT_CONFIG))
        return tuple(found)

    def level_values(self, key: ConfigKey) -> tuple[ConfigLevelValue, ...]:
        """Return the value of ``key`` and of its fallbacks at each level that has one, the strongest level first.

        The value in effect need not be that of the strongest level: the key's own name wins over a fallback's.
        """
        given, built_in = _given_values(key, self._levels), _built_in_values(key)
        in_effect = _in_effect(key, given, built_in)
        return tuple(
            ConfigLevelValue(
                level=each[0],
                name=each[1],
                value=None if key.sensitive else each[2].text,
                origin=each[2].origin,
                wins=each is in_effect,
            )
            for each in given + built_in
        )

    def with_origin(self, key: ConfigKey) -> str:
        """Return the value of ``key`` that is in effect and where it was set, for the text of an error."""
        return _with_origin(key, self._levels)

    def _entry(self, key: ConfigKey) -> ConfigEntry:
        text = self._texts.get(key.name, key.default_text)
        return _describe(key, None if key.sensitive else text, self.synonyms(key))

    # --- layers ---

    def _merged(
        self, dynamic: Mapping[ConfigScope, Mapping[str, str]], tried: Mapping[str, str | None]
    ) -> dict[str, str]:
        return {**self._static, **dynamic[ConfigScope.CLUSTER], **overlaid(dynamic[ConfigScope.BROKER], tried)}

    def _check_layers(
        self,
        dynamic: Mapping[ConfigScope, Mapping[str, str]],
        tried: Mapping[str, str | None],
        *,
        strict: bool = True,
    ) -> _Checked:
        """Return the effective settings of the layers with the values on trial.

        Raises:
            ConfigError: a value is not valid or, only if ``strict``, values contradict each other. Persisted values may
                be older than a rule about them, and must not prevent the other settings.
        """
        merged = self._merged(dynamic, tried)
        changed = {name for name, _ in merged.items() ^ self._texts.items()}
        keys = (key for name in changed for key in KEYS_BY_NAME.get(name, ()))
        values = {**self._values, **{key.name: key.value_in(merged) for key in keys}}
        sections = {
            subject: section(**{key.field: values[key.name] for key in KEY_GROUPS[subject] if key.field})
            for subject, section in SETTINGS.items()
        }
        sections[LISTENERS_SUBJECT].listener_limits = _listener_limits(merged)
        layers = {scope: dict(layer) for scope, layer in dynamic.items()}
        if strict:
            try:
                check_broker_consistency(values, sections["Logs"], sections["Groups"])
            except ContradictorySettings as error:
                levels = self._levels_of(layers, tried)
                origins = ", ".join(_with_origin(BROKER_KEYS[name], levels) for name in error.keys)
                raise ConfigError(f"{error}: {origins}") from None
        return _Checked(layers, dict(tried), merged, values, sections)

    def _levels_of(
        self, dynamic: Mapping[ConfigScope, Mapping[str, str]], tried: Mapping[str, str | None]
    ) -> Mapping[ConfigLevel, Mapping[str, StaticSetting]]:
        """What each level sets, the strongest level first."""
        return {
            ConfigLevel.BROKER: _given(overlaid(dynamic[ConfigScope.BROKER], tried), tried),
            ConfigLevel.CLUSTER: _given(dynamic[ConfigScope.CLUSTER]),
            **dict(reversed(self._static_levels.items())),
        }

    def _take(self, checked: _Checked) -> None:
        """Take the settings of the layers, and keep the layers as descriptions read them: there are many keys."""
        own = overlaid(checked.dynamic[ConfigScope.BROKER], checked.tried)
        cluster = checked.dynamic[ConfigScope.CLUSTER]
        self._texts = checked.texts
        self._layers: Mapping[ConfigSource, Mapping[str, str]] = {
            ConfigSource.DYNAMIC_BROKER_CONFIG: own,
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: cluster,
            ConfigSource.STATIC_BROKER_CONFIG: self._static,
        }
        self._levels = self._levels_of(checked.dynamic, checked.tried)
        self._values = checked.values
        self._checked = None
        self.node = checked.sections["Node"]
        self.metadata_store = checked.sections["Metadata store"]
        self.authorizer = checked.sections["Authorisation"]
        self.alerts = checked.sections["Alerts"]
        self.socket_server = checked.sections[LISTENERS_SUBJECT]
        self.sasl = checked.sections["Authentication"]
        self.request = checked.sections["Topics and requests"]
        self.log_manager = checked.sections["Background work of the logs"]
        self.replication = checked.sections["Replication"]
        self.quota = checked.sections["Quotas"]
        self.log = checked.sections["Logs"]
        self.group_coordinator = checked.sections["Groups"]
        self.transaction_coordinator = checked.sections["Transactions"]


@attrs.frozen
class _Checked:
    """The dynamic layers, the values on trial, and the effective settings: texts and values by name, objects by
    subject."""

    dynamic: Mapping[ConfigScope, Mapping[str, str]]
    tried: Mapping[str, str | None]
    texts: Mapping[str, str]
    values: Mapping[str, Any]
    sections: Mapping[str, Any]


def overlaid(layer: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """``layer`` with ``changes``; None takes a value away."""
    return {name: text for name, text in {**layer, **changes}.items() if text is not None}


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
        raise ConfigError(f"{name} is not a key of this broker{BROKER_KEYS.hint(name)}", key=name)
    if key.update_mode is UpdateMode.READ_ONLY:
        raise ConfigError(f"{name} cannot be updated dynamically: it is read at start only", key=name)
    if key.update_mode is UpdateMode.PER_BROKER and scope is ConfigScope.CLUSTER:
        raise ConfigError(f"{name} cannot be a default of the cluster: it must be set for one broker", key=name)
    return key


def _canonical_texts(scope: ConfigScope, changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return ``changes`` with their texts as Kafka writes them.

    Raises:
        ConfigError: a key may not be changed in ``scope``, or a text is not valid.
    """
    keys = {name: _changeable_key(name, scope) for name in changes}
    return {name: None if text is None else keys[name].canonical(text) for name, text in changes.items()}


def _listener_limits(texts: Mapping[str, str]) -> dict[str, ListenerLimits]:
    """Return the limits of each listener that has its own in ``texts``."""
    fields: dict[str, dict[str, int]] = {}
    for name, text in texts.items():
        if name.startswith(LISTENER_PREFIX) and (key := BROKER_KEYS[name]).field in LIMITS:
            fields.setdefault(key.listener, {})[key.field] = key.parse(text)
    return {listener: ListenerLimits(**own) for listener, own in fields.items()}


def _set_both_names(texts: dict[str, str]) -> None:
    """Give each of ``node.id`` and ``broker.id`` the value of the other where it has none, as Kafka does."""
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if other in texts:
            texts.setdefault(name, texts[other])


def _check_pool_size(key: ConfigKey, limits: PoolLimits, wanted: int) -> None:
    """Refuse to resize a pool by more than a factor of two at once.

    Raises:
        ConfigError: the size is outside the limits. A size below 1 is refused before, by the key's own limit.
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
            key = _changeable_key(name, scope)
            valid[name] = key.canonical(key.persisted(text))
        except ConfigError as error:
            log.warning("ignoring a persisted dynamic value of the %s: %s", scope.value, error)
    return valid


def _given_settings(static: Mapping[str, str]) -> StaticSettings:
    """Return settings that a program has given, without a file, a variable or an option."""
    settings = StaticSettings()
    settings.levels[ConfigLevel.COMMAND_LINE] = _given(static)
    return settings


def _given(layer: Mapping[str, str], tried: Container[str] = ()) -> dict[str, StaticSetting]:
    return {name: StaticSetting(text, ON_TRIAL if name in tried else "") for name, text in layer.items()}


_LevelValue = tuple[ConfigLevel, str, StaticSetting]
"""A level, the name of a key or of its fallback, and what is set there."""


def _given_values(key: ConfigKey, levels: Mapping[ConfigLevel, Mapping[str, StaticSetting]]) -> list[_LevelValue]:
    return [(level, name, layer[name]) for level, layer in levels.items() for name in key.names if name in layer]


def _built_in_values(key: ConfigKey) -> list[_LevelValue]:
    return [
        (ConfigLevel.BUILT_IN, each.name, StaticSetting(each.default_text, ""))
        for each in (key, *(fallback.key for fallback in key.fallbacks))
        if each.default_text is not None
    ]


def _in_effect(key: ConfigKey, given: Sequence[_LevelValue], built_in: Sequence[_LevelValue]) -> _LevelValue | None:
    # Defaults count only where nothing is set, so they do not take part in the order of names.
    return min(given or built_in, key=lambda each: key.names.index(each[1]), default=None)


def _with_origin(key: ConfigKey, levels: Mapping[ConfigLevel, Mapping[str, StaticSetting]]) -> str:
    found = _in_effect(key, _given_values(key, levels), _built_in_values(key))
    if found is None:
        return f"{key.name} is not set"
    level, name, setting = found
    shown = "(hidden)" if key.sensitive else setting.text
    return f"{name}={shown} ({setting.origin or LEVEL_TEXTS[level]})"


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
        unit=key.unit,
        valid_values=key.valid_values,
        bounds=key.bounds,
    )


def shown_value(key: ConfigKey, value: Any) -> str | None:
    """Return the text of a value for display; None without a value or for a secret."""
    # compression.type has None for "producer", which its formatter knows.
    has_none = value is None and key.formatter is None
    return None if key.sensitive or has_none else key.text_of(value)


def load_broker_config(
    file: SettingsFile | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Return the settings of ``file``, ``environment`` and ``overrides`` (the command line), checked as a whole.

    Raises:
        ConfigError: the file is malformed, or a setting is not valid; the text is one line that names its origin.
    """
    return broker_config_of(gather_settings(file, overrides or {}, environment or {}))


def broker_config_of(settings: StaticSettings) -> BrokerConfig:
    """Return the gathered settings, checked as a whole.

    Raises:
        ConfigError: a setting is not valid; the text is one line that names its origin.
    """
    config = BrokerConfig(settings)
    # Called for their errors, so that a wrong listener is reported before anything is opened.
    advertised_endpoints(config.socket_server)
    inter_broker_listener(config.socket_server)
    return config
