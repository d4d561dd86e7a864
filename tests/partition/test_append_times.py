"""When a record was appended is known to a tenth of its age, in six kilobytes, for as long as one likes."""

from __future__ import annotations

import random

import pytest

from tests.partition.real_logs import NOW_MS, batch, make_log, make_partition, write_epoch_entry
from trio_broker.partition.append_times import MAX_ERROR_FRACTION, MAX_SAMPLES, SAMPLE_EVERY_MS, AppendTimes

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class Appends:
    """Appends to a partition, and when each truly was."""

    def __init__(self) -> None:
        self.times = AppendTimes()
        self.now_ms = NOW_MS
        self.next_offset = 0
        self.truth: list[tuple[int, int]] = []

    def append(self, *, records: int = 1, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        times = self.times
        if not times.last_sample_ms <= self.now_ms < times.next_sample_ms:
            times.sample(self.next_offset, self.now_ms)
        self.truth.append((self.next_offset + records - 1, self.now_ms))
        self.next_offset += records

    def check(self, offset: int, appended_ms: int) -> None:
        """See that the promise holds for the record at ``offset``."""
        found = self.times.appended_at(offset)
        assert found is not None
        tolerated = max(SAMPLE_EVERY_MS, (self.now_ms - appended_ms) * MAX_ERROR_FRACTION)
        assert 0 <= appended_ms - found <= tolerated, f"{offset}: {appended_ms} reported as {found} at {self.now_ms}"


@pytest.fixture
def appends() -> Appends:
    return Appends()


def test_nothing_is_known_before_the_first_append(appends):
    assert appends.times.appended_at(0) is None
    appends.next_offset = 10
    appends.append()
    assert appends.times.appended_at(9) is None
    assert appends.times.appended_at(10) == NOW_MS


def test_few_appends_are_all_known_exactly(appends):
    for _ in range(100):
        appends.append(records=3, after_ms=5 * MINUTE_MS)
    assert [appends.times.appended_at(last) for last, _ in appends.truth] == [ms for _, ms in appends.truth]


def test_appends_in_quick_succession_share_a_sample(appends):
    for _ in range(1000):
        appends.append(after_ms=1)
    assert len(appends.times) == 10
    for offset, appended_ms in appends.truth:
        appends.check(offset, appended_ms)


def test_an_idle_hour_does_not_blur_the_time_before_it(appends):
    appends.append(records=10)
    appends.append(after_ms=60 * MINUTE_MS)
    assert appends.times.appended_at(9) == NOW_MS


@pytest.mark.parametrize(
    ("span_ms", "mean_gap_ms"),
    [(10 * MINUTE_MS, 10), (7 * DAY_MS, 10 * MINUTE_MS // 10), (400 * DAY_MS, 40 * MINUTE_MS)],
)
def test_the_error_is_a_small_part_of_the_age_however_long_it_goes_on(appends, span_ms, mean_gap_ms):
    chance = random.Random(7)
    most = 0
    while appends.now_ms < NOW_MS + span_ms:
        appends.append(records=chance.randrange(1, 5), after_ms=chance.randrange(1, 2 * mean_gap_ms))
        most = max(most, len(appends.times))
    assert most == MAX_SAMPLES
    for offset, appended_ms in appends.truth[-200:] + chance.sample(appends.truth, 500):
        appends.check(offset, appended_ms)


def test_bursts_with_idle_days_between_are_distinguished(appends):
    chance = random.Random(7)
    for _ in range(60):
        appends.append(after_ms=DAY_MS)
        for _ in range(50):
            appends.append(after_ms=chance.randrange(50, 500))
    for offset, appended_ms in appends.truth:
        appends.check(offset, appended_ms)


def test_samples_stay_bounded_when_the_clock_runs_backwards(appends):
    for _ in range(5 * MAX_SAMPLES):
        appends.append(after_ms=-1000)
        assert len(appends.times) <= MAX_SAMPLES
    assert appends.times.appended_at(appends.next_offset - 1) == appends.now_ms


def test_a_clock_that_was_set_back_is_followed_at_once(appends):
    appends.append()
    appends.append(after_ms=-DAY_MS)
    assert appends.times.appended_at(1) == NOW_MS - DAY_MS


def test_a_partition_notes_its_appends_and_not_its_duplicates(tmp_path):
    log = make_log(tmp_path)
    partition = make_partition(log)
    write_epoch_entry(partition)
    first = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    partition.writer.append(batch(b"a", b"b", **first), now_ms=NOW_MS)
    assert partition.writer.append(batch(b"a", b"b", **first), now_ms=NOW_MS + 1000).duplicate
    partition.writer.append(batch(b"c"), now_ms=NOW_MS + 2000)
    assert [partition.append_times.appended_at(offset) for offset in range(3)] == [NOW_MS, NOW_MS, NOW_MS + 2000]
    log.release()
