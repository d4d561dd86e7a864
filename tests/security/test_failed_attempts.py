"""Who guesses passwords is slowed down."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from tests.security.sasl_conversation import Conversation, authenticator
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.sasl.failed_attempts import BURST, MAX_ADDRESSES, PER_SECOND, FailedAttempts


def test_an_address_that_fails_too_often_is_refused_for_a_while_and_others_are_not():
    clock = ManualClock()
    attempts = FailedAttempts(clock)
    for _ in range(BURST):
        assert not attempts.is_exhausted("a")
        attempts.note("a")
    assert attempts.is_exhausted("a")
    assert not attempts.is_exhausted("b")
    clock.advance(1 / PER_SECOND)
    assert not attempts.is_exhausted("a")


@pytest.mark.parametrize("are_refusals_noted", [False, True])
def test_who_goes_on_has_ten_guesses_a_second_behind_the_burst(are_refusals_noted: bool) -> None:
    clock, seen, seconds = ManualClock(), 0, 20
    attempts = FailedAttempts(clock)
    for _ in range(1000 * seconds):
        is_refused = attempts.is_exhausted("a")
        seen += not is_refused
        if are_refusals_noted or not is_refused:
            attempts.note("a")
        clock.advance(0.001)
    assert abs(seen - (BURST + seconds * PER_SECOND)) <= 3


def test_another_address_of_the_same_network_is_no_way_around():
    attempts = FailedAttempts(ManualClock())
    for number in range(BURST):
        attempts.note(f"2001:db8::{number:x}")
    assert attempts.is_exhausted("2001:db8::ffff")
    assert not attempts.is_exhausted("2001:db8:0:1::1")


def test_attempts_that_were_refused_unseen_do_not_prolong_the_time():
    clock = ManualClock()
    attempts = FailedAttempts(clock)
    for _ in range(10 * BURST):
        attempts.note("a")
    assert attempts.is_exhausted("a")
    clock.advance(1 / PER_SECOND)
    assert not attempts.is_exhausted("a")


def test_the_right_password_is_refused_too_meanwhile():
    clock = ManualClock()
    server = authenticator(clock)
    for _ in range(BURST):
        server.attempts.note(server.host)
    step, answer = Conversation(server).log_in()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (step.user, answer.error_message) == (None, "Authentication failed: too many failed attempts")


def test_the_addresses_remembered_are_bounded():
    attempts = FailedAttempts(ManualClock())
    for number in range(MAX_ADDRESSES + 1):
        attempts.note(str(number))
    assert len(attempts._spent) == MAX_ADDRESSES
