"""What a query reads: starts and ends, losses, and ranges cut into tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.offset_sources import FakeLogs, logs
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import read_options
from trio_broker.spark.planning.offset_planning import initial_offsets, known_topic_ids, plan_batch, plan_stream, split
from trio_broker.spark.ranges import OffsetRange

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
NEEDED = {"kafka.bootstrap.servers": "here:9092"}


def ranges(*bounds: tuple[int, int] | None) -> list[OffsetRange]:
    """Return ranges of the partitions of ``orders``, without those that are None."""
    return [
        OffsetRange(TopicPartition("orders", number), *each) for number, each in enumerate(bounds) if each is not None
    ]


def batch(source: FakeLogs, **options: str) -> list[OffsetRange]:
    return plan_batch(read_options({**NEEDED, "subscribe": "orders", **options}, Mode.BATCH), source)


def start_of_stream(source: FakeLogs, **options: str) -> dict[TopicPartition, int]:
    return initial_offsets(read_options({**NEEDED, "subscribe": "orders", **options}, Mode.STREAM), source)


# Batches


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        ({}, ranges((0, 4), (5, 8))),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, ranges((0, 4), (5, 8))),
        ({"startingOffsets": '{"orders": {"0": 3, "1": -2}}'}, ranges((3, 4), (5, 8))),
        ({"endingOffsets": '{"orders": {"0": 3, "1": -1}}'}, ranges((0, 3), (5, 8))),
        (
            {"startingOffsets": '{"orders": {"0": 3, "1": 8}}', "endingOffsets": '{"orders": {"0": 4, "1": 8}}'},
            ranges((3, 4)),
        ),
        ({"startingTimestamp": "1000", "endingTimestamp": "2000"}, ranges((1, 3), (5, 7))),
        ({"startingTimestamp": "1001", "endingTimestamp": "1001"}, []),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 2000, "1": 0}}'}, ranges((3, 4), (5, 8))),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 9999, "1": 1500}}'}, ranges((0, 4))),
        ({"startingTimestamp": "2100", "startingOffsetsByTimestampStrategy": "latest"}, ranges(None, (7, 8))),
        ({"startingTimestamp": "1600", "endingOffsets": '{"orders": {"0": 4, "1": 7}}'}, ranges((3, 4), (6, 7))),
    ],
)
def test_a_batch_reads_from_its_start_to_its_end(options, planned):
    source = logs(orders=[(0, 4), (5, 8)], other=[(0, 1)])
    source.times = {ORDERS_0: [500, 1000, 1500, 2000], ORDERS_1: [1500, 1600, 2500]}
    assert batch(source, **options) == planned


@pytest.mark.parametrize(
    ("selection", "planned"),
    [
        ({"assign": '{"orders": [1]}'}, ranges(None, (5, 8))),
        ({"assign": '{"orders": [1, 7]}'}, ranges(None, (5, 8))),
        ({"subscribe": "orders"}, ranges((0, 4), (5, 8))),
        ({"subscribePattern": "or.*"}, ranges((0, 4), (5, 8))),
        ({"subscribePattern": "rder"}, ranges((0, 4), (5, 8))),
        ({"subscribePattern": "^or$"}, []),
    ],
)
def test_a_batch_reads_the_partitions_that_were_selected(selection, planned):
    source = logs(orders=[(0, 4), (5, 8)], other=[(0, 1)])
    assert plan_batch(read_options(NEEDED | selection, Mode.BATCH), source) == planned


def test_partitions_that_do_not_exist_and_patterns_that_match_nothing_are_reported(caplog):
    source = logs(orders=[(0, 4)])
    plan_batch(read_options({**NEEDED, "assign": '{"orders": [0, 7]}'}, Mode.BATCH), source)
    assert "assigned partitions that do not exist are left out: orders-7" in caplog.text
    plan_batch(read_options({**NEEDED, "subscribePattern": "x"}, Mode.BATCH), source)
    assert "there is nothing to read: SubscribePattern(pattern='x')" in caplog.text


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        (
            {"startingOffsets": '{"orders": {"0": 1}}'},
            "startingOffsets",
            "names nothing for orders-1; all partitions must be named",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 1, "1": 5, "2": 0}, "other": {"0": 0}}'},
            "startingOffsets",
            "names orders-2, other-0, which is not read or does not exist",
        ),
        ({"endingOffsets": '{"orders": {"1": 6}}'}, "endingOffsets", "names nothing for orders-0"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"1": 6}}'},
            "startingOffsetsByTimestamp",
            "names nothing for orders-0",
        ),
        ({"startingTimestamp": "2100"}, "startingTimestamp", "orders-0: no record is as young as 2100"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 0, "1": 9999}}'},
            "startingOffsetsByTimestamp",
            "orders-1: no record is as young as 9999",
        ),
        (
            {"startingTimestamp": "1600", "endingOffsets": '{"orders": {"0": 2, "1": 8}}'},
            "endingOffsets",
            "orders-0: 2 is before the start, 3",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 2, "1": 5}}', "endingTimestamp": "1000"},
            "endingTimestamp",
            "orders-0: 1 is before the start, 2",
        ),
    ],
)
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_batch_whose_options_do_not_fit_the_logs_is_refused(options, option, text, fail_on_data_loss):
    source = logs(orders=[(0, 4), (5, 8)], other=[(0, 1)])
    source.times = {ORDERS_0: [500, 1000, 1500, 2000], ORDERS_1: [1500, 1600, 2500]}
    with pytest.raises(OptionError) as caught:
        batch(source, failOnDataLoss=fail_on_data_loss, **options)
    assert caught.value.option == option
    assert text in str(caught.value)


LOST_BY_A_BATCH = [
    # options, the partition and offset of the loss, why, what is read anyway
    ({"startingOffsets": '{"orders": {"0": 3}}'}, 3, "the records are gone, the log begins at 5", [(5, 10)]),
    ({"endingOffsets": '{"orders": {"0": 12}}'}, 10, "records up to 12 were asked for, the log ends at 10", [(5, 10)]),
    ({"startingOffsets": '{"orders": {"0": 11}}'}, 11, "the log ends at 10", []),
    (
        {"startingOffsets": '{"orders": {"0": 11}}', "endingOffsets": '{"orders": {"0": 13}}'},
        11,
        "the log ends at 10",
        [],
    ),
    (
        {"startingOffsets": '{"orders": {"0": 1}}', "endingOffsets": '{"orders": {"0": 4}}'},
        1,
        "the records are gone, the log begins at 5",
        [],
    ),
    ({"endingOffsets": '{"orders": {"0": 4}}'}, 4, "the records are gone, the log begins at 5", []),
]


@pytest.mark.parametrize(("options", "offset", "text", "planned"), LOST_BY_A_BATCH)
def test_a_batch_fails_when_records_are_not_there(options, offset, text, planned):
    with pytest.raises(DataLoss) as caught:
        batch(logs(orders=[(5, 10)]), **options)
    assert (caught.value.partition, caught.value.offset) == (ORDERS_0, offset)
    assert text in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)


@pytest.mark.parametrize(("options", "offset", "text", "planned"), LOST_BY_A_BATCH)
def test_a_batch_reads_what_is_there_and_warns_when_losses_do_not_matter(options, offset, text, planned, caplog):
    assert batch(logs(orders=[(5, 10)]), failOnDataLoss="false", **options) == ranges(*planned)
    assert f"data may be lost: orders-0 at offset {offset}: {text}" in caplog.text


def test_nothing_is_lost_where_nothing_was_asked_for():
    bounds = '{"orders": {"0": 2}}'
    assert batch(logs(orders=[(5, 10)]), startingOffsets=bounds, endingOffsets=bounds) == []


def test_the_first_of_many_losses_is_shown_and_the_others_counted():
    with pytest.raises(DataLoss, match=r"^orders-0 at offset 1: .*\(and 1 more partitions\)"):
        batch(logs(orders=[(5, 10), (0, 1), (7, 9)]), startingOffsets='{"orders": {"0": 1, "1": 0, "2": 2}}')


class Vanishing(FakeLogs):
    """Logs of which one goes between two questions."""

    def earliest(self, partitions):
        self.logs.pop(ORDERS_1, None)
        return super().earliest(partitions)


def test_a_partition_that_goes_while_a_batch_is_planned_is_lost():
    with pytest.raises(DataLoss, match=r"^orders-1 at offset 0: the partition is gone"):
        batch(Vanishing(logs(orders=[(0, 4), (5, 8)]).logs))
    assert batch(Vanishing(logs(orders=[(0, 4), (5, 8)]).logs), failOnDataLoss="false") == ranges((0, 4))


class Growing(FakeLogs):
    """Logs that grow with every question."""

    def latest(self, partitions):
        self.logs = {partition: (first, last + 1) for partition, (first, last) in self.logs.items()}
        return super().latest(partitions)


def test_logs_that_grow_while_a_batch_is_planned_are_no_loss():
    """Times are looked up before ends, so that what they find is never behind an end."""
    source = Growing({ORDERS_0: (0, 2)}, times={ORDERS_0: [1, 5]})
    assert batch(source, startingTimestamp="5") == ranges((1, 3))
    assert source.questions.index("for_times") < source.questions.index("latest")


# The start of a stream


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({}, (4, 8)),
        ({"startingOffsets": "earliest"}, (0, 5)),
        ({"startingOffsets": '{"orders": {"0": -1, "1": -2}}'}, (4, 5)),
        ({"startingOffsets": '{"orders": {"0": 2, "1": 7}}'}, (2, 7)),
        ({"startingTimestamp": "1600"}, (3, 6)),
        ({"startingTimestamp": "2100", "startingOffsetsByTimestampStrategy": "latest"}, (4, 7)),
    ],
)
def test_a_stream_begins_where_its_options_say(options, offsets):
    source = logs(orders=[(0, 4), (5, 8)])
    source.times = {ORDERS_0: [500, 1000, 1500, 2000], ORDERS_1: [1500, 1600, 2500]}
    assert start_of_stream(source, **options) == {ORDERS_0: offsets[0], ORDERS_1: offsets[1]}


def test_a_stream_whose_options_do_not_fit_the_logs_is_refused():
    with pytest.raises(OptionError, match="names nothing for orders-1"):
        start_of_stream(logs(orders=[(0, 4), (5, 8)]), startingOffsets='{"orders": {"0": 1}}')
    with pytest.raises(OptionError, match="no record is as young as 10"):
        start_of_stream(logs(orders=[(0, 4)]), startingTimestamp="10")


def test_a_partition_that_goes_while_a_stream_starts_is_left_out():
    assert start_of_stream(Vanishing(logs(orders=[(0, 4), (5, 8)]).logs)) == {ORDERS_0: 4}


class Forgetful(FakeLogs):
    """Logs of which one has no end for a moment, though it is named."""

    def latest(self, partitions):
        return super().latest(set(partitions) - {ORDERS_1})


def test_a_stream_does_not_begin_without_the_offsets_of_a_partition_that_there_is():
    """It would be a new one later, and read from its first record on."""
    with pytest.raises(SourceUnavailable, match="where the log begins and ends now: orders-1"):
        start_of_stream(Forgetful(logs(orders=[(0, 4), (5, 8)]).logs))


# Micro-batches


def micro_batch(start, end, earliest, *, fail_on_data_loss=True):
    """Plan one of the partitions of ``orders``; None leaves one out."""

    def offsets(values):
        return {TopicPartition("orders", number): value for number, value in enumerate(values) if value is not None}

    return plan_stream(offsets(start), offsets(end), earliest=offsets(earliest), fail_on_data_loss=fail_on_data_loss)


def test_a_micro_batch_reads_from_one_end_to_the_next():
    assert micro_batch([1, 7, 3], [4, 8, 3], [0, 5, 3]) == ranges((1, 4), (7, 8))


def test_a_partition_of_which_a_micro_batch_reads_nothing_may_be_gone():
    assert micro_batch([1, 7], [4, 7], [0, None]) == ranges((1, 4))


def test_new_partitions_are_read_from_their_first_record_on():
    assert micro_batch([1], [4, 8], [0, 0]) == ranges((1, 4), (0, 8))


LOST_BY_A_MICRO_BATCH = [
    # start, end, earliest, partition and offset of the loss, why, what is read anyway
    ([1], [4, 8], [0, 3], ORDERS_1, 0, "the records are gone, the log begins at 3", [(1, 4), (3, 8)]),
    ([1], [4, 8], [0, None], ORDERS_1, 0, "the partition is gone", [(1, 4)]),
    ([1, 7], [4], [0], ORDERS_1, 7, "the partition is gone", [(1, 4)]),
    ([1, 7], [4, 9], [0, None], ORDERS_1, 7, "the partition is gone", [(1, 4)]),
    ([1, 7], [4, 6], [0, 0], ORDERS_1, 7, "the log ends at 6: it was truncated or created again", [(1, 4)]),
    ([1, 7], [4, 9], [2, 0], ORDERS_0, 1, "the records are gone, the log begins at 2", [(2, 4), (7, 9)]),
    ([1], [4], [5], ORDERS_0, 1, "the records are gone, the log begins at 5", []),
]


@pytest.mark.parametrize(("start", "end", "earliest", "partition", "offset", "text", "planned"), LOST_BY_A_MICRO_BATCH)
def test_a_micro_batch_fails_when_records_are_not_there(start, end, earliest, partition, offset, text, planned):
    with pytest.raises(DataLoss) as caught:
        micro_batch(start, end, earliest)
    assert (caught.value.partition, caught.value.offset) == (partition, offset)
    assert text in str(caught.value)


@pytest.mark.parametrize(("start", "end", "earliest", "partition", "offset", "text", "planned"), LOST_BY_A_MICRO_BATCH)
def test_a_micro_batch_reads_what_is_there_and_warns_when_losses_do_not_matter(
    start, end, earliest, partition, offset, text, planned, caplog
):
    assert micro_batch(start, end, earliest, fail_on_data_loss=False) == ranges(*planned)
    assert f"data may be lost: {partition} at offset {offset}: {text}" in caplog.text


def test_the_id_of_a_topic_is_known_until_the_topic_has_another_one():
    known = known_topic_ids({"a": "id-1", "b": "id-2", "c": ""}, {"a": "", "b": "id-3", "c": "id-4", "d": ""})
    assert known == {"a": "id-1", "b": "id-3", "c": "id-4", "d": ""}


# Tasks


def sizes(offsets: list[OffsetRange]) -> list[int]:
    return [each.offset_count for each in offsets]


@pytest.mark.parametrize(
    ("bounds", "min_partitions", "max_records", "cut"),
    [
        # As Spark's own source cuts.
        ([(0, 30), (0, 0)], None, None, [30]),
        ([(0, 30), (0, 30)], 2, None, [30, 30]),
        ([(0, 30), (0, 30)], 1, None, [30, 30]),
        ([(0, 30), (0, 30)], 4, None, [15, 15, 15, 15]),
        ([(0, 10)], 3, None, [3, 3, 4]),
        ([(0, 6)], 4, None, [1, 1, 2, 2]),
        ([(0, 2)], 4, None, [1, 1]),
        ([(0, 100), (0, 10), (0, 10)], 4, None, [50, 50, 10, 10]),
        # The large ones are cut as if the small ones were not there.
        ([(0, 10_000)] + [(0, 1)] * 20, 30, None, [1000] * 10 + [1] * 20),
        # For the most records of a task.
        ([(0, 30)], None, 30, [30]),
        ([(0, 31)], None, 30, [15, 16]),
        ([(0, 100), (0, 5)], None, 30, [25, 25, 25, 25, 5]),
        # For both.
        ([(0, 100), (0, 5)], 3, 30, [25, 25, 25, 25, 5]),
        ([(0, 60)], 4, 30, [15, 15, 15, 15]),
        ([], 4, 30, []),
    ],
)
def test_ranges_are_cut_into_tasks(bounds, min_partitions, max_records, cut):
    assert sizes(split(ranges(*bounds), min_partitions=min_partitions, max_records=max_records)) == cut


any_ranges = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**15) | st.integers(0, 20)), max_size=12).map(
    lambda pairs: ranges(*((start, start + count) for start, count in pairs))
)


@given(any_ranges, st.none() | st.integers(1, 60), st.none() | st.integers(10**14, 10**15))
def test_tasks_cover_exactly_what_was_planned_in_its_order_and_evenly(planned, min_partitions, max_records):
    tasks = split(planned, min_partitions=min_partitions, max_records=max_records)
    assert all(task.offset_count for task in tasks)
    assert max_records is None or all(task.offset_count <= max_records for task in tasks)
    rejoined: list[OffsetRange] = []
    for task in tasks:
        if rejoined and rejoined[-1].partition == task.partition:
            assert rejoined[-1].end_offset == task.start_offset
            task = OffsetRange(task.partition, rejoined.pop().start_offset, task.end_offset)
        rejoined.append(task)
    assert rejoined == [each for each in planned if each.offset_count]


@given(any_ranges, st.integers(1, 60))
def test_the_tasks_of_a_partition_differ_by_at_most_one_offset(planned, min_partitions):
    tasks = split(planned, min_partitions=min_partitions)
    for partition in {task.partition for task in tasks}:
        mine = sizes([task for task in tasks if task.partition == partition])
        assert max(mine) - min(mine) <= 1


@given(any_ranges, st.integers(1, 60))
def test_there_are_about_as_many_tasks_as_asked_for_where_there_is_enough_to_cut(planned, min_partitions):
    """Rounding gives or takes up to a half of a task in every partition."""
    tasks = split(planned, min_partitions=min_partitions)
    partitions = {task.partition for task in tasks}
    if all(each.offset_count >= min_partitions for each in planned):
        assert len(tasks) >= min_partitions - len(partitions) / 2 or not partitions
    assert len(tasks) <= max(min_partitions, len(partitions)) + len(partitions)
