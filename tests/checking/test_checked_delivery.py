"""The checker of delivery finds every record that was invented, changed, moved, skipped or forgotten."""

from __future__ import annotations

from tests.checking.delivery import (
    EVERYTHING_IS_PROCESSED,
    NOTHING_IS_SKIPPED,
    ONE_VALUE_PER_OFFSET,
    ONLY_WHAT_WAS_SENT,
    check_delivery,
    spans,
)
from tests.checking.history import Event, Op, Outcome, Record
from tests.checking.sample_events import GROUP, assign, event, poll, promises, send


def found(*history: Event) -> list[str]:
    return promises(check_delivery(sorted(history, key=lambda each: each.invoked), frozenset({GROUP})))


def test_what_was_sent_and_processed_by_somebody_is_right() -> None:
    assert found(send(1, 0, 0, 1, 2, 3), poll("a", 2, 0, 0, 1), poll("b", 3, 0, 2, 3)) == []


def test_processing_twice_is_right() -> None:
    assert found(send(1, 0, 0, 1), poll("a", 2, 0, 0, 1), assign("b", 3, 0), poll("b", 4, 0, 0, 1)) == []


def test_a_record_that_nobody_processed_is_found_and_named() -> None:
    history = [send(1, 0, *range(9)), poll("a", 2, 0, 0, 1), poll("b", 3, 0, 5, 6, 7)]
    [violation] = check_delivery(history, frozenset({GROUP}))
    assert violation.promise == EVERYTHING_IS_PROCESSED
    assert violation.text == "g has not processed offsets 2-4, 8 of partition 0"


def test_each_group_processes_everything() -> None:
    history = [send(1, 0, 0), poll("a", 2, 0, 0)]
    assert promises(check_delivery(history, frozenset({GROUP, "other"}))) == [EVERYTHING_IS_PROCESSED]


def test_a_record_from_nowhere_is_found() -> None:
    assert found(send(1, 0, 0), poll("a", 2, 0, 0, 1)) == [ONLY_WHAT_WAS_SENT]


def test_a_send_in_doubt_may_be_there_and_need_not() -> None:
    doubtful = event(Op.SEND, "sender", 1, outcome=Outcome.INFO, records=(Record(0, -1, 0),))
    assert found(doubtful) == []
    assert found(doubtful, poll("a", 2, 0, 0)) == []


def test_a_send_that_failed_must_not_be_there() -> None:
    assert found(send(1, 0, 0, outcome=Outcome.FAIL), poll("a", 2, 0, 0)) == [ONLY_WHAT_WAS_SENT]


def test_two_values_at_one_offset_are_found() -> None:
    other = event(Op.POLL, "b", 3, records=(Record(0, 0, 1),))
    assert ONE_VALUE_PER_OFFSET in found(send(1, 0, 0, 1), poll("a", 2, 0, 0, 1), other)


def test_a_record_at_another_offset_than_was_acknowledged_is_missing_there() -> None:
    moved = event(Op.POLL, "a", 2, records=(Record(0, 1, 0),))
    assert found(send(1, 0, 0), moved) == [EVERYTHING_IS_PROCESSED]


def test_a_member_that_jumps_within_an_assignment_is_found_even_if_another_processed_the_rest() -> None:
    history = [send(1, 0, *range(5)), poll("b", 2, 0, *range(5)), poll("a", 3, 0, 0, 1), poll("a", 4, 0, 3, 4)]
    assert found(*history) == [NOTHING_IS_SKIPPED]
    back = [send(1, 0, *range(5)), poll("a", 3, 0, *range(5)), poll("a", 4, 0, 3, 4)]
    assert found(*back) == [NOTHING_IS_SKIPPED]


def test_a_new_assignment_may_begin_anywhere() -> None:
    history = [send(1, 0, *range(5)), poll("a", 2, 0, *range(5)), assign("a", 3, 0), poll("a", 4, 0, 1, 2)]
    assert found(*history) == []


def test_spans() -> None:
    assert spans([7, 1, 3, 2]) == "1-3, 7"
    assert spans([]) == ""
