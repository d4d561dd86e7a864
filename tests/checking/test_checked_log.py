"""The checker of a log finds every record that was lost, doubled, moved, reordered or invented."""

from __future__ import annotations

import attrs

from tests.checking.delivery import ONLY_WHAT_WAS_SENT
from tests.checking.history import Event, Op, Outcome, Record
from tests.checking.log_content import EVERY_OFFSET, EXACTLY_ONCE, IN_ORDER, check_log
from tests.checking.sample_events import event, promises, send

DOUBTFUL = event(Op.SEND, "sender", 1, outcome=Outcome.INFO, records=(Record(0, -1, 0),))


def found(history: list[Event], *values: int, first: int = 0) -> list[str]:
    """What is wrong with a log of one partition."""
    log = {0: [Record(0, offset, value) for offset, value in enumerate(values, first)]}
    return promises(check_log(history, log))


def test_a_log_of_what_was_acknowledged_is_right() -> None:
    assert found([send(1, 0, 0, 1, 2)], 0, 1, 2) == []


def test_an_acknowledged_record_that_is_not_there_is_found() -> None:
    assert found([send(1, 0, 0, 1)], 0) == [EXACTLY_ONCE]


def test_a_record_that_is_there_twice_is_found() -> None:
    assert EXACTLY_ONCE in found([send(1, 0, 0, 1)], 0, 1, 1)


def test_a_record_that_its_producer_sent_again_in_a_later_epoch_is_not_doubled_and_in_one_epoch_it_is() -> None:
    log = {0: [Record(0, offset, value) for offset, value in enumerate((0, 1, 1, 2))]}
    history = [attrs.evolve(send(1, 0, 0), records=(Record(0, 0, 0), Record(0, 2, 1), Record(0, 3, 2)))]
    assert check_log(history, log, {0: {0: 0, 1: 0, 2: 1, 3: 1}}) == []
    assert EXACTLY_ONCE in promises(check_log(history, log, {0: dict.fromkeys(range(4), 0)}))


def test_a_record_at_another_offset_than_was_acknowledged_is_found() -> None:
    assert set(found([send(1, 0, 0, 1)], 1, 0)) == {EXACTLY_ONCE, IN_ORDER}


def test_a_send_in_doubt_may_be_there_once() -> None:
    assert found([DOUBTFUL]) == []
    assert found([DOUBTFUL], 0) == []
    assert EXACTLY_ONCE in found([DOUBTFUL], 0, 0)


def test_a_record_from_nowhere_is_found() -> None:
    assert found([send(1, 0, 0)], 0, 7) == [ONLY_WHAT_WAS_SENT]


def test_a_send_that_failed_must_not_be_there() -> None:
    assert found([send(1, 0, 0, outcome=Outcome.FAIL)], 0) == [ONLY_WHAT_WAS_SENT]


def test_each_sender_has_an_order_of_its_own() -> None:
    first, second = (event(Op.SEND, name, 1, outcome=Outcome.INFO, records=records) for name, records in SENT.items())
    assert found([first, second], 10, 0, 1, 11) == []
    assert found([first, second], 10, 1, 0, 11) == [IN_ORDER]


SENT = {
    "a": (Record(0, -1, 0), Record(0, -1, 1)),
    "b": (Record(0, -1, 10), Record(0, -1, 11)),
}


def test_an_offset_without_a_record_is_found() -> None:
    assert found([DOUBTFUL], 0, first=1) == [EVERY_OFFSET]
