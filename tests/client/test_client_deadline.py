"""How long a command may take, and its pauses."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.client.scripted_client import Pauses
from trio_broker.client.deadline import SHORTEST_PAUSE_SECONDS, RetryDeadline, attempts, pauses, retry


def test_pauses_double_up_to_a_second():
    assert list(islice(pauses(), 6)) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_pause_that_fits_is_slept():
    slept = Pauses()
    deadline = slept.deadline(2)
    assert deadline.pause(1.5)
    assert slept.made == [1.5]
    assert deadline.remaining_seconds == 0.5
    assert deadline.remaining_ms == 500


def test_a_pause_that_does_not_fit_is_not_begun():
    slept = Pauses()
    assert not slept.deadline(1).pause(1.0)
    assert slept.made == []


def test_a_broker_is_never_given_no_time_at_all():
    slept = Pauses()
    deadline = slept.deadline(1)
    slept.made.append(5)
    assert deadline.remaining_seconds == 0
    assert deadline.remaining_ms == 1


def test_pauses_begin_and_end_as_configured():
    assert list(islice(pauses(0.3, 0.5), 3)) == pytest.approx([0.3, 0.5, 0.5])
    assert list(islice(pauses(3, 0.5), 2)) == [0.5, 0.5]


def test_one_attempt_takes_no_longer_than_is_left():
    slept = Pauses()
    deadline = slept.deadline(5)
    slept.made.append(4)
    assert deadline.within(3).remaining_seconds == 1
    assert deadline.restarted().remaining_seconds == 5


def test_attempts_end_when_the_next_pause_would_end_too_late_or_the_pauses_end():
    slept = Pauses()
    assert len(list(attempts(slept.deadline(2)))) == 5
    assert slept.made == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert len(list(attempts(Pauses().deadline(2), [0.1, 0.1]))) == 3
    assert len(list(attempts(Pauses().deadline(0)))) == 1


def test_a_retriable_error_is_handled_and_retried_and_any_other_is_raised():
    errors: list[Exception] = [TimeoutError(), KeyError("k")]
    handled: list[Exception] = []

    def ask() -> None:
        raise errors[len(handled)]

    with pytest.raises(KeyError):
        retry(ask, Pauses().deadline(5), lambda error: isinstance(error, TimeoutError), handled.append)
    assert handled == errors[:1]


def test_the_last_error_is_raised_when_no_attempt_is_left():
    errors = iter([TimeoutError("first"), TimeoutError("last")])

    def ask() -> None:
        raise next(errors)

    with pytest.raises(TimeoutError, match="last"):
        retry(ask, Pauses().deadline(5), lambda _: True, waits=[1.0])


def retry_deadline(slept: Pauses, seconds: float, **options: float) -> RetryDeadline:
    return RetryDeadline(seconds, now=lambda: sum(slept.made), sleep=slept.made.append, **options)


def test_a_deadline_ends_after_its_seconds_without_a_step():
    slept = Pauses()
    deadline = retry_deadline(slept, 2)
    while deadline.pause():
        pass
    assert slept.made == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_a_step_renews_the_deadline_and_its_first_pause():
    slept = Pauses()
    deadline = retry_deadline(slept, 1, first_pause_seconds=0.4)
    assert deadline.pause()
    deadline.renew()
    assert deadline.pause()
    assert slept.made == [0.4, 0.4]


def test_a_question_may_take_no_longer_than_the_deadline():
    slept = Pauses()
    deadline = retry_deadline(slept, 5)
    assert deadline.left_for(3).remaining_seconds == 3
    slept.made.append(4)
    assert deadline.left_for(3).remaining_seconds == 1
    assert deadline.within(3).remaining_seconds == 3


def test_a_deadline_without_pauses_makes_short_ones():
    slept = Pauses()
    deadline = retry_deadline(slept, 1, first_pause_seconds=0, longest_pause_seconds=0)
    assert deadline.pause()
    assert slept.made == [SHORTEST_PAUSE_SECONDS]
