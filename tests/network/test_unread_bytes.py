"""What is made of the looks at one connection: when it is a backlog, and how long the next request will wait."""

from __future__ import annotations

import pytest

from trio_broker.network.unread_bytes import BACKLOG_SECONDS, UnreadBytes


def looked_at(*looks: tuple[float, int, bool | None], taken_per_second: int = 0) -> UnreadBytes:
    """What is known after ``looks``: each at a second, with so many unread bytes, which wait or do not."""
    unread = UnreadBytes()
    for now, count, waits in looks:
        taken = round(now * taken_per_second)
        unread.note(now, count, waits=waits, bytes_in=taken + count, taken_bytes=taken)
    return unread


def test_it_is_a_backlog_once_requests_have_waited_for_seconds_at_every_look():
    assert not looked_at((1, 9, True)).is_backlog
    assert not looked_at((1, 9, True), (BACKLOG_SECONDS, 9, True)).is_backlog
    assert looked_at((1, 9, True), (1 + BACKLOG_SECONDS, 9, True)).is_backlog


def test_a_look_at_which_none_waits_ends_it():
    assert not looked_at((1, 9, True), (7, 9, True), (8, 9, False)).is_backlog
    assert not looked_at((1, 9, True), (5, 9, False), (7, 9, True)).is_backlog


def test_a_look_that_does_not_know_neither_begins_nor_ends_it():
    assert looked_at((1, 9, True), (4, 9, None), (7, 9, None)).is_backlog
    assert not looked_at((1, 9, None), (7, 9, None)).is_backlog


def test_the_next_request_waits_for_what_is_unread_at_the_rate_since_the_backlog_began():
    looks = ((1, 0, False), (50, 600, True), (53, 600, True), (57, 600, True))
    assert looked_at(*looks, taken_per_second=20).wait_seconds == pytest.approx(30)
    assert looked_at(*looks).wait_seconds is None, "nothing is taken"
    assert looked_at(*looks[:3], taken_per_second=20).wait_seconds is None, "it is no backlog yet"


def test_two_looks_at_one_moment_make_no_rate():
    unread = looked_at((1, 9, True), (1, 9, True))
    assert unread.bytes_per_second is None
