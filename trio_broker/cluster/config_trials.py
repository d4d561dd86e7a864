"""Settings that are tried: in effect for some seconds, and then taken back by the broker unless they are kept.

A tried value is laid over the broker's own in memory and written nowhere. So it ends with the process, whether that
stops or crashes, and no undoing can fail for want of a disk; keeping it is what writes it to the metadata log. The
other way round, writing first and undoing later, a crash in between would leave a value for ever that nobody decided
to keep. The browser that began a trial need not stay: the time is the broker's.

One trial at a time, of one or more settings: the readings of two that overlap would not say which of them did what.

A *comparison* is a trial that has the old values and the new ones in effect in turn. It is one change, whatever it
switches in between, and it ends with any other change of settings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import (
    COMPARED_PAIRS,
    MAX_COMPARED_SECONDS,
    MAX_TRIAL_SECONDS,
    MIN_TRIAL_SECONDS,
    Change,
    ChangeAction,
    ChangeChannel,
    ChangedResource,
    ChangeOrigin,
    MadeChange,
    Trial,
    TrialOutcome,
    with_outcome,
)
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope, ValueChange
from trio_broker.runtime.clock import Clock

log = logging.getLogger(__name__)


class NoSuchTrial(Exception):
    """The change is not on trial, or no longer; the text says which."""


@attrs.define(eq=False)
class ConfigTrials:
    """The trials of this broker's settings. ``run`` undoes what nobody keeps."""

    controller: ControllerClient
    dynamic_config: DynamicConfigPublisher
    changes: ChangeLog
    clock: Clock
    _running: Change | None = None
    _values: Mapping[str, str | None] = attrs.field(factory=dict)
    _is_cancelled: bool = False
    _lock: trio.Lock = attrs.field(factory=trio.Lock)
    _begun: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.changes.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        """End a comparison by any other change of settings."""
        running = self._running
        if running is None or not running.is_comparison:
            return
        if change.number > running.number and change.is_of_settings:
            self._is_cancelled = True
            self._ended.set()

    @property
    def _config(self) -> BrokerConfig:
        return self.dynamic_config.config

    @property
    def running(self) -> Change | None:
        """The change that is on trial, with all that is known of it by now."""
        return self._running and (self.changes.change(self._running.number) or self._running)

    async def begin(self, values: Mapping[str, str | None], seconds: int) -> Change | None:
        """Put ``values`` in effect for ``seconds``, None taking one away; None if that changes nothing.

        Raises:
            ConfigError: a value is not valid, or its key cannot be tried.
            KafkaError: another trial is running, or ``seconds`` is out of bounds.
        """
        async with self._lock:
            self.check(values, seconds)
            effective = self.dynamic_config.try_values(values)
            if not effective:
                self.dynamic_config.end_trial()
                return None
            return self._begin(values, effective, Trial(seconds, self.clock.now_ms() + seconds * 1000))

    async def compare(self, values: Mapping[str, str | None], seconds: int) -> Change | None:
        """Have the old values and ``values`` in effect in turn, ``seconds`` each; None if that changes nothing.

        Raises:
            ConfigError, KafkaError: as ``begin``.
        """
        async with self._lock:
            self.check(values, seconds, MAX_COMPARED_SECONDS)
            effective = tuple(
                ValueChange(each.key, each.effective_old, each.effective_new)
                for each in self._config.preview(ConfigScope.BROKER, values)
                if each.effective_old != each.effective_new
            )
            ends_at_ms = self.clock.now_ms() + 2 * COMPARED_PAIRS * seconds * 1000
            trial = Trial(seconds, ends_at_ms, pairs=COMPARED_PAIRS)
            return self._begin(values, effective, trial) if effective else None

    def _begin(self, values: Mapping[str, str | None], effective: tuple[ValueChange, ...], trial: Trial) -> Change:
        self._values, self._is_cancelled = dict(values), False
        self._running = self.changes.record(self._made(effective), trial=trial)
        self._ended = trio.Event()
        self._begun.set()
        return self._running

    def check(self, values: Mapping[str, str | None], seconds: int, most_seconds: int = MAX_TRIAL_SECONDS) -> None:
        """Check that a trial can begin now.

        Raises:
            ConfigError, KafkaError: as ``begin``.
        """
        if not MIN_TRIAL_SECONDS <= seconds <= most_seconds:
            text = f"a trial takes {MIN_TRIAL_SECONDS} to {most_seconds} seconds, not {seconds}"
            raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
        if self._running is not None:
            text = f"change {self._running.number} is being tried: keep it or undo it first"
            raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
        self._config.check_trial(values)

    async def keep(self, number: int) -> Change:
        """Write the values on trial, so that they stay.

        Raises:
            NoSuchTrial: ``number`` is not the change on trial, or all its settings were changed for good meanwhile.
            KafkaError: the values contradict what was changed meanwhile.
            OSError: the metadata log could not be written; the trial goes on.
        """
        async with self._lock:
            change = self._require_running(number)
            if change.is_comparison:
                self.dynamic_config.try_values(self._values)
            if not (tried := self._config.tried):
                raise self._replaced(change)
            wanted = ResourceAlterations(
                self.dynamic_config.broker_resource,
                tuple(
                    ConfigAlteration(name, ConfigOperation.DELETE if text is None else ConfigOperation.SET, text)
                    for name, text in tried.items()
                ),
                any_pool_size=True,
            )
            [result] = (await self.controller.change_configs([wanted])).results
            if isinstance(result, KafkaError):
                raise result
            self.dynamic_config.end_trial()
            return self._note(change, TrialOutcome.KEPT, self.clock.now_ms(), CALLER.get().change_origin)

    async def undo(self, number: int, origin: ChangeOrigin | None = None) -> Change:
        """Go back before the time is over; return the change that undoes, of a comparison the change itself.

        Raises:
            NoSuchTrial: as ``keep``.
        """
        async with self._lock:
            return await self._end(self._require_running(number), origin)

    def _require_running(self, number: int) -> Change:
        change = self.running
        if change is None or change.number != number:
            raise NoSuchTrial(f"change {number} is not being tried")
        return change

    async def _end(self, change: Change, origin: ChangeOrigin | None) -> Change:
        effective = self.dynamic_config.end_trial()
        by = origin or CALLER.get().change_origin
        if change.is_comparison:
            outcome = TrialOutcome.CANCELLED if self._is_cancelled else TrialOutcome.UNDONE
            return self._note(change, outcome, self.clock.now_ms(), by)
        if not effective:
            raise self._replaced(change)
        self._note(change, TrialOutcome.UNDONE, self.clock.now_ms(), by)
        return self.changes.record(self._made(effective), origin=by, undoes=change.number)

    def _made(self, values: tuple[ValueChange, ...]) -> MadeChange:
        return MadeChange(ChangeAction.CONFIG, ChangedResource.BROKER, self.dynamic_config.broker_resource.name, values)

    def _replaced(self, change: Change) -> NoSuchTrial:
        self._note(change, TrialOutcome.REPLACED)
        return NoSuchTrial(f"the settings of change {change.number} were changed for good meanwhile")

    def _note(
        self, change: Change, outcome: TrialOutcome, at_ms: int | None = None, by: ChangeOrigin | None = None
    ) -> Change:
        ended = with_outcome(change, outcome, at_ms, by)
        self.changes.update(ended)
        self._running = None
        self._begun = trio.Event()
        self._ended.set()
        return ended

    async def run(self) -> None:
        """Undo each trial when its time is over, until cancelled."""
        while True:
            await self._begun.wait()
            ended, change = self._ended, self._running
            if change is not None and change.trial is not None:
                for turn in range(2 * change.trial.pairs or 1):
                    if turn:
                        await self._switch(change, is_new=bool(turn % 2))
                    with trio.move_on_after(change.trial.seconds):
                        await ended.wait()
                    if ended.is_set():
                        break
                if not ended.is_set() or self._is_cancelled:
                    await self._expire(change)

    async def _switch(self, change: Change, *, is_new: bool) -> None:
        """Put the new values of a comparison in effect, or the old ones again."""
        async with self._lock:
            latest = self.running
            if latest is None or latest.number != change.number or latest.trial is None or self._ended.is_set():
                return
            if is_new:
                self.dynamic_config.try_values(self._values)
            else:
                self.dynamic_config.end_trial()
            switches = (*latest.trial.switches_at_ms, self.clock.now_ms())
            self.changes.update(attrs.evolve(latest, trial=attrs.evolve(latest.trial, switches_at_ms=switches)))

    async def _expire(self, change: Change) -> None:
        try:
            await self.undo(change.number, ChangeOrigin(ChangeChannel.BROKER))
        except NoSuchTrial as ended:
            log.info("%s", ended)
