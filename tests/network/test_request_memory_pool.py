"""The limit on the bytes that large requests may hold."""

from __future__ import annotations

import attrs

from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.request_memory_pool import MAX_BACKLOG_BYTES, TRIM_AFTER_BYTES, RequestMemoryPool


@attrs.define(eq=False)
class Waiter:
    """Who asks for memory, and what it was given later."""

    acquired: list[int] = attrs.field(factory=list)

    def memory_acquired(self, count: int) -> None:
        self.acquired.append(count)


def test_without_a_limit_nobody_waits():
    pool = RequestMemoryPool(SocketServerConfig())
    assert all(pool.acquire(Waiter(), 10**9) for _ in range(3))
    assert pool.held == 3 * 10**9


def test_the_limit_may_be_passed_by_one_frame_and_then_others_wait_in_order():
    pool = RequestMemoryPool(SocketServerConfig(queued_max_request_bytes=100))
    waiters = [Waiter() for _ in range(4)]
    counts = (500, 60, 60, 60)
    assert [pool.acquire(waiter, count) for waiter, count in zip(waiters, counts, strict=True)] == [
        True, False, False, False,
    ]  # fmt: skip
    pool.release(500)
    assert [waiter.acquired for waiter in waiters] == [[], [60], [60], []]
    assert pool.held == 120
    pool.release(60)
    assert waiters[3].acquired == [60]


def test_one_that_comes_while_others_wait_does_not_overtake_them():
    config = SocketServerConfig(queued_max_request_bytes=100)
    pool = RequestMemoryPool(config)
    first, second = Waiter(), Waiter()
    assert pool.acquire(Waiter(), 100)
    assert not pool.acquire(first, 10)
    config.queued_max_request_bytes = 1000
    assert not pool.acquire(second, 10)
    pool.wake()
    assert (first.acquired, second.acquired) == ([10], [10])


def test_one_that_went_away_is_given_nothing():
    pool = RequestMemoryPool(SocketServerConfig(queued_max_request_bytes=100))
    gone = Waiter()
    assert pool.acquire(Waiter(), 100)
    assert not pool.acquire(gone, 10)
    pool.withdraw(gone)
    pool.release(100)
    assert (gone.acquired, pool.held) == ([], 0)


def test_a_raised_limit_lets_the_next_go_on():
    config = SocketServerConfig(queued_max_request_bytes=10)
    pool = RequestMemoryPool(config)
    waiter = Waiter()
    assert pool.acquire(Waiter(), 10)
    assert not pool.acquire(waiter, 5)
    config.queued_max_request_bytes = -1
    pool.wake()
    assert waiter.acquired == [5]
    assert pool.held == 15


def test_no_large_frame_is_begun_while_too_many_bytes_wait_for_their_turn():
    pool, waiter = RequestMemoryPool(SocketServerConfig()), Waiter()
    pool.enter_backlog(MAX_BACKLOG_BYTES - 1)
    assert pool.acquire(Waiter(), 10**8)
    pool.enter_backlog(10**8)
    assert not pool.acquire(waiter, 10**8)
    pool.leave_backlog(MAX_BACKLOG_BYTES - 1)
    assert waiter.acquired == [10**8]


def test_memory_is_trimmed_once_after_each_backlog_worth_it():
    pool = RequestMemoryPool(SocketServerConfig())
    pool.enter_backlog(TRIM_AFTER_BYTES - 1)
    pool.leave_backlog(TRIM_AFTER_BYTES - 1)
    assert not pool.should_trim(), "too little has waited"
    pool.enter_backlog(1)
    assert not pool.should_trim(), "one still waits"
    pool.leave_backlog(1)
    assert pool.should_trim()
    assert not pool.should_trim()


def test_memory_is_trimmed_once_when_large_messages_have_come_to_an_end():
    """However little had to wait: nothing comes after them that would give back what they have left free."""
    pool = RequestMemoryPool(SocketServerConfig())
    assert not pool.should_trim()
    for _ in range(2):
        pool.acquire(Waiter(), 100_000)
        pool.release(100_000)
        assert not pool.should_trim(), "there may be more of them"
        assert pool.should_trim()
        assert not pool.should_trim()
    pool.enter_backlog(1)
    assert [pool.should_trim() for _ in range(3)] == [False] * 3
    pool.leave_backlog(1)
    assert pool.should_trim()


def test_a_backlog_that_was_trimmed_after_is_not_counted_again():
    pool = RequestMemoryPool(SocketServerConfig())
    pool.enter_backlog(TRIM_AFTER_BYTES)
    pool.leave_backlog(TRIM_AFTER_BYTES)
    assert [pool.should_trim() for _ in range(3)] == [True, False, False]
