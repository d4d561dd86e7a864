"""Claims about the week of topics and groups on disk: how exact it is, who holds a column, and what a crash leaves."""

from __future__ import annotations

import logging
from math import isnan, nan
from pathlib import Path

import pytest

from trio_broker.metrics.history import SERIES
from trio_broker.metrics.minute_file import HEADER_BYTES, MINUTE_MS, SLOTS, MinuteFile
from trio_broker.metrics.named_minute_file import (
    COLUMNS,
    MAX_NAME_BYTES,
    NAME_ENTRY,
    HeldColumn,
    NamedMinuteFile,
    Scale,
    assign,
)
from trio_broker.metrics.series import GROUP_SCALES, TOPIC_SCALES
from trio_broker.runtime.real_disk import RealDisk

NOON_MS = 1_700_000_040_000 // MINUTE_MS * MINUTE_MS


@pytest.fixture
def file(tmp_path: Path) -> NamedMinuteFile:
    return NamedMinuteFile(RealDisk(), tmp_path / "history-groups.dat", GROUP_SCALES)


def minutes_of(file: NamedMinuteFile, name: str, from_ms: int = 0, to_ms: int = 2**60) -> list[int]:
    """Which minutes the file has of ``name``, counted from noon."""
    return [(at_ms - NOON_MS) // MINUTE_MS for at_ms, _ in file.read(name, from_ms, to_ms)]


def written(file: NamedMinuteFile, minute: int, *names: str) -> None:
    file.write(NOON_MS + minute * MINUTE_MS, dict.fromkeys(names, (1.0, 2.0, 3.0)))


@pytest.mark.parametrize("scale", [*TOPIC_SCALES, *GROUP_SCALES], ids=lambda scale: scale.series)
def test_a_number_is_right_to_within_three_per_cent(scale: Scale):
    value = scale.smallest
    while value < scale.largest:
        assert scale.value_of(scale.level_of(value)) == pytest.approx(value, rel=0.03)
        value *= 1.01


@pytest.mark.parametrize("scale", GROUP_SCALES, ids=lambda scale: scale.series)
def test_zero_stays_zero_the_unknown_unknown_and_what_is_too_large_the_largest(scale: Scale):
    assert scale.value_of(scale.level_of(0.0)) == 0.0
    assert isnan(scale.value_of(scale.level_of(None)))
    assert isnan(scale.value_of(scale.level_of(nan)))
    assert scale.value_of(scale.level_of(scale.largest * 1000)) == pytest.approx(scale.largest)


def test_the_numbers_of_every_name_come_back(file: NamedMinuteFile):
    values = {f"group {number}": (number, None, number / 7) for number in range(COLUMNS)}
    file.write(NOON_MS, values)
    for name, (lag, _, consumed) in values.items():
        [(at_ms, read)] = file.read(name, 0, 2**60)
        assert at_ms == NOON_MS
        assert read[0] == pytest.approx(lag or 0, rel=0.03)
        assert isnan(read[1])
        assert read[2] == pytest.approx(consumed or 0, rel=0.03)


def test_all_files_of_the_history_together_stay_below_sixteen_mebibytes(tmp_path: Path):
    own = MinuteFile(RealDisk(), tmp_path / "history.dat", SERIES)
    own.write([])
    sizes = [Path(own.path).stat().st_size]
    for scales in (TOPIC_SCALES, GROUP_SCALES):
        file = NamedMinuteFile(RealDisk(), tmp_path / f"{len(sizes)}.dat", scales)
        file.write(NOON_MS, {"a": (1.0, 1.0, 1.0)})
        written(NamedMinuteFile(RealDisk(), file.path, scales), SLOTS + 1, "b")
        assert Path(file.path).stat().st_size == file.size_bytes
        sizes.append(file.size_bytes)
    assert sum(sizes) <= 16 << 20


def test_minutes_outlive_the_broker_and_go_on_in_the_same_column(file: NamedMinuteFile):
    written(file, 0, "a", "b")
    again = NamedMinuteFile(RealDisk(), file.path, GROUP_SCALES)
    assert minutes_of(again, "b") == [0]
    written(again, 1, "b")
    assert minutes_of(again, "b") == [0, 1]
    assert minutes_of(again, "a") == [0]
    assert minutes_of(again, "b", NOON_MS + 1) == [1]
    assert minutes_of(again, "b", 0, NOON_MS + MINUTE_MS) == [0]
    assert minutes_of(again, "c") == []


def test_a_minute_takes_the_slot_of_the_one_a_week_before(file: NamedMinuteFile):
    written(file, 0, "a")
    written(file, SLOTS - 1, "a")
    assert minutes_of(file, "a") == [0, SLOTS - 1]
    written(file, SLOTS, "a")
    assert minutes_of(file, "a") == [SLOTS - 1, SLOTS]


def test_a_new_name_takes_the_column_that_was_unseen_for_longest_and_nothing_of_what_was_before(file: NamedMinuteFile):
    names = [f"g{number}" for number in range(COLUMNS)]
    written(file, 0, *names)
    written(file, 1, *names[2:])
    written(file, 2, *names[1:])
    written(file, 3, "new", *names[2:])
    assert minutes_of(file, "new") == [3]
    assert minutes_of(file, "g0") == []
    assert minutes_of(file, "g1") == [0, 2]
    assert minutes_of(file, "g2") == [0, 1, 2, 3]
    # Whose turn it is outlives the broker, too.
    again = NamedMinuteFile(RealDisk(), file.path, GROUP_SCALES)
    written(again, 4, "newer", "new", *names[2:])
    assert minutes_of(again, "g1") == []
    assert minutes_of(again, "newer") == [4]


def test_more_names_than_columns_leave_the_last_ones_out():
    held: list[HeldColumn | None] = [None, HeldColumn("b", 1, 1)]
    assert assign(held, ["a", "b", "c"], 9) == {"b": 1, "a": 0}
    assert held == [HeldColumn("a", 9, 9), HeldColumn("b", 1, 9)]


@pytest.mark.parametrize("name", ["", "é" * 127, "\x00\n", "\ud800", "日本語"])
def test_any_name_that_has_room_is_kept(file: NamedMinuteFile, name: str):
    written(file, 0, name)
    assert minutes_of(NamedMinuteFile(RealDisk(), file.path, GROUP_SCALES), name) == [0]


def test_a_name_without_room_is_left_out(file: NamedMinuteFile):
    long = "x" * (MAX_NAME_BYTES + 1)
    written(file, 0, long, "a")
    assert minutes_of(file, long) == []
    assert minutes_of(file, "a") == [0]


def test_a_slot_that_was_torn_does_not_count(file: NamedMinuteFile):
    written(file, 0, "a")
    written(file, 1, "a")
    content = bytearray(Path(file.path).read_bytes())
    content[file._position(NOON_MS) + 20] ^= 0x40
    Path(file.path).write_bytes(content)
    assert minutes_of(file, "a") == [1]


def test_an_entry_of_the_names_that_was_torn_frees_its_column_alone(file: NamedMinuteFile):
    written(file, 0, "a", "b")
    content = bytearray(Path(file.path).read_bytes())
    content[HEADER_BYTES + NAME_ENTRY.size - 7] ^= 1
    Path(file.path).write_bytes(content)
    again = NamedMinuteFile(RealDisk(), file.path, GROUP_SCALES)
    assert minutes_of(again, "a") == []
    assert minutes_of(again, "b") == [0]


@pytest.mark.parametrize("content", [b"", b"[]", b"\0" * 10_000])
def test_what_is_no_history_is_replaced_with_a_line_in_the_log(
    file: NamedMinuteFile, content: bytes, caplog: pytest.LogCaptureFixture
):
    Path(file.path).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert minutes_of(file, "a") == []
        assert Path(file.path).read_bytes() == content
        written(file, 0, "a")
    assert [record.getMessage() for record in caplog.records] == [
        f"{file.path} is no history of these numbers; a new one is begun"
    ]
    assert minutes_of(file, "a") == [0]


def test_a_file_of_other_numbers_is_replaced(file: NamedMinuteFile):
    written(file, 0, "a")
    other = NamedMinuteFile(RealDisk(), file.path, TOPIC_SCALES)
    written(other, 1, "a")
    assert minutes_of(other, "a") == [1]


def test_a_file_that_is_deleted_while_the_broker_runs_is_made_again(file: NamedMinuteFile):
    written(file, 0, "a")
    Path(file.path).unlink()
    assert minutes_of(file, "a") == []
    written(file, 1, "a")
    assert minutes_of(file, "a") == [1]
