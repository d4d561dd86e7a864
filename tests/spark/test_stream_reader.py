"""A stream's reader, asked as PySpark asks it, without Spark and mostly without a broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection
from typing import Any

import attrs
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from tests.spark.offset_sources import FakeLogs
from tests.spark.topic_records import fill, numbers
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable, SparkJobError
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.stream_reader import StreamReader
from trio_broker.testing import BrokerThread

ALL = ReadAllAvailable()
NOT_YET: dict[str, Any] = {"": {}}
A0 = TopicPartition("a", 0)


class TurnableLogs(FakeLogs):
    """Logs of the topic ``a``. ``first_answers`` are the ends that the first questions get, one each."""

    def __init__(self) -> None:
        super().__init__({}, topic_ids={"a": "id-1"})
        self.first_answers: list[dict[TopicPartition, int]] = []

    def hold(self, **bounds: int | tuple[int, int]) -> TurnableLogs:
        """Let there be these partitions and no others: ``p0=(start, end)``, or ``p0=end`` from offset 0 on."""
        self.logs = {
            TopicPartition("a", int(name[1:])): each if isinstance(each, tuple) else (0, each)
            for name, each in bounds.items()
        }
        self.times = {partition: range(100 * start, 100 * end, 100) for partition, (start, end) in self.logs.items()}
        return self

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self.first_answers.pop(0) if self.first_answers else super().latest(partitions)


@attrs.define
class Bench:
    """A reader of the topic ``a``, its cluster and its clock."""

    source: TurnableLogs = attrs.field(factory=TurnableLogs)
    seconds: float = 1000.0
    slept: list[float] = attrs.field(factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    def reader(self, **options: str) -> StreamReader:
        """A reader in a new process: with all that a checkpoint has, and nothing else."""
        return StreamReader(
            stream_options(**options),
            ("value",),
            open_source=lambda _: self.source,
            now=lambda: self.seconds,
            sleep=self.sleep,
        )


def stream_options(servers: str = "localhost:1", **options: str) -> ReadOptions:
    """Those of a stream of ``a`` that begins at its earliest offset, unless ``options`` say otherwise."""
    where = {} if "subscribePattern" in options else {"subscribe": "a"}
    begins = {} if any(name.startswith("starting") for name in options) else {"startingOffsets": "earliest"}
    return read_options({"kafka.bootstrap.servers": servers, **where, **begins, **options}, Mode.STREAM)


def ends(**offsets: int) -> dict[str, Any]:
    """An end in the checkpoint: ``ends(p0=8)``."""
    return {"a": {name[1:]: offset for name, offset in offsets.items()}}


def first_end(begins: dict[str, Any], ends: dict[str, Any]) -> dict[str, Any]:
    """The end of a first micro-batch, which says where that begins."""
    return {f"begins at {json.dumps(begins, separators=(',', ':'))}": {}, **ends}


def ranges(partitions: list[InputPartition]) -> list[str]:
    return [str(each.value.offsets) for each in partitions]


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- Where a stream begins ---


def test_earliest_is_found_out_when_the_first_micro_batch_is_planned(bench: Bench) -> None:
    bench.source.hold(p0=(5, 8), p1=3)
    reader = bench.reader()
    assert reader.initialOffset() == NOT_YET
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert end == first_end(ends(p0=5, p1=0), ends(p0=8, p1=3))
    assert ranges(reader.partitions(NOT_YET, end)) == ["a-0 [5, 8)", "a-1 [0, 3)"]


def test_latest_is_written_down_by_a_first_micro_batch_with_nothing_in_it(bench: Bench) -> None:
    bench.source.hold(p0=(5, 8))
    reader = bench.reader(startingOffsets="latest")
    end = reader.latestOffset(NOT_YET, ALL)
    bench.source.hold(p0=(5, 20))
    assert reader.partitions(NOT_YET, end) == []
    second = reader.latestOffset(end, ALL)
    assert ranges(reader.partitions(end, second)) == ["a-0 [8, 20)"]


def test_only_the_end_of_the_first_micro_batch_says_where_that_begins(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader()
    end = reader.latestOffset(NOT_YET, ALL)
    assert reader.latestOffset(end, ALL) == end, "Spark takes any other text for new records"
    bench.source.hold(p0=9)
    assert reader.latestOffset(end, ALL) == ends(p0=9)


BEGINNINGS = {
    "earliest": {"startingOffsets": "earliest"},
    "latest": {"startingOffsets": "latest"},
    "offsets": {"startingOffsets": '{"a": {"0": 3, "1": 4}}'},
    "the sentinels": {"startingOffsets": '{"a": {"0": -1, "1": -2}}'},
    "a time": {"startingTimestamp": "300"},
    "a time, or latest": {"startingTimestamp": "500", "startingOffsetsByTimestampStrategy": "latest"},
    "times": {"startingOffsetsByTimestamp": '{"a": {"0": 200, "1": 600}}'},
    "times, or latest": {
        "startingOffsetsByTimestamp": '{"a": {"0": 300, "1": 5000}}',
        "startingOffsetsByTimestampStrategy": "latest",
    },
}
"""All kinds of beginnings. The record at offset n has the time 100 × n."""

BEGIN_AT = {
    "earliest": {0: 2, 1: 0},
    "latest": {0: 8, 1: 9},
    "offsets": {0: 3, 1: 4},
    "the sentinels": {0: 8, 1: 0},
    "a time": {0: 3, 1: 3},
    "a time, or latest": {0: 5, 1: 5},
    "times": {0: 2, 1: 6},
    "times, or latest": {0: 3, 1: 9},
}
"""The offset of each partition, of which one has the records 2 to 7, and the other 0 to 8."""


def planned_first(bench: Bench, beginning: str) -> dict[str, Any]:
    """The end of a first micro-batch that was planned, but not completed."""
    bench.source.hold(p0=(2, 8), p1=9)
    return bench.reader(**BEGINNINGS[beginning]).latestOffset(NOT_YET, ALL)


@pytest.mark.parametrize("restarted_with", BEGINNINGS)
@pytest.mark.parametrize("begun_at", BEGINNINGS)
def test_a_first_micro_batch_is_the_same_after_a_restart_whatever_the_options_and_logs_say_then(
    bench: Bench, begun_at: str, restarted_with: str
) -> None:
    end = planned_first(bench, begun_at)
    bench.source.hold(p0=(2, 20), p1=30, p2=40)
    reader = bench.reader(**BEGINNINGS[restarted_with])
    expected = [
        f"a-{number} [{begin}, {last})"
        for number, begin, last in ((0, BEGIN_AT[begun_at][0], 8), (1, BEGIN_AT[begun_at][1], 9))
        if begin < last
    ]
    assert ranges(reader.partitions(reader.initialOffset(), end)) == expected
    second = reader.latestOffset(end, ALL)
    assert ranges(reader.partitions(end, second)) == ["a-0 [8, 20)", "a-1 [9, 30)", "a-2 [0, 40)"]


@pytest.mark.parametrize("begun_at", BEGINNINGS)
def test_records_of_a_first_micro_batch_that_were_deleted_before_a_restart_are_a_loss(
    bench: Bench, begun_at: str
) -> None:
    end = planned_first(bench, begun_at)
    bench.source.hold(p0=(8, 20), p1=(7, 30))
    lost = {f"a-{number}" for number, gone_up_to in ((0, 8), (1, 7)) if BEGIN_AT[begun_at][number] < gone_up_to}
    if lost:
        with pytest.raises(DataLoss, match=f"{min(lost)} at offset [0-9]+: the records are gone"):
            bench.reader(**BEGINNINGS[begun_at]).partitions(NOT_YET, end)
    kept = bench.reader(**BEGINNINGS[begun_at], failOnDataLoss="false").partitions(NOT_YET, end)
    begin = max(7, BEGIN_AT[begun_at][1])
    assert ranges(kept) == ([f"a-1 [{begin}, 9)"] if begin < 9 else [])


def test_a_partition_that_is_deleted_before_the_first_micro_batch_is_done_is_a_loss(bench: Bench) -> None:
    end = planned_first(bench, "earliest")
    bench.source.hold(p0=(2, 20))
    with pytest.raises(DataLoss, match="a-1 at offset 0: the partition is gone"):
        bench.reader().partitions(NOT_YET, end)


@pytest.mark.parametrize("end", [ends(p0=8), {}])
def test_a_first_micro_batch_of_an_older_checkpoint_is_refused_if_it_is_not_done(
    bench: Bench, end: dict[str, Any]
) -> None:
    bench.source.hold(p0=8)
    with pytest.raises(SparkJobError, match=r"without its beginning.*: let that one complete it, or start"):
        bench.reader().partitions(NOT_YET, end)


def test_an_older_checkpoint_whose_first_micro_batch_is_done_is_gone_on_from(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader()
    assert ranges(reader.partitions(ends(p0=3), ends(p0=6))) == ["a-0 [3, 6)"]
    assert reader.latestOffset(ends(p0=6), ALL) == ends(p0=8)


def test_offsets_that_leave_out_a_partition_are_refused_before_the_first_micro_batch(bench: Bench) -> None:
    bench.source.hold(p0=8, p1=9)
    with pytest.raises(OptionError, match="'startingOffsets': names nothing for a-1"):
        bench.reader(startingOffsets='{"a": {"0": 3}}').latestOffset(NOT_YET, ALL)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_stream_that_began_with_no_topic_reads_all_of_the_first_that_comes(bench: Bench, starting: str) -> None:
    options = {"subscribePattern": "a.*", "startingOffsets": starting}
    end = bench.reader(**options).latestOffset(NOT_YET, ALL)
    assert end == {"begins at {}": {}}
    assert bench.reader(**options).partitions(NOT_YET, end) == []
    bench.source.hold(p0=5)
    second = bench.reader(**options).latestOffset(end, ALL)
    assert ranges(bench.reader(**options).partitions(end, second)) == ["a-0 [0, 5)"]


# --- Offsets ---


def test_offsets_are_sorted_by_topic_and_by_the_number_of_the_partition(bench: Bench) -> None:
    bench.source.hold(p10=3, p1=2, p0=1)
    end = bench.reader().latestOffset(NOT_YET, ALL)
    begins = '"begins at {\\"a\\":{\\"0\\":0,\\"1\\":0,\\"10\\":0}}": {}'
    assert json.dumps(end) == f'{{{begins}, "a": {{"0": 1, "1": 2, "10": 3}}}}'


def test_offsets_of_sparks_own_kafka_source_are_read_on_from(bench: Bench) -> None:
    bench.source.hold(p0=9)
    start = json.loads('{"a":{"0":4}}')
    assert ranges(bench.reader().partitions(start, bench.reader().latestOffset(start, ALL))) == ["a-0 [4, 9)"]


@pytest.mark.parametrize("offsets", [5, {"a": 3}, {"a": {"x": 3}}, {"a": {"0": "3"}}, {"a": {"0": -3}}])
def test_a_checkpoint_of_another_source_is_reported_as_that(bench: Bench, offsets: Any) -> None:
    with pytest.raises(SparkJobError, match="the checkpoint has offsets that are not of this source"):
        bench.reader().latestOffset(offsets, ALL)
    with pytest.raises(SparkJobError, match="the checkpoint has offsets that are not of this source"):
        bench.reader().partitions(NOT_YET, offsets)
    with pytest.raises(SparkJobError, match="the checkpoint has offsets that are not of this source"):
        bench.reader().partitions(NOT_YET, first_end(offsets, ends(p0=3)))


def test_nothing_is_asked_for_a_micro_batch_with_nothing_in_it(bench: Bench) -> None:
    assert bench.reader().partitions({"a": {"0": 4}}, {"a": {"0": 4}}) == []
    assert bench.source.questions == []


def test_the_same_micro_batch_is_cut_into_the_same_tasks_after_a_restart(bench: Bench) -> None:
    bench.source.hold(p0=1000, p1=10)
    start, end = {"a": {"0": 0, "1": 0}}, {"a": {"0": 900, "1": 10}}
    once = ranges(bench.reader(minPartitions="5").partitions(start, end))
    bench.source.hold(p0=5000, p1=5000)
    assert ranges(bench.reader(minPartitions="5").partitions(start, end)) == once
    assert len(once) == 5


# --- Limits ---


def test_the_limit_that_spark_receives_is_that_of_the_options(bench: Bench) -> None:
    assert bench.reader().getDefaultReadLimit() == ALL
    assert bench.reader(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert bench.reader(minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)
    both = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "7"}
    assert bench.reader(**both).getDefaultReadLimit() == ReadMaxRows(7)


def test_a_micro_batch_is_shared_out_among_the_partitions(bench: Bench) -> None:
    bench.source.hold(p0=90, p1=10)
    reader = bench.reader(maxOffsetsPerTrigger="10")
    assert reader.latestOffset(NOT_YET, ReadMaxRows(10)) == first_end(ends(p0=0, p1=0), ends(p0=9, p1=1))
    assert reader.latestOffset({"a": {"0": 9, "1": 1}}, ReadMaxRows(10)) == {"a": {"0": 18, "1": 2}}


def test_a_trigger_that_wants_everything_gets_it_despite_the_limit(bench: Bench) -> None:
    bench.source.hold(p0=90)
    assert bench.reader(maxOffsetsPerTrigger="10").latestOffset(NOT_YET, ALL) == first_end(ends(p0=0), ends(p0=90))


def test_a_micro_batch_waits_until_there_is_enough_or_it_is_late(bench: Bench) -> None:
    bench.source.hold(p0=1)
    reader = bench.reader(minOffsetsPerTrigger="10", maxTriggerDelay="60s", maxOffsetsPerTrigger="20")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(NOT_YET, limit)
    assert first == first_end(ends(p0=0), ends(p0=1))
    bench.source.hold(p0=5)
    assert reader.latestOffset(first, limit) == first
    bench.seconds += 61
    assert reader.latestOffset(first, limit) == {"a": {"0": 5}}
    bench.source.hold(p0=15)
    assert reader.latestOffset({"a": {"0": 5}}, limit) == {"a": {"0": 15}}


def test_what_is_there_at_the_start_is_all_that_available_now_reads(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(NOT_YET, limit)
    bench.source.hold(p0=100)
    second = reader.latestOffset(first, limit)
    assert (first, second) == (first_end(ends(p0=0), ends(p0=5)), ends(p0=8))
    assert reader.latestOffset(second, limit) == second
    assert ranges(reader.partitions(first, second)) == ["a-0 [5, 8)"]


def test_available_now_ends_with_an_error_when_a_partition_goes_meanwhile(bench: Bench) -> None:
    bench.source.hold(p0=8, p1=8)
    reader = bench.reader()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(NOT_YET, ALL)
    bench.source.hold(p0=8)
    with pytest.raises(SparkJobError, match="a-1"):
        reader.partitions(NOT_YET, end)


def test_the_backlog_is_what_was_there_when_it_was_last_asked(bench: Bench) -> None:
    bench.source.hold(p0=90)
    reader = bench.reader()
    assert reader.reportLatestOffset() is None
    reader.latestOffset(NOT_YET, ReadMaxRows(10))
    bench.source.questions.clear()
    assert reader.reportLatestOffset() == {"a": {"0": 90}}
    assert bench.source.questions == []


# --- Losses ---


def test_new_partitions_are_read_from_their_first_record_on(bench: Bench) -> None:
    bench.source.hold(p0=8, p1=3)
    reader = bench.reader()
    end = reader.latestOffset({"a": {"0": 8}}, ALL)
    assert ranges(reader.partitions({"a": {"0": 8}}, end)) == ["a-1 [0, 3)"]


def lossy(bench: Bench, **options: str) -> list[str]:
    """What a new reader plans from offset 5 of a-0 to what is there now."""
    reader = bench.reader(**options)
    start = {"a": {"0": 5}}
    return ranges(reader.partitions(start, reader.latestOffset(start, ALL)))


@pytest.mark.parametrize(
    ("holds", "words", "read_anyway"),
    [
        ({"p0": (7, 9)}, "a-0 at offset 5: the records are gone, the log begins at 7", ["a-0 [7, 9)"]),
        ({"p0": 2}, "a-0 at offset 5: the log ends at 2", []),
        ({"p1": 2}, "a-0 at offset 5: the partition is gone", ["a-1 [0, 2)"]),
        ({"p0": 6, "p1": (4, 9)}, "a-1 at offset 0: the records are gone, the log begins at 4", None),
    ],
)
def test_records_that_are_gone_end_the_query_or_are_left_out(
    bench: Bench, holds: dict[str, Any], words: str, read_anyway: list[str] | None
) -> None:
    bench.source.hold(**holds)
    with pytest.raises(DataLoss, match=words):
        lossy(bench)
    read = lossy(bench, failOnDataLoss="false")
    assert read == (["a-0 [5, 6)", "a-1 [4, 9)"] if read_anyway is None else read_anyway)


def test_a_log_that_seems_shorter_is_asked_for_again(bench: Bench) -> None:
    bench.source.hold(p0=9).first_answers = [{A0: 0}, {A0: 4}]
    reader = bench.reader(**{"fetchOffset.retryIntervalMs": "50"})
    assert reader.latestOffset({"a": {"0": 5}}, ALL) == {"a": {"0": 9}}
    assert bench.slept == [0.05, 0.05]


def test_a_topic_that_is_created_again_between_two_micro_batches_is_a_loss(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader()
    start = reader.latestOffset(NOT_YET, ALL)
    bench.source.hold(p0=12).ids["a"] = "id-2"
    with pytest.raises(DataLoss, match="a-0 at offset 8: the topic was deleted and created again"):
        reader.latestOffset(start, ALL)


@pytest.mark.parametrize("gone_before", [False, True])
@pytest.mark.parametrize("length", [0, 8, 12])
def test_a_topic_that_is_created_again_is_read_from_its_first_record_if_losses_do_not_matter(
    bench: Bench, length: int, gone_before: bool
) -> None:
    bench.source.hold(p0=8)
    options = {"subscribePattern": "a.*", "failOnDataLoss": "false"}
    reader = bench.reader(**options)
    start = reader.latestOffset(NOT_YET, ALL)
    if gone_before:
        bench.source.hold().ids.clear()
        assert reader.latestOffset(start, ALL) == start
    bench.source.hold(p0=length).ids["a"] = "id-2"
    beginning = reader.latestOffset(start, ALL)
    assert beginning == ends(p0=0), "an empty micro-batch says where it begins"
    for each in (reader, bench.reader(**options)):
        assert each.partitions(start, beginning) == []
        end = each.latestOffset(beginning, ALL)
        assert ranges(each.partitions(beginning, end)) == ([f"a-0 [0, {length})"] if length else [])


def test_tasks_receive_the_topic_that_they_were_planned_for(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader()
    end = reader.latestOffset(NOT_YET, ALL)
    bench.source.ids["a"] = "id-2"
    [task] = reader.partitions(NOT_YET, end)
    assert task.value.transport.topic_id == "id-1"


# --- Metadata that says less for a moment ---


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("available_now", [True, False])
def test_a_query_waits_where_it_is_while_no_partition_is_named(
    bench: Bench, fail: str, available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    start = {"a": {"0": 5}}
    reader = bench.reader(subscribePattern="a.*", failOnDataLoss=fail)
    if available_now:
        reader.prepareForTriggerAvailableNow()
    for _ in range(3):
        assert reader.latestOffset(start, ALL) == start
    if available_now:
        reader = bench.reader(subscribePattern="a.*", failOnDataLoss=fail)
    else:
        assert caplog.text.count("waiting for partitions, of which the cluster names none now: a-0") == 1
    bench.source.hold(p0=8)
    assert ranges(reader.partitions(start, reader.latestOffset(start, ALL))) == ["a-0 [5, 8)"]


def test_a_partition_that_is_named_again_at_once_was_never_gone(bench: Bench) -> None:
    bench.source.hold(p0=8, p1=9).first_answers = [{A0: 8}]
    assert bench.reader().latestOffset(ends(p0=5, p1=5), ALL) == ends(p0=8, p1=9)
    assert len(bench.slept) == 1


def test_a_partition_that_is_gone_while_others_stay_ends_the_query_before_the_checkpoint_is_without_it(
    bench: Bench,
) -> None:
    start = ends(p0=5, p1=5)
    bench.source.hold(p0=8)
    with pytest.raises(DataLoss, match="a-1 at offset 5: the partition is gone"):
        bench.reader().latestOffset(start, ALL)
    bench.source.hold(p0=8, p1=9)
    reader = bench.reader()
    assert ranges(reader.partitions(start, reader.latestOffset(start, ALL))) == ["a-0 [5, 8)", "a-1 [5, 9)"]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_partition_that_comes_back_is_read_on_where_it_was_if_losses_do_not_matter(
    bench: Bench, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    start = ends(p0=5, p1=5)
    bench.source.hold(p0=8)
    reader = bench.reader(failOnDataLoss="false")
    end = reader.latestOffset(start, ALL)
    assert end == ends(p0=8, p1=5)
    assert ranges(reader.partitions(start, end)) == ["a-0 [5, 8)"]
    asked = len(bench.slept)
    assert reader.latestOffset(end, ALL) == end
    assert len(bench.slept) == asked
    assert caplog.text.count("a-1 at offset 5: the partition is gone") == 1
    bench.source.hold(p0=8, p1=9)
    if restarted:
        reader = bench.reader(failOnDataLoss="false")
    assert ranges(reader.partitions(end, reader.latestOffset(end, ALL))) == ["a-1 [5, 9)"]


def test_a_query_that_is_to_end_does_so_without_a_partition_that_is_gone_if_losses_do_not_matter(
    bench: Bench,
) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader(failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    start = ends(p0=5, p1=5)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader.partitions(start, end)) == ["a-0 [5, 8)"]
    assert reader.latestOffset(end, ALL) == end


def test_a_topic_without_an_id_for_a_moment_is_the_same_topic(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader()
    first = reader.latestOffset(NOT_YET, ALL)
    for topic_id, length in (("", 9), ("id-1", 10)):
        bench.source.hold(p0=length).ids["a"] = topic_id
        end = reader.latestOffset(first, ALL)
        [task] = reader.partitions(first, end)
        assert task.value.transport.topic_id == "id-1"


def test_a_micro_batch_asks_again_for_a_partition_without_a_beginning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.source.hold(p0=8)
    answers = [{}, {A0: 0}]
    monkeypatch.setattr(bench.source, "earliest", lambda _: answers.pop(0))
    assert ranges(bench.reader().partitions(ends(p0=3), ends(p0=8))) == ["a-0 [3, 8)"]
    assert len(bench.slept) == 1


# --- A reader's life ---


def test_a_reader_travels_before_it_is_used_and_asks_nobody_until_then() -> None:
    reader = pickle.loads(pickle.dumps(StreamReader(stream_options("nobody.invalid:9092"), ("value",))))
    assert reader.initialOffset() == NOT_YET
    assert reader.getDefaultReadLimit() == ALL
    assert reader.reportLatestOffset() is None
    reader.stop()


def test_stopping_lets_go_of_connections_and_may_happen_twice(bench: Bench) -> None:
    bench.source.hold(p0=8)
    reader = bench.reader()
    reader.latestOffset(NOT_YET, ALL)
    reader.stop()
    reader.stop()
    assert bench.source.is_closed


def test_nobody_at_the_address_is_an_error_that_names_it(unused_tcp_port_text: str) -> None:
    options = stream_options(unused_tcp_port_text, **{"fetchOffset.numRetries": "1"})
    reader = StreamReader(options, ("value",))
    with pytest.raises(SourceUnavailable, match=unused_tcp_port_text) as raised:
        reader.latestOffset(NOT_YET, ALL)
    # One frame of ours is left for Spark to show.
    assert raised.value.__cause__ is None


@pytest.fixture
def unused_tcp_port_text() -> str:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@attrs.define
class Outage:
    """A cluster that does not answer until its time comes."""

    bench: Bench
    until_seconds: float = 0.0

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if self.bench.seconds < self.until_seconds:
            raise SourceUnavailable("nobody answers")
        return dict.fromkeys(topics, "id-1")


def test_a_cluster_that_answered_before_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.source.hold(p0=8)
    outage = Outage(bench)
    monkeypatch.setattr(bench.source, "topic_ids", outage.topic_ids)
    reader = bench.reader(**{"kafkaConsumer.pollTimeoutMs": "90000"})
    first = reader.latestOffset(NOT_YET, ALL)
    outage.until_seconds = bench.seconds + 80
    bench.source.hold(p0=9)
    assert reader.latestOffset(first, ALL) == {"a": {"0": 9}}
    outage.until_seconds = bench.seconds + 100
    with pytest.raises(SourceUnavailable):
        reader.latestOffset(first, ALL)


def test_a_cluster_that_never_answered_is_not_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.source.hold(p0=8)
    monkeypatch.setattr(bench.source, "topic_ids", Outage(bench, bench.seconds + 1).topic_ids)
    with pytest.raises(SourceUnavailable, match="nobody answers"):
        bench.reader().latestOffset(NOT_YET, ALL)
    assert bench.slept == []


def test_a_stream_of_a_real_broker_reads_what_comes(kafka_broker_session: BrokerThread) -> None:
    kafka_broker_session.create_topic("stream-reader", 2)
    options = stream_options(kafka_broker_session.bootstrap_servers, subscribe="stream-reader")
    reader = StreamReader(options, ("value",))
    fill(kafka_broker_session, "stream-reader", numbers(0, 5))
    first = reader.latestOffset(NOT_YET, ALL)
    fill(kafka_broker_session, "stream-reader", numbers(5, 9), partition=1)
    second = reader.latestOffset(first, ALL)
    for start, end, expected in ((NOT_YET, first, numbers(0, 5)), (first, second, numbers(5, 9))):
        batches = [batch for each in reader.partitions(start, end) for batch in reader.read(each)]
        assert [value for batch in batches for value in batch["value"].to_pylist()] == expected
    reader.stop()
