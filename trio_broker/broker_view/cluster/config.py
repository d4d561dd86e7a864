"""The config keys of a running broker, for the admin app, and their changes. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import attrs

from broker_admin.views.cluster.config import ConfigChangeResult, ConfigRefusal, SettingChange
from kafka_wire.errors import KafkaError
from trio_broker.changes.audit_context import CALLER, THE_BROKER
from trio_broker.changes.change import MAX_COMPARED_SECONDS, Change, ChangeChannel, ChangedResource, ChangeOrigin
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource
from trio_broker.config import keys
from trio_broker.config.broker_config import shown_value
from trio_broker.config.config_key import ConfigUnit
from trio_broker.config.entries import AllowedRange, ConfigEntry, ConfigScope
from trio_broker.config.errors import ConfigError
from trio_broker.config.validators import MAX_POOL_SIZE
from trio_broker.handlers.support.services import BrokerServices


class LiveConfigView:
    """The part of the admin app's view that is about config keys. ``publish`` gets each change of one."""

    def __init__(self, services: BrokerServices, publish: Callable[[SettingChange], None]) -> None:
        self.services = services
        self._publish_change = publish
        self._published = max((change.number for change in services.changes.changes), default=0)
        services.changes.subscribe(self._changed)

    def entries(self) -> Sequence[ConfigEntry]:
        return [self._with_levels(entry) for entry in self.services.config.entries()]

    def entry(self, name: str) -> ConfigEntry | None:
        entry = self.services.config.entry(name)
        return None if entry is None else self._with_levels(entry)

    def units(self, names: Iterable[str]) -> Mapping[str, ConfigUnit | None]:
        named = ((name, keys.BROKER_KEYS.get(name)) for name in names)
        return {name: key.unit for name, key in named if key is not None and not key.internal}

    def _with_levels(self, entry: ConfigEntry) -> ConfigEntry:
        config, key = self.services.config, keys.BROKER_KEYS[entry.name]
        return attrs.evolve(
            entry,
            group=keys.subject_of(key),
            effective_value=shown_value(key, config.value(key)),
            levels=config.level_values(key),
            allowed_range=AllowedRange(1, MAX_POOL_SIZE) if key.thread_pool else None,
        )

    async def change(
        self,
        changes: Mapping[str, str | None],
        *,
        changed_by: str,
        level: ConfigScope = ConfigScope.BROKER,
        dry_run: bool = False,
        try_seconds: int | None = None,
        compare_seconds: int | None = None,
    ) -> ConfigChangeResult:
        """Set or reset settings: written to the metadata log, and in effect when this returns."""
        if refusals := self._refusals(changes, level):
            return ConfigChangeResult(refusals=tuple(refusals))
        trials = self.services.trials
        if try_seconds is not None and compare_seconds is not None:
            return ConfigChangeResult(refusals=(ConfigRefusal("?compare_seconds", "try_seconds is given as well"),))
        if try_seconds is not None:
            check = partial(trials.check, changes, try_seconds)
            return await self._try_config(changes, level, None if dry_run else trials.begin, check, try_seconds)
        if compare_seconds is not None:
            check = partial(trials.check, changes, compare_seconds, MAX_COMPARED_SECONDS)
            return await self._try_config(changes, level, None if dry_run else trials.compare, check, compare_seconds)
        differences = self.services.config.preview(level, changes)
        wanted = ResourceAlterations(
            ConfigResource.of_broker(self.services.node.node_id) if level is ConfigScope.BROKER else CLUSTER_DEFAULT,
            tuple(alteration(name, value) for name, value in changes.items()),
            any_pool_size=True,
        )
        if CALLER.get() is THE_BROKER:
            CALLER.set(ChangeOrigin(ChangeChannel.HTTP, changed_by))
        outcome = await self.services.controller_client.change_configs([wanted], validate_only=dry_run)
        [result] = outcome.results
        if isinstance(result, KafkaError):
            return refused(result)
        return ConfigChangeResult(changes=settings_in(outcome.changes), differences=differences)

    async def _try_config(
        self,
        changes: Mapping[str, str | None],
        level: ConfigScope,
        begin: Callable[[Mapping[str, str | None], int], Awaitable[Change | None]] | None,
        check: Callable[[], None],
        seconds: int,
    ) -> ConfigChangeResult:
        if level is not ConfigScope.BROKER:
            refusal = ConfigRefusal("?level", "only this broker's own settings can be tried")
            return ConfigChangeResult(refusals=(refusal,))
        differences = self.services.config.preview(level, changes)
        try:
            if begin is None:
                check()
                return ConfigChangeResult(differences=differences)
            change = await begin(changes, seconds)
        except KafkaError as error:
            return refused(error, "?try_seconds")
        return ConfigChangeResult(changes=settings_in([change] if change else []), differences=differences)

    def _refusals(self, changes: Mapping[str, str | None], level: ConfigScope) -> Sequence[ConfigRefusal]:
        """What speaks against each key by itself. What speaks against all of them together is for the controller."""
        refusals = []
        for name, value in changes.items():
            try:
                self.services.config.check_value(level, name, value)
            except ConfigError as error:
                refusals.append(ConfigRefusal(name, str(error)))
        return refusals

    def _changed(self, change: Change) -> None:
        # A change is heard of again when its trial has ended and when its effect was measured.
        if change.number > self._published and is_of_broker(change):
            self._published = change.number
            for setting in settings_of(change):
                self._publish_change(setting)


def is_of_broker(change: Change) -> bool:
    """Whether settings of brokers were changed."""
    return change.is_of_settings and change.resource_type in (ChangedResource.BROKER, ChangedResource.CLUSTER)


def settings_in(changes: Iterable[Change]) -> tuple[SettingChange, ...]:
    return tuple(setting for change in changes for setting in settings_of(change))


def settings_of(change: Change) -> list[SettingChange]:
    """The settings of one change, each by itself."""
    author = changed_by(change.origin)
    return [
        SettingChange(change.number, change.changed_at_ms, author, each.name, each.old, each.new)
        for each in change.values
    ]


def changed_by(origin: ChangeOrigin) -> str:
    """The client that made a change, in words."""
    if origin.channel is ChangeChannel.KAFKA:
        return f"kafka client {origin.client or '(unnamed)'} from {origin.address}"
    if origin.address:
        return f"http ({origin.client}) from {origin.address}"
    return origin.client or "the broker"


def refused(error: KafkaError, otherwise: str = "") -> ConfigChangeResult:
    """What the controller refuses: the key at fault, or ``otherwise``, which is all of them together."""
    at_fault = error.key if isinstance(error, ConfigError) else otherwise
    return ConfigChangeResult(refusals=(ConfigRefusal(at_fault or "", str(error)),))


def alteration(name: str, value: str | None) -> ConfigAlteration:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return ConfigAlteration(name, operation, value)
