"""The budget of bytes that large requests may hold."""

from __future__ import annotations

from trio.testing import wait_all_tasks_blocked

from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.request_memory_pool import RequestMemoryPool


async def test_without_a_limit_nobody_waits():
    budget = RequestMemoryPool(SocketServerConfig())
    for _ in range(3):
        await budget.acquire(10**9)
    assert budget.held == 3 * 10**9


async def test_the_limit_may_be_passed_by_one_frame_and_then_others_wait_in_order(nursery):
    budget = RequestMemoryPool(SocketServerConfig(queued_max_request_bytes=100))
    order = []

    async def take(number: int, count: int) -> None:
        await budget.acquire(count)
        order.append(number)

    for number, count in enumerate((500, 60, 60, 60)):
        nursery.start_soon(take, number, count)
        await wait_all_tasks_blocked()
    assert (order, budget.held) == ([0], 500)
    budget.release(500)
    await wait_all_tasks_blocked()
    assert (order, budget.held) == ([0, 1, 2], 120)
    budget.release(60)
    await wait_all_tasks_blocked()
    assert order == [0, 1, 2, 3]


async def test_a_raised_limit_lets_the_next_go_on(nursery):
    config = SocketServerConfig(queued_max_request_bytes=10)
    budget = RequestMemoryPool(config)
    await budget.acquire(10)
    nursery.start_soon(budget.acquire, 5)
    await wait_all_tasks_blocked()
    config.queued_max_request_bytes = -1
    budget.wake()
    await wait_all_tasks_blocked()
    assert budget.held == 15
