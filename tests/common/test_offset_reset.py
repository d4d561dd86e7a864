"""Where a reset puts a group's offsets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.common.log_range import UNKNOWN_OFFSET, LogRange
from trio_broker.common.offset_reset import (
    FromFile,
    FromGroup,
    PlanError,
    PlannedOffset,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToMoment,
    ToOffset,
    plan,
    read_offsets,
)
from trio_broker.common.topic_partition import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogRange(100, 200)

offsets = st.integers(0, 1 << 62)
log_ranges = st.tuples(offsets, offsets).map(lambda pair: LogRange(min(pair), max(pair)))


def planned(target: Target, current: int | None = 150, log: LogRange = LOG, found: int | None = None) -> PlannedOffset:
    """The plan for one partition."""
    committed = {} if current is None else {A: current}
    [only] = plan(target, [A], committed, {A: log}, {} if found is None else {A: found})
    return only


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (ToEarliest(), 100),
        (ToLatest(), 200),
        (ToCurrent(), 150),
        (ToOffset(120), 120),
        (ToOffset(100), 100),
        (ToOffset(200), 200),
        (ShiftBy(10), 160),
        (ShiftBy(-50), 100),
        (ShiftBy(50), 200),
        (ShiftBy(0), 150),
        (FromFile({A: 133}), 133),
        (FromGroup("other", {A: 133}), 133),
    ],
)
def test_each_way_leads_to_its_offset_without_a_remark(target: Target, new: int):
    assert planned(target) == PlannedOffset(A, 150, new, "", LOG)


@pytest.mark.parametrize(
    ("target", "new", "remark"),
    [
        (ToOffset(99), 100, "99 is before the log begins"),
        (ToOffset(201), 200, "201 is after the log ends"),
        (ShiftBy(-51), 100, "99 is before the log begins"),
        (ShiftBy(51), 200, "201 is after the log ends"),
        (FromFile({A: 0}), 100, "0 is before the log begins"),
        (FromFile({A: 999}), 200, "999 is after the log ends"),
    ],
)
def test_an_offset_outside_of_the_log_is_moved_to_its_edge(target: Target, new: int, remark: str):
    assert planned(target) == PlannedOffset(A, 150, new, remark, LOG)


def test_a_moment_leads_to_the_record_that_was_found():
    assert planned(ToMoment(5), found=170) == PlannedOffset(A, 150, 170, "", LOG)


def test_a_moment_after_every_record_leads_to_the_end():
    expected = PlannedOffset(A, 150, 200, "no record is as young; the end of the log", LOG)
    assert planned(ToMoment(5), found=UNKNOWN_OFFSET) == planned(ToMoment(5)) == expected


def test_where_nothing_is_committed_the_current_place_is_the_end():
    assert planned(ToCurrent(), None) == PlannedOffset(A, None, 200, "nothing is committed; the end of the log", LOG)


@pytest.mark.parametrize("current", [50, 900])
def test_a_committed_offset_outside_of_the_log_is_kept_where_it_is_asked_for(current: int):
    """As Kafka's tool does: an export must give back what is committed."""
    assert planned(ToCurrent(), current).new == current


def test_what_was_never_committed_cannot_be_shifted():
    with pytest.raises(PlanError, match="t-0 cannot be shifted: nothing is committed for it"):
        planned(ShiftBy(1), None)


def test_a_file_must_have_every_partition_of_the_plan():
    with pytest.raises(PlanError, match="the file has no offset for t-0"):
        planned(FromFile({B: 1}))


def test_an_empty_log_has_one_place():
    for target in (ToEarliest(), ToLatest(), ToOffset(7), ShiftBy(-1000)):
        assert planned(target, log=LogRange(42, 42)).new == 42


def test_a_plan_is_in_order_and_says_where_each_partition_stands():
    other = TopicPartition("s", 9)
    found = plan(ToEarliest(), [B, A, other], {B: 5}, {A: LOG, B: LogRange(1, 2), other: LOG}, {})
    assert [(each.partition, each.current, each.new) for each in found] == [
        (other, None, 100),
        (A, None, 100),
        (B, 5, 1),
    ]


@given(
    st.one_of(
        st.just(ToEarliest()),
        st.just(ToLatest()),
        offsets.map(ToOffset),
        st.integers(-(1 << 62), 1 << 62).map(ShiftBy),
        offsets.map(lambda offset: FromFile({A: offset})),
    ),
    offsets,
    log_ranges,
)
def test_no_plan_leaves_the_log(target: Target, current: int, log: LogRange):
    only = planned(target, current, log)
    assert log.earliest <= only.new <= log.latest
    assert only.current == current


# Files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t,0,5\nt,1,6\n", {A: 5, B: 6}),
        ("t, 0 ,5\r\n\r\nt,1,6", {A: 5, B: 6}),
        ("g,t,0,5\nother,t,0,7\nother,t,1,8\n", {A: 5}),
        ('"t",0,5\n', {A: 5}),
        ("t,0,5\nt,0,6\n", {A: 6}),
    ],
)
def test_a_file_is_read_as_kafkas_tool_exports_it(text: str, expected: Mapping[TopicPartition, int]):
    assert read_offsets(text.splitlines(keepends=True), "g") == expected


@pytest.mark.parametrize("line", ["t,0", "t,x,5", "t,0,-1", "t,0,5.5", ",0,5", "g,t,0,5,extra", "TOPIC,PARTITION,NEW"])
def test_a_line_that_makes_no_sense_is_reported_with_its_number(line: str):
    with pytest.raises(PlanError, match="line 2: "):
        read_offsets(["t,0,5\n", line + "\n"], "g")


@pytest.mark.parametrize("text", ["", "\n\n", "other,t,0,5\n"])
def test_a_file_without_a_line_for_the_group_is_refused(text: str):
    with pytest.raises(PlanError, match="no line for group 'g'"):
        read_offsets(text.splitlines(keepends=True), "g")


@pytest.mark.parametrize(
    ("current", "target", "skipped", "repeated"),
    [
        (150, ToOffset(180), 30, 0),
        (150, ToOffset(120), 0, 30),
        (150, ToOffset(150), 0, 0),
        (None, ToOffset(150), None, None),
        # What retention has deleted cannot be passed over, and what was never written cannot be read again.
        (20, ToOffset(130), 30, 0),
        (250, ToOffset(130), 0, 70),
        (20, ToEarliest(), 0, 0),
    ],
)
def test_a_plan_counts_what_is_passed_over_and_what_is_read_again(
    current: int | None, target: Target, skipped: int | None, repeated: int | None
):
    each = planned(target, current)
    assert (each.skipped_records, each.repeated_records) == (skipped, repeated)


def test_a_partition_that_the_other_group_lacks_is_named():
    with pytest.raises(PlanError, match="group 'other' has no offset for t-0"):
        planned(FromGroup("other", {B: 1}))
