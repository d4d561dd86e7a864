"""The benchmark's own arithmetic and bytes: percentiles, ratios, tables, prebuilt requests; no time is judged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import outcome as outcome_module
from bench.__main__ import BENCHMARKS, TOGETHER, options_of
from bench.figures import Better, Goal, Latencies, Repeats, Table, percentile, ratio, rendered, shown
from bench.machine import file_system_of, forget_contents, process_cpu_seconds, resident_bytes
from bench.outcome import GOALS, Outcome, save, scoreboard
from bench.step_times import TimedStep, slow_steps
from bench.turns import WARM_TURNS, warm_up
from bench.wire import (
    FETCH_VERSION,
    MIB,
    PRODUCE_VERSION,
    bulk_batch,
    fetch_frame,
    produce_frame,
    small_batch,
    success_response,
)
from kafka_wire.codec import decode
from kafka_wire.headers import read_request_header
from kafka_wire.messages.fetch import FetchRequest
from kafka_wire.messages.produce import ProduceRequest, ProduceResponse
from kafka_wire.records.batch import read_batches


def test_a_percentile_is_a_value_that_was_seen():
    values = list(range(1, 101))
    assert [percentile(values, fraction) for fraction in (0.0, 0.5, 0.95, 0.99, 0.999, 1.0)] == [
        1,
        50,
        95,
        99,
        100,
        100,
    ]


def test_a_percentile_of_few_values_is_not_thrown_off_by_rounding():
    assert percentile(list(range(1, 21)), 0.55) == 11


@pytest.mark.parametrize(("values", "fraction"), [([], 0.5), ([1.0], 1.1), ([1.0], -0.1)])
def test_a_percentile_of_nothing_or_beyond_all_is_refused(values: list[float], fraction: float):
    with pytest.raises(ValueError, match=r"percentile|fraction"):
        percentile(values, fraction)


def test_latencies_are_reported_in_milliseconds_whatever_their_order():
    assert Latencies.of_ns([3_000_000, 1_000_000, 2_000_000]) == Latencies(3, 2.0, 3.0, 3.0, 3.0, 3.0)


def test_the_best_of_repeats_is_the_least_cost_or_the_largest_rate():
    assert Repeats([3.0, 1.0, 2.0]).best == 1.0
    assert Repeats([3.0, 1.0, 2.0], Better.MORE).best == 3.0


def test_the_spread_of_repeats_is_their_range_over_their_median():
    assert Repeats([3.0, 1.0, 2.0]).spread == 1.0
    assert Repeats([0.0, 0.0]).spread == 0.0


def test_a_ratio_compares_neighbours_so_that_a_slow_round_does_not_count():
    floor = Repeats([10.0, 40.0, 10.0])
    ours = Repeats([20.0, 80.0, 50.0])
    assert ratio(ours, floor) == 2.0


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,230"), (0.012345, "0.0123"), (99.95, "100"), (3, "3"), (10_000, "10,000"), (0.0, "0"), ("x", "x")],
)
def test_numbers_are_shown_with_three_digits(value: float | int | str, text: str):
    assert shown(value) == text


def test_a_table_aligns_words_left_and_numbers_right():
    table = Table("T", ["who", "n"])
    table.add("a", 1)
    table.add("bcde", 1000)
    assert rendered(table).splitlines()[2:] == [
        "| who  |     n |",
        "|------|------:|",
        "| a    |     1 |",
        "| bcde | 1,000 |",
    ]


def test_a_row_with_a_cell_too_few_is_refused():
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table("T", ["a", "b"]).add(1)


def test_goals_judge_in_their_direction():
    assert Goal("cost", Better.LESS, 1.5).verdict(1.5) == "reached"
    assert Goal("cost", Better.LESS, 1.5).verdict(1.6) == "missed"
    assert Goal("rate", Better.MORE, 20).verdict(19) == "missed"


def test_the_scoreboard_lists_what_was_measured_and_nothing_else():
    rows = scoreboard({"bulk-produce": 1.2, "no-goal": 3.0}).rows
    assert rows == [(GOALS["bulk-produce"].measure, "≤ 1.5", "1.20", "reached")]


def test_results_are_saved_with_their_full_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outcome_module, "RESULTS_DIRECTORY", tmp_path / "results")
    outcome = Outcome("one", measures={"m": 1.23456789})
    outcome.table("T", "a").add(0.1)
    path = save([outcome], {"cpus": 2}, "stamp")
    assert path.name == "stamp-one.json"
    saved = json.loads(path.read_text())
    assert saved["machine"] == {"cpus": 2}
    assert saved["outcomes"][0]["measures"] == {"m": 1.23456789}
    assert saved["outcomes"][0]["tables"][0]["rows"] == [[0.1]]


def test_a_line_that_is_being_written_is_no_step_yet(tmp_path: Path):
    path = tmp_path / "steps.txt"
    path.write_text("10 2000000 3000000 400 some.task\n20 20")
    steps, position = slow_steps(path)
    assert steps == [TimedStep(10, 2_000_000, 3_000_000, 400, "some.task")]
    path.write_text("10 2000000 3000000 400 some.task\n20 2000000 3000000 0 other\n")
    assert [step.task for step in slow_steps(path, position)[0]] == ["other"]


@pytest.mark.parametrize(
    ("rates", "turns"),
    [
        ([100.0, 200.0, 300.0, 301.0, 299.0], 5),
        ([100.0, 90.0, 200.0, 201.0, 202.0], 5),
        ([100.0, 100.0, 100.0], 3),
        ([2.0**turn for turn in range(WARM_TURNS + 1)], WARM_TURNS),
    ],
    ids=["settles", "stands still once", "is warm", "rises for ever"],
)
def test_a_load_is_warm_when_its_rate_has_stopped_rising(rates: list[float], turns: int):
    assert warm_up(iter(rates).__next__) == turns


def test_all_stands_for_every_benchmark_and_a_name_of_several_for_those():
    assert options_of(["all"])[0] == list(BENCHMARKS)
    assert options_of(["acls", "security"])[0] == ["acls", *(name for name in TOGETHER["security"] if name != "acls")]
    assert options_of(["fsync", "--repeats", "2"])[1].repeats == 2


def test_a_bulk_batch_is_as_large_as_it_may_be_and_whole():
    batch = bulk_batch(100_000)
    assert 98_000 < len(batch.data) <= 100_000
    (read,) = read_batches(memoryview(batch.data))
    read.verify_crc()
    assert read.header.record_count == batch.record_count


def test_a_produce_frame_is_one_that_a_broker_reads():
    frame = produce_frame("topic", 3, small_batch(), acks=-1)
    body = memoryview(frame)[4:]
    assert int.from_bytes(frame[:4], "big") == len(body)
    _, position = read_request_header(body)
    request, end = decode(ProduceRequest, PRODUCE_VERSION, body, position)
    assert end == len(body)
    assert (request.acks, request.topic_data[0].partition_data[0].index) == (-1, 3)
    assert bytes(request.topic_data[0].partition_data[0].records or b"") == small_batch()


@pytest.mark.parametrize("offset", [0, 1, 2**40 + 7])
def test_the_offset_of_a_fetch_is_patched_where_it_stands(offset: int):
    body = memoryview(fetch_frame("topic", 2, MIB).at(offset))[4:]
    _, position = read_request_header(body)
    request, _ = decode(FetchRequest, FETCH_VERSION, body, position)
    (partition,) = request.topics[0].partitions
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, offset, MIB)


def test_a_successful_answer_has_the_size_that_clients_check():
    frame = success_response("topic")
    response, end = decode(ProduceResponse, PRODUCE_VERSION, frame, 9)
    assert end == len(frame)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_a_file_that_was_forgotten_keeps_its_size_and_holds_nothing(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    try:
        forget_contents(path)
    except OSError as error:
        pytest.skip(f"this file system has no holes: {error}")
    assert path.stat().st_size == 100_000
    assert path.read_bytes() == bytes(100_000)


def test_a_process_tells_its_cpu_time_and_memory():
    assert process_cpu_seconds(os.getpid()) > 0
    assert resident_bytes(os.getpid()) > 1_000_000
    assert file_system_of(Path("/proc")) == "proc"
