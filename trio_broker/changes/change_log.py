"""The changes of this broker: recorded where they are made, kept in memory, written to disk by a task.

``record`` is called by the metadata publisher, the group coordinator and the ReplicaManager once a change is true. It
returns at once; the lines are written in a worker thread, so that no request waits for them, and what a power cut may
lose is the last moment's. When the disk is full or fails, changes are kept in memory only, which costs one line in the
log.

The broker's own decisions never depend on what is kept here.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
import trio

from trio_broker.changes.audit_context import CALLER, Caller
from trio_broker.changes.change import (
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
from trio_broker.changes.change_file import ChangeFile, StoredChanges
from trio_broker.concurrency.barrier import Barrier
from trio_broker.config.entries import ValueChange
from trio_broker.runtime.clock import Clock

log = logging.getLogger(__name__)

MAX_CHANGES = 20_000
"""Changes kept in memory, some 20 MB; a program that creates and deletes topics in a loop must not fill it."""

MAX_VALUES = 100
"""Values kept of one change: a group may have offsets in ten thousand partitions. The rest is counted."""

MAX_TEXT_CHARACTERS = 1000
"""Kept of a value, a name, or what a client calls itself; a group's id may have 32 KB."""

MERGED_ACTIONS = frozenset({ChangeAction.RECORDS_DELETED, ChangeAction.OFFSETS_RESET, ChangeAction.OFFSETS_DELETED})
"""One request makes these partition by partition; it is one change."""

ChangeListener = Callable[[Change], None]


class ChangeLog:
    """All changes, oldest first. Without a file they are kept in memory only."""

    def __init__(self, clock: Clock, file: ChangeFile | None = None) -> None:
        self._clock = clock
        self._file = file
        self._changes: dict[int, Change] = {}
        self._static_settings: Mapping[str, str] | None = None
        self._next_number = 1
        self._unwritten: dict[int, None] = {}
        self._settings_are_unwritten = False
        self._work = trio.Event()
        self._is_failing = False
        self._listeners: list[ChangeListener] = []
        self._barrier = Barrier("a listener to changes", "the change is recorded all the same")
        self._last_caller: Callable[[], Caller | None] = lambda: None

    # --- what is kept ---

    @property
    def changes(self) -> Sequence[Change]:
        """All that are kept, oldest first; a copy."""
        return tuple(self._changes.values())

    def change(self, number: int) -> Change | None:
        """The change of that number, None if there was none or it is no longer kept."""
        return self._changes.get(number)

    def subscribe(self, listener: ChangeListener) -> Callable[[], None]:
        """Call ``listener`` with each new change, and again when more is known of it. Returns what ends that.

        Listeners do not raise.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- recording ---

    def record(
        self,
        made: MadeChange,
        *,
        origin: ChangeOrigin | None = None,
        trial: Trial | None = None,
        undoes: int | None = None,
    ) -> Change:
        """Keep a change that has just been made, by the running task's caller unless ``origin`` says by which."""
        caller = CALLER.get()
        if origin is None and (merged := self._merged(made, caller)) is not None:
            self.update(merged)
            return merged
        change = Change(
            number=self._next_number,
            changed_at_ms=self._clock.now_ms(),
            origin=clipped_origin(origin or caller.change_origin),
            action=made.action,
            resource_type=made.resource_type,
            resource=clipped(made.resource),
            values=tuple(clipped_value(value) for value in made.values[:MAX_VALUES]),
            further_values=made.further_values + max(0, len(made.values) - MAX_VALUES),
            shadowed_values=tuple(clipped_value(value) for value in made.shadowed_values[:MAX_VALUES]),
            trial=trial,
            undoes=undoes,
        )
        self._next_number += 1
        # Weak: a request of a hundred megabytes is not kept for what it changed.
        self._last_caller = weakref.ref(caller)
        if len(self._changes) >= MAX_CHANGES:
            del self._changes[next(iter(self._changes))]
        self.update(change)
        return change

    def _merged(self, made: MadeChange, caller: Caller) -> Change | None:
        """The last change with the values of ``made`` added, if the same request has made both."""
        if made.action not in MERGED_ACTIONS or self._last_caller() is not caller or not self._changes:
            return None
        last = self._changes[next(reversed(self._changes))]
        subject = (made.action, made.resource_type, clipped(made.resource))
        if (last.action, last.resource_type, last.resource) != subject:
            return None
        values = (*last.values, *map(clipped_value, made.values))
        further = last.further_values + made.further_values + max(0, len(values) - MAX_VALUES)
        return attrs.evolve(last, values=values[:MAX_VALUES], further_values=further)

    def update(self, change: Change) -> None:
        """Keep ``change`` in place of the one of its number, and write it."""
        self._changes[change.number] = change
        self._unwritten[change.number] = None
        self._work.set()
        for listener in tuple(self._listeners):
            with self._barrier:
                listener(change)

    # --- starting ---

    def load(self) -> None:
        """Read what earlier starts have recorded. Blocks."""
        if self._file is None:
            return
        try:
            stored = self._file.load()
        except OSError as error:
            log.error("%s cannot be read, so earlier changes are not shown: %s", self._file.path, error)
            return
        self._changes = stored.changes
        self._static_settings = stored.static_settings
        self._next_number = max(self._changes, default=0) + 1

    def record_start(self, broker: str, static_settings: Mapping[str, str]) -> None:
        """Record what differs from the last start: the static settings, which hold no secrets, and a trial that was
        running, since tried values do not survive a stop."""
        origin = ChangeOrigin(ChangeChannel.START)
        for change in self.changes:
            if change.trial is not None and change.trial.outcome is TrialOutcome.RUNNING:
                self.update(with_outcome(change, TrialOutcome.UNDONE, self._clock.now_ms(), origin))
                if not change.is_comparison:
                    self.record(undoing(change), origin=origin, undoes=change.number)
        before = self._static_settings
        if before is not None and (values := differences(before, static_settings)):
            self.record(MadeChange(ChangeAction.STARTED, ChangedResource.BROKER, broker, values), origin=origin)
        if before != static_settings:
            self._static_settings = dict(static_settings)
            self._settings_are_unwritten = True
            self._work.set()

    # --- writing ---

    async def run(self) -> None:
        """Write what is recorded until cancelled, and then the rest."""
        try:
            while True:
                await self._work.wait()
                await self.flush()
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Write what has not been written yet; a failure is logged once until writing works again."""
        self._work = trio.Event()
        unwritten, self._unwritten = self._unwritten, {}
        with_settings, self._settings_are_unwritten = self._settings_are_unwritten, False
        written = [self._changes[number] for number in unwritten if number in self._changes]
        if self._file is None or not (written or with_settings):
            return
        stored = StoredChanges(dict(self._changes), self._static_settings)
        try:
            # Shielded: what was taken from ``_unwritten`` would be lost.
            with trio.CancelScope(shield=True):
                oldest = await self._file.workers.run(
                    partial(self._file.write, written, stored, with_settings=with_settings)
                )
        except Exception as error:
            if not self._is_failing:
                is_bug = not isinstance(error, OSError)
                log.error("%s: changes are kept in memory only: %s", self._file.path, error, exc_info=is_bug)
            self._is_failing = True
            return
        self._is_failing = False
        if oldest is not None:
            self._changes = {number: change for number, change in self._changes.items() if number >= oldest}


def undoing(change: Change) -> MadeChange:
    """The change that takes back ``change``."""
    back = tuple(ValueChange(value.name, value.new, value.old) for value in change.values)
    return MadeChange(change.action, change.resource_type, change.resource, back)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ValueChange, ...]:
    """The names whose text differs, in the order of ``before`` and then of ``after``."""
    return tuple(
        ValueChange(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def clipped_origin(origin: ChangeOrigin) -> ChangeOrigin:
    client, principal, address = map(clipped, (origin.client, origin.principal, origin.address))
    return attrs.evolve(origin, client=client, principal=principal, address=address)


def clipped_value(value: ValueChange) -> ValueChange:
    old, new = (None if text is None else clipped(text) for text in (value.old, value.new))
    return ValueChange(clipped(value.name), old, new)


def clipped(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[: MAX_TEXT_CHARACTERS - 1] + "…"
