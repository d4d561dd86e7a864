"""Changes in memory and on the disk."""

from __future__ import annotations

import json

import attrs
import pytest
import trio

from trio_broker.changes import change_log
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import (
    ChangeAction,
    ChangeChannel,
    ChangedResource,
    ChangeEffect,
    ChangeOrigin,
    EffectReading,
    EffectVerdict,
    MadeChange,
    ReadingUnit,
    Trial,
    TrialOutcome,
)
from trio_broker.changes.change_file import ChangeFile
from trio_broker.changes.change_log import ChangeLog
from trio_broker.config.entries import ValueChange
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.real_workers import RealWorkers

CURL = ChangeOrigin(ChangeChannel.HTTP, "curl", "127.0.0.1", "PATCH /api/v1/config")
IO = MadeChange(ChangeAction.CONFIG, ChangedResource.BROKER, "1", (ValueChange("num.io.threads", "1", "8"),))
EFFECT = ChangeEffect(
    EffectVerdict.BETTER,
    "+182 % records/s",
    60,
    60,
    (EffectReading("records", ReadingUnit.RECORDS_PER_SECOND, 500.0, 1410.0, 1.82),),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "changes.jsonl"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def changes(path, clock):
    return opened(path, clock)


def opened(path, clock, **options):
    changes = ChangeLog(clock, ChangeFile(RealDisk(), path, RealWorkers(), **options))
    changes.load()
    return changes


def deletion(*partitions):
    values = tuple(ValueChange(f"orders-{partition}", "0", "5") for partition in partitions)
    return MadeChange(ChangeAction.RECORDS_DELETED, ChangedResource.TOPIC, "orders", values)


async def test_a_change_has_the_next_number_the_time_and_the_caller(changes, clock):
    first = changes.record(IO)
    clock.advance(2)
    CALLER.set(CURL)
    second = changes.record(IO)
    assert (first.number, first.origin, first.changed_at_ms) == (
        1,
        ChangeOrigin(ChangeChannel.BROKER),
        clock.now_ms() - 2000,
    )
    assert (second.number, second.origin, second.changed_at_ms) == (2, CURL, clock.now_ms())
    assert changes.changes == (first, second)


async def test_everything_is_there_after_a_restart(changes, path, clock):
    change = changes.record(IO, origin=CURL, trial=Trial(60, 99, TrialOutcome.KEPT), undoes=7)
    changes.update(attrs.evolve(change, effect=EFFECT))
    await changes.flush()
    again = opened(path, clock)
    assert again.changes == changes.changes
    assert again.change(1).effect == EFFECT
    assert again.record(IO).number == 2


async def test_the_last_line_of_a_number_counts(changes, path, clock):
    change = changes.record(IO)
    await changes.flush()
    changes.update(attrs.evolve(change, effect=EFFECT))
    await changes.flush()
    assert len(path.read_bytes().splitlines()) == 2
    assert [one.effect for one in opened(path, clock).changes] == [EFFECT]


async def test_a_line_that_a_crash_cut_off_is_dropped_with_one_line_in_the_log(changes, path, clock, caplog):
    changes.record(IO)
    await changes.flush()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = opened(path, clock)
    assert [one.number for one in again.changes] == [1]
    assert [record.message for record in caplog.records] == [
        f"{path}: dropped 20 bytes of a line that was not finished"
    ]
    again.record(IO)
    await again.flush()
    assert [one.number for one in opened(path, clock).changes] == [1, 2]


async def test_lines_that_mean_nothing_are_left_out(changes, path, clock, caplog):
    changes.record(IO)
    await changes.flush()
    path.write_bytes(b'{"number":"x"}\n7\nnot json\n\xff\n' + path.read_bytes())
    assert [one.number for one in opened(path, clock).changes] == [1]
    assert "left out 4 lines" in caplog.text


def test_an_effect_that_an_older_version_has_measured_is_read(path, clock):
    reading = {"name": "Produce p99", "unit": "s", "before": 0.1, "after": 0.2, "difference": 1.0}
    effect = {"verdict": "load-differed", "summary": "load differed, not comparable", "readings": [reading]}
    origin = {"channel": "http", "client": "curl"}
    change = {"action": "config", "resource_type": "broker", "resource": "1", "number": 1, "changed_at_ms": 1}
    spans = {"before_seconds": 60, "after_seconds": 60}
    path.write_text(json.dumps({**change, "origin": origin, "effect": {**effect, **spans}}) + "\n")
    [read] = opened(path, clock).changes
    assert (read.effect.verdict, read.effect.readings[0].band) == (EffectVerdict.LOAD_DIFFERED, None)


async def test_a_full_file_is_replaced_by_its_newest_half_and_goes_on(path, clock):
    changes = opened(path, clock, max_bytes=4096)
    changes.record_start("1", {"num.io.threads": "4"})
    for _ in range(40):
        changes.record(IO)
        await changes.flush()
        assert path.stat().st_size <= 4096
    again = opened(path, clock)
    numbers = [one.number for one in again.changes]
    assert numbers == list(range(numbers[0], 41))
    assert 5 < len(numbers) < 30
    assert [one.number for one in changes.changes] == numbers
    again.record_start("1", {"num.io.threads": "5"})
    assert again.changes[-1].values == (ValueChange("num.io.threads", "4", "5"),)


async def test_only_the_owner_may_read_the_file_also_after_it_was_replaced(path, clock):
    changes = opened(path, clock, max_bytes=1024)
    modes, sizes = set(), []
    for _ in range(20):
        changes.record(IO)
        await changes.flush()
        modes.add(path.stat().st_mode & 0o777)
        sizes.append(path.stat().st_size)
    assert sizes != sorted(sizes), "it was replaced"
    assert modes == {0o600}


async def test_a_disk_that_is_full_costs_one_line_in_the_log_and_heals(changes, path, clock, caplog, monkeypatch):
    def refuse(*arguments):
        raise OSError("No space left on device")

    changes.record(IO)
    await changes.flush()
    with monkeypatch.context() as patched:
        patched.setattr("trio_broker.changes.change_file.write_all", refuse)
        for _ in range(3):
            changes.record(IO)
            await changes.flush()
    assert caplog.text.count("No space left on device") == 1
    changes.record(IO)
    await changes.flush()
    assert [one.number for one in changes.changes] == [1, 2, 3, 4, 5]
    assert [one.number for one in opened(path, clock).changes] == [1, 5]


def test_a_file_that_cannot_be_read_keeps_no_broker_from_starting(path, clock, caplog):
    path.mkdir()
    assert opened(path, clock).changes == ()
    assert "earlier changes are not shown" in caplog.text


async def test_the_task_writes_what_is_recorded_and_at_its_end_the_rest(changes, path, clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.run)
        changes.record(IO)
        nursery.cancel_scope.cancel()
    assert [one.number for one in opened(path, clock).changes] == [1]


async def test_one_request_that_goes_partition_by_partition_is_one_change(changes):
    CALLER.set(attrs.evolve(CURL))
    for partition in range(3):
        changes.record(deletion(partition))
    CALLER.set(attrs.evolve(CURL))
    changes.record(deletion(7))
    changes.record(IO)
    assert [len(change.values) for change in changes.changes] == [3, 1, 1]


def test_of_many_values_and_of_long_ones_the_beginning_is_kept(changes):
    long = "x" * 40_000
    values = tuple(ValueChange(f"{long}{index}", None, long) for index in range(150))
    change = changes.record(MadeChange(ChangeAction.OFFSETS_RESET, ChangedResource.GROUP, long, values))
    assert (len(change.values), change.further_values) == (change_log.MAX_VALUES, 50)
    assert len(change.resource) == len(change.values[0].name) == len(change.values[0].new) == 1000
    merged = changes.record(MadeChange(ChangeAction.OFFSETS_RESET, ChangedResource.GROUP, long, values))
    assert (len(changes.changes), len(merged.values), merged.further_values) == (1, 100, 200)


def test_memory_is_bounded_too(clock, monkeypatch):
    monkeypatch.setattr(change_log, "MAX_CHANGES", 3)
    changes = ChangeLog(clock)
    for _ in range(5):
        changes.record(IO)
    assert [one.number for one in changes.changes] == [3, 4, 5]


# --- starts ---


async def test_a_start_with_other_settings_is_a_change_and_the_first_one_and_an_equal_one_are_none(path, clock):
    for settings in ({"num.io.threads": "4"}, {"num.io.threads": "4"}, {"log.dirs": "/x", "num.io.threads": "6"}):
        changes = opened(path, clock)
        changes.record_start("1", settings)
        await changes.flush()
    [change] = opened(path, clock).changes
    assert change.action is ChangeAction.STARTED
    assert change.origin.channel is ChangeChannel.START
    assert change.values == (ValueChange("num.io.threads", "4", "6"), ValueChange("log.dirs", None, "/x"))


async def test_a_trial_that_a_stop_has_ended_is_shown_as_undone_by_the_start(changes, path, clock):
    changes.record(IO, origin=CURL, trial=Trial(60, clock.now_ms() + 60_000))
    await changes.flush()
    again = opened(path, clock)
    again.record_start("1", {})
    tried, back = again.changes
    assert tried.trial.outcome is TrialOutcome.UNDONE
    assert (back.undoes, back.origin.channel, back.values) == (
        1,
        ChangeChannel.START,
        (ValueChange("num.io.threads", "8", "1"),),
    )
