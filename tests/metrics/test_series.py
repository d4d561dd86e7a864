"""Claims about readings over time: what a step says, what is read from memory and what from disk, and what a file holds
after a crash, a week, or another version of the broker."""

from __future__ import annotations

import logging
from array import array
from functools import partial
from math import isnan, nan
from pathlib import Path, PurePath

import attrs
import pytest
import trio

from tests.metrics.statistics_fixtures import broker_readings
from tests.scheduling import Race, outcomes
from trio_broker.metrics import minute_file
from trio_broker.metrics.history import SERIES, HistorySample, sample_between
from trio_broker.metrics.minute_file import HEADER_BYTES, MINUTE_MS, SLOTS, MinuteFile, MinuteRow
from trio_broker.metrics.series import HistoryWriter, Row, SeriesHistory, in_steps, merged
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.real_workers import RealWorkers

NOON_MS = 1_700_000_040_000 // MINUTE_MS * MINUTE_MS
"""The beginning of a minute."""

COLUMNS = ("requests_per_second", "queue_depth")


def sample_at(at_ms: int) -> HistorySample:
    return sample_between(broker_readings(), broker_readings(1.0), at_ms)


def row(at_ms: int, **values: float) -> Row:
    return Row(at_ms, array("f", [values.get(name, 0.0) for name in SERIES]))


def value(of: Row, name: str) -> float:
    return of.values[SERIES.index(name)]


@pytest.fixture
def file(tmp_path: Path) -> MinuteFile:
    return MinuteFile(RealDisk(), tmp_path / "history.dat", COLUMNS)


def series_history(file: MinuteFile) -> SeriesHistory:
    return SeriesHistory(file, HistoryWriter(RealWorkers()))


def written(file: MinuteFile, *rows: tuple[int, float, float]) -> None:
    file.write([(at_ms, array("f", values)) for at_ms, *values in rows])


def read(file: MinuteFile, from_ms: int = 0, to_ms: int = 2**60) -> list[tuple[int, list[float]]]:
    return [(at_ms, list(values)) for at_ms, values in file.read(from_ms, to_ms)]


# --- Steps ---


def test_a_step_has_the_mean_of_its_rows_and_the_largest_p99_and_queue_depth():
    one = merged(
        5,
        [
            row(5, requests_per_second=10, produce_p99_ms=2, queue_depth=7, produce_p50_ms=1),
            row(6, requests_per_second=30, produce_p99_ms=8, queue_depth=3, produce_p50_ms=3),
        ],
    )
    assert value(one, "requests_per_second") == 20
    assert value(one, "produce_p50_ms") == 2
    assert value(one, "produce_p99_ms") == 8
    assert value(one, "queue_depth") == 7


def test_what_was_not_measured_counts_for_nothing():
    rows = [row(0, requests_per_second=nan), row(1, requests_per_second=4)]
    assert value(merged(0, rows), "requests_per_second") == 4
    assert isnan(value(merged(0, rows[:1]), "requests_per_second"))


def test_steps_begin_at_multiples_of_their_length_and_empty_ones_are_left_out():
    rows = [row(at_ms, requests_per_second=at_ms) for at_ms in (9, 11, 19, 45)]
    steps = in_steps(rows, 10)
    assert [(step.at_ms, value(step, "requests_per_second")) for step in steps] == [(0, 9), (10, 15), (40, 45)]


# --- The file ---


def test_minutes_come_back_in_their_order_within_the_times_that_are_asked_for(file: MinuteFile):
    written(file, (2 * MINUTE_MS, 1.5, 2), (MINUTE_MS, 3, 4))
    written(file, (3 * MINUTE_MS, 5, 6))
    assert read(file) == [(MINUTE_MS, [3, 4]), (2 * MINUTE_MS, [1.5, 2]), (3 * MINUTE_MS, [5, 6])]
    assert read(file, 2 * MINUTE_MS, 3 * MINUTE_MS) == [(2 * MINUTE_MS, [1.5, 2])]
    assert read(MinuteFile(RealDisk(), file.path, COLUMNS)) == read(file)


def test_a_reader_gets_the_columns_that_it_wants_in_the_order_in_which_it_names_them(file: MinuteFile):
    written(file, (MINUTE_MS, 1.5, 2), (2 * MINUTE_MS, 3, 4))
    assert [list(values) for _, values in file.read(0, 2**60, ["queue_depth"])] == [[2], [4]]
    [(_, values), _] = file.read(0, 2**60, ["queue_depth", "unknown", "requests_per_second"])
    assert (values[0], values[2]) == (2, 1.5)
    assert isnan(values[1])


def test_a_minute_takes_the_slot_of_the_one_a_week_before_and_the_file_never_grows(file: MinuteFile):
    written(file, (MINUTE_MS, 1, 1))
    size = Path(file.path).stat().st_size
    written(file, ((1 + SLOTS) * MINUTE_MS, 2, 2), ((SLOTS - 1) * MINUTE_MS, 3, 3))
    assert read(file) == [((SLOTS - 1) * MINUTE_MS, [3, 3]), ((1 + SLOTS) * MINUTE_MS, [2, 2])]
    assert Path(file.path).stat().st_size == size
    assert size < 16 << 20


def test_the_week_of_all_series_stays_below_sixteen_mebibytes(tmp_path: Path):
    file = MinuteFile(RealDisk(), tmp_path / "history.dat", SERIES)
    file.write([(NOON_MS, array("f", [1.0] * len(SERIES)))])
    assert Path(file.path).stat().st_size < 16 << 20


@pytest.mark.parametrize("damaged_byte", [0, 9, 15, 19])
def test_a_slot_that_was_torn_does_not_count(file: MinuteFile, damaged_byte: int):
    written(file, (MINUTE_MS, 1, 1), (2 * MINUTE_MS, 2, 2))
    content = bytearray(Path(file.path).read_bytes())
    content[HEADER_BYTES + 20 + damaged_byte] ^= 0x40
    Path(file.path).write_bytes(content)
    assert read(file) == [(2 * MINUTE_MS, [2, 2])]


def test_a_file_that_was_cut_off_keeps_its_whole_slots(file: MinuteFile):
    written(file, (MINUTE_MS, 1, 1), (2 * MINUTE_MS, 2, 2))
    Path(file.path).write_bytes(Path(file.path).read_bytes()[: HEADER_BYTES + 2 * 20 + 7])
    assert read(file) == [(MINUTE_MS, [1, 1])]


def test_a_file_with_other_columns_is_read_by_their_names(file: MinuteFile):
    written(file, (MINUTE_MS, 1, 2))
    other = MinuteFile(RealDisk(), file.path, ("queue_depth", "connections"))
    [(at_ms, (queue_depth, connections))] = read(other)
    assert (at_ms, queue_depth) == (MINUTE_MS, 2)
    assert isnan(connections)
    written(other, (2 * MINUTE_MS, 7, 8))
    assert read(MinuteFile(RealDisk(), file.path, ("connections",)))[1] == (2 * MINUTE_MS, [8])


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\0" * 10_000, b"[]", b"[" * 4000, b"\xff" * 9000),
        *(b'{"version":9,"columns":["a"]}', b'{"version":1,"columns":[1]}'),
        b'{"version":1,"columns":"%s"}' % (b"a" * 300),
    ],
)
def test_what_is_no_history_is_replaced_with_a_line_in_the_log(
    file: MinuteFile, content: bytes, caplog: pytest.LogCaptureFixture
):
    Path(file.path).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        written(file, (MINUTE_MS, 1, 1))
    assert [record.getMessage() for record in caplog.records] == [
        f"{file.path} is no history of readings; a new one is begun"
    ]
    assert read(file) == [(MINUTE_MS, [1, 1])]


def test_a_file_that_is_deleted_while_the_broker_runs_is_made_again(file: MinuteFile):
    written(file, (MINUTE_MS, 1, 1))
    Path(file.path).unlink()
    assert read(file) == []
    written(file, (2 * MINUTE_MS, 2, 2))
    assert read(file) == [(2 * MINUTE_MS, [2, 2])]


# --- Memory and disk ---


async def test_seconds_are_read_from_memory_and_what_was_before_them_from_the_disk(tmp_path: Path):
    file = MinuteFile(RealDisk(), tmp_path / "history.dat", SERIES)
    hour_before = NOON_MS - 60 * MINUTE_MS
    file.write([(hour_before, row(0, requests_per_second=5).values)])
    history = series_history(file)
    for second in range(90):
        history.add(attrs.evolve(sample_at(NOON_MS + 1000 * second), requests_per_second=second))
    recent = await history.rows(NOON_MS + 10_000, NOON_MS + 12_000, 1000)
    assert [(each.at_ms, value(each, "requests_per_second")) for each in recent] == [
        (NOON_MS + 10_000, 10),
        (NOON_MS + 11_000, 11),
    ]
    both = await history.rows(hour_before, NOON_MS + 90_000, 1000)
    assert [(each.at_ms, value(each, "requests_per_second")) for each in both] == [
        (hour_before, 5),
        (NOON_MS, sum(range(60)) / 60),
        (NOON_MS + MINUTE_MS, sum(range(60, 90)) / 30),
    ]


async def test_a_minute_is_written_when_it_is_over_and_outlives_the_broker(tmp_path: Path):
    path = tmp_path / "history.dat"
    history = series_history(MinuteFile(RealDisk(), path, SERIES))
    for second in range(61):
        history.add(attrs.evolve(sample_at(NOON_MS + 1000 * second), requests_per_second=second))
    await history.writer.flush()
    [minute] = await series_history(MinuteFile(RealDisk(), path, SERIES)).rows(0, NOON_MS + 10 * MINUTE_MS, 1000)
    assert (minute.at_ms, value(minute, "requests_per_second")) == (NOON_MS, sum(range(60)) / 60)


async def test_a_disk_that_refuses_costs_one_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    history = series_history(MinuteFile(RealDisk(), tmp_path / "nowhere" / "history.dat", SERIES))
    for minute in range(4):
        history.add(sample_at(NOON_MS + MINUTE_MS * minute))
        await history.writer.flush()
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert len(await history.rows(NOON_MS, NOON_MS + 4 * MINUTE_MS, MINUTE_MS)) == 4


def test_every_row_of_a_file_has_one_value_per_series():
    rows: list[MinuteRow] = [(NOON_MS, row(0).values)]
    assert len(rows[0][1]) == len(SERIES) < minute_file.MAX_COLUMNS


async def test_a_minute_that_ends_at_any_moment_is_written(autojump_clock):
    class WithoutThreads(RealWorkers):
        async def run(self, work, *, limiter=None):
            await trio.lowlevel.checkpoint()
            return work()

    async def new_race() -> Race[None]:
        writer, written = HistoryWriter(WithoutThreads()), trio.Event()
        writer.add(PurePath("before"), lambda: None)

        async def wait() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.run)
                await written.wait()
                nursery.cancel_scope.cancel()

        return Race(wait, partial(writer.add, PurePath("minute"), written.set))

    await outcomes(new_race)
