"""The config keys of a running broker, for the admin app, and the journal of their changes.

Nothing here decides anything but what one change over HTTP may do to a pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs

from broker_admin.views.config import ConfigChangeResult, ConfigRefusal, JournalEntry
from kafka_wire.errors import KafkaError
from trio_broker.changes.caller import CALLER, THE_BROKER
from trio_broker.changes.change import Change, ChangeAction, ChangeChannel, ChangedResource, ChangeOrigin
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT
from trio_broker.config import keys
from trio_broker.config.broker_config import shown_value
from trio_broker.config.entries import AllowedRange, ConfigEntry, ConfigScope
from trio_broker.config.errors import ConfigError
from trio_broker.handlers.support.services import BrokerServices

JOURNAL_CHANGES = 200
"""Changes kept for the page: some weeks of a busy operator, a few kilobytes."""

MAX_POOL_SIZE = 256
"""Threads that one change over HTTP may give a pool: a digit too many must not start thousands. Twice the present size
is always allowed, as it is to Kafka's clients."""


class LiveConfigView:
    """The part of the admin app's view that is about config keys. ``publish`` gets each change of one."""

    def __init__(self, services: BrokerServices, publish: Callable[[JournalEntry], None]) -> None:
        self.services = services
        self._publish_change = publish
        # With each entry the number of its change, by which the entries of one request are found.
        self._journal: deque[tuple[int, JournalEntry]] = deque(maxlen=JOURNAL_CHANGES)
        services.changes.subscribe(self._changed)

    def config_entries(self) -> Sequence[ConfigEntry]:
        return [self._with_levels(entry) for entry in self.services.config.entries()]

    def _with_levels(self, entry: ConfigEntry) -> ConfigEntry:
        config, key = self.services.config, keys.BROKER_KEYS[entry.name]
        return attrs.evolve(
            entry,
            group=keys.KEY_SUBJECTS[key.name],
            effective_value=shown_value(key, config.value(key)),
            levels=config.level_values(key),
            allowed_range=self._allowed_range(key.name),
        )

    def _allowed_range(self, name: str) -> AllowedRange | None:
        key = keys.BROKER_KEYS[name]
        if not key.thread_pool:
            return None
        return AllowedRange(1, max(MAX_POOL_SIZE, 2 * self.services.config.value(key)))

    def journal(self) -> Sequence[JournalEntry]:
        return [entry for _, entry in self._journal]

    async def change_config(
        self,
        changes: Mapping[str, str | None],
        *,
        changed_by: str,
        level: ConfigScope = ConfigScope.BROKER,
        dry_run: bool = False,
        try_seconds: int | None = None,
    ) -> ConfigChangeResult:
        """Set or reset settings: written to the metadata log, and in effect when this returns."""
        if refusals := self._refusals(changes, level):
            return ConfigChangeResult(refusals=tuple(refusals))
        if try_seconds is not None and not dry_run:
            return await self._try_config(changes, level, try_seconds)
        controller = self.services.controller
        differences = self.services.config.preview(level, changes)
        wanted = ResourceAlterations(
            controller.broker_resource if level is ConfigScope.BROKER else CLUSTER_DEFAULT,
            tuple(alteration(name, value) for name, value in changes.items()),
            any_pool_size=True,
        )
        if CALLER.get() is THE_BROKER:
            CALLER.set(ChangeOrigin(ChangeChannel.HTTP, changed_by))
        outcome = await controller.change_configs([wanted], validate_only=dry_run)
        [result] = outcome.results
        if isinstance(result, KafkaError):
            return refused(result)
        return ConfigChangeResult(changes=self._entries_of(outcome.changes), differences=differences)

    async def _try_config(
        self, changes: Mapping[str, str | None], level: ConfigScope, seconds: int
    ) -> ConfigChangeResult:
        if level is not ConfigScope.BROKER:
            return ConfigChangeResult(refusals=(ConfigRefusal("", "only this broker's own settings can be tried"),))
        differences = self.services.config.preview(level, changes)
        try:
            change = await self.services.trials.begin(changes, seconds)
        except KafkaError as error:
            return refused(error)
        return ConfigChangeResult(changes=self._entries_of([change] if change else []), differences=differences)

    def _entries_of(self, changes: Sequence[Change]) -> tuple[JournalEntry, ...]:
        numbers = {change.number for change in changes}
        return tuple(entry for number, entry in self._journal if number in numbers)

    def _refusals(self, changes: Mapping[str, str | None], level: ConfigScope) -> Sequence[ConfigRefusal]:
        """What speaks against each key by itself. What speaks against all of them together is for the controller."""
        refusals = []
        for name, value in changes.items():
            try:
                self.services.config.check_value(level, name, value)
                self._check_pool_size(name, value)
            except ConfigError as error:
                refusals.append(ConfigRefusal(name, str(error)))
        return refusals

    def _check_pool_size(self, name: str, value: str | None) -> None:
        """Refuse a pool of more threads than one change may give it; a reset goes back whatever that was.

        Raises:
            ConfigError: as said.
        """
        allowed = self._allowed_range(name)
        if value is not None and allowed is not None and keys.BROKER_KEYS[name].parse(value) > allowed.maximum:
            raise ConfigError(f"{name}={value} is refused: one change may set at most {allowed.maximum}", key=name)

    def _changed(self, change: Change) -> None:
        is_of_broker = change.resource_type in (ChangedResource.BROKER, ChangedResource.CLUSTER)
        is_known = any(number == change.number for number, _ in self._journal)
        if change.action is not ChangeAction.CONFIG or not is_of_broker or is_known:
            return
        for each in change.values:
            entry = JournalEntry(
                sequence=change.number,
                changed_at_ms=change.changed_at_ms,
                changed_by=changed_by(change.origin),
                key=each.name,
                old=each.old,
                new=each.new,
            )
            self._journal.append((change.number, entry))
            self._publish_change(entry)


def changed_by(origin: ChangeOrigin) -> str:
    """The client that made a change, in words."""
    if origin.channel is ChangeChannel.KAFKA:
        return f"kafka client {origin.client or '(unnamed)'} from {origin.address}"
    if origin.address:
        return f"http ({origin.client}) from {origin.address}"
    return origin.client or "the broker"


def refused(error: KafkaError) -> ConfigChangeResult:
    """What the controller refuses: the key at fault, or all of them together."""
    at_fault = error.key if isinstance(error, ConfigError) else None
    return ConfigChangeResult(refusals=(ConfigRefusal(at_fault or "", str(error)),))


def alteration(name: str, value: str | None) -> ConfigAlteration:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return ConfigAlteration(name, operation, value)
