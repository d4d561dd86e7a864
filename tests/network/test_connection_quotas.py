"""How many connections there may be."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_broker.common.connection_rate import ConnectionRate
from trio_broker.common.log_throttle import LOG_INTERVAL_SECONDS, LogThrottle
from trio_broker.config.socket_server_config import ListenerLimits, SocketServerConfig
from trio_broker.network.connection_quotas import (
    ConnectionQuotas,
    plain_address,
    resolve_overrides,
)
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real_workers import RealWorkers

LISTENER = "PLAINTEXT"


def quotas_with(**settings: object) -> ConnectionQuotas:
    return ConnectionQuotas(SocketServerConfig(**settings), ManualClock(), RealWorkers())  # type: ignore[arg-type]


async def test_an_address_with_too_many_connections_is_refused_and_others_are_not():
    quotas = quotas_with(max_connections_per_ip=2)
    assert [await quotas.admit("10.0.0.1", LISTENER) for _ in range(3)] == [True, True, False]
    assert await quotas.admit("10.0.0.2", LISTENER)
    assert dict(quotas.refused) == {"max.connections.per.ip": 1}
    quotas.release("10.0.0.1", LISTENER)
    assert await quotas.admit("10.0.0.1", LISTENER)


async def test_an_override_holds_for_its_address_and_for_a_name_too():
    quotas = quotas_with(max_connections_per_ip=0, max_connections_per_ip_overrides={"10.0.0.7": 1, "localhost": 2})
    await quotas.refresh_overrides()
    assert [await quotas.admit("10.0.0.7", LISTENER) for _ in range(2)] == [True, False]
    assert [await quotas.admit("127.0.0.1", LISTENER) for _ in range(3)] == [True, True, False]
    assert not await quotas.admit("10.0.0.8", LISTENER)


async def test_a_changed_override_is_taken_up():
    quotas = quotas_with(max_connections_per_ip=0)
    assert not await quotas.admit("10.0.0.7", LISTENER)
    quotas.config.max_connections_per_ip_overrides = {"10.0.0.7": 1}
    await quotas.refresh_overrides()
    assert await quotas.admit("10.0.0.7", LISTENER)


def test_a_name_that_means_nothing_is_left_out():
    assert resolve_overrides({"::1": 3, "nowhere.invalid": 4}) == {"::1": 3}


async def test_accepting_waits_while_there_are_max_connections(nursery):
    quotas = quotas_with(max_connections=1)
    await quotas.admit("10.0.0.1", LISTENER)
    nursery.start_soon(quotas.admit, "10.0.0.2", LISTENER)
    await wait_all_tasks_blocked()
    assert quotas.total == 1
    quotas.release("10.0.0.1", LISTENER)
    await wait_all_tasks_blocked()
    assert dict(quotas.by_address) == {"10.0.0.2": 1}


async def test_a_raised_limit_ends_the_wait_at_the_next_recheck(nursery):
    quotas = quotas_with(max_connections=1)
    await quotas.admit("10.0.0.1", LISTENER)
    nursery.start_soon(quotas.admit, "10.0.0.2", LISTENER)
    await wait_all_tasks_blocked()
    quotas.config.max_connections = 2
    quotas.recheck()
    await wait_all_tasks_blocked()
    assert quotas.total == 2


async def test_a_raised_limit_ends_the_waits_of_all_listeners(nursery):
    quotas = quotas_with(max_connections=1)
    await quotas.admit("10.0.0.1", LISTENER)
    for address in ("10.0.0.2", "10.0.0.3"):
        nursery.start_soon(quotas.admit, address, LISTENER)
    await wait_all_tasks_blocked()
    quotas.config.max_connections = 3
    quotas.recheck()
    await wait_all_tasks_blocked()
    assert quotas.total == 3


async def test_who_finds_room_and_waits_for_the_rate_finds_out_that_another_listener_has_taken_it(
    nursery, autojump_clock
):
    quotas = quotas_with(max_connections=6, max_connection_creation_rate=5)
    for address in range(8):
        nursery.start_soon(quotas.admit, f"10.0.0.{address}", LISTENER)
    await trio.sleep(60)
    assert quotas.total == 6
    quotas.release("10.0.0.0", LISTENER)
    await trio.sleep(60)
    assert quotas.total == 6


async def test_a_listener_with_its_own_limit_waits_while_others_go_on(nursery):
    quotas = quotas_with(max_connections=4, listener_limits={"external": ListenerLimits(max_connections=1)})
    await quotas.admit("10.0.0.1", "EXTERNAL")
    nursery.start_soon(quotas.admit, "10.0.0.2", "EXTERNAL")
    await wait_all_tasks_blocked()
    for _ in range(2):
        await quotas.admit("10.0.0.3", LISTENER)
    assert (quotas.total, dict(quotas.by_listener)) == (3, {"EXTERNAL": 1, LISTENER: 2})
    quotas.release("10.0.0.3", LISTENER)
    await wait_all_tasks_blocked()
    assert quotas.by_listener["EXTERNAL"] == 1
    quotas.release("10.0.0.1", "EXTERNAL")
    await wait_all_tasks_blocked()
    assert dict(quotas.by_listener) == {"EXTERNAL": 1, LISTENER: 1}


async def test_a_raised_limit_of_a_listener_ends_its_wait_at_the_next_recheck(nursery):
    quotas = quotas_with(listener_limits={"external": ListenerLimits(max_connections=1)})
    await quotas.admit("10.0.0.1", "EXTERNAL")
    nursery.start_soon(quotas.admit, "10.0.0.2", "EXTERNAL")
    await wait_all_tasks_blocked()
    quotas.config.listener_limits = {}
    quotas.recheck()
    await wait_all_tasks_blocked()
    assert quotas.total == 2


async def test_the_limit_of_a_listener_lifts_none_of_the_broker_s(nursery):
    quotas = quotas_with(max_connections=1, listener_limits={"external": ListenerLimits(max_connections=9)})
    await quotas.admit("10.0.0.1", LISTENER)
    nursery.start_soon(quotas.admit, "10.0.0.2", "EXTERNAL")
    await wait_all_tasks_blocked()
    assert quotas.total == 1


async def test_the_rate_of_a_listener_slows_that_listener(autojump_clock):
    quotas = quotas_with(listener_limits={"external": ListenerLimits(max_connection_creation_rate=5)})
    began = trio.current_time()
    for _ in range(15):
        await quotas.admit("10.0.0.1", "EXTERNAL")
    assert trio.current_time() - began == pytest.approx(10 / 5)
    for _ in range(15):
        await quotas.admit("10.0.0.1", LISTENER)
    assert trio.current_time() - began == pytest.approx(10 / 5)


async def test_of_two_rates_the_slower_counts(autojump_clock):
    limits = {"external": ListenerLimits(max_connection_creation_rate=50)}
    quotas = quotas_with(max_connection_creation_rate=5, listener_limits=limits)
    began = trio.current_time()
    for _ in range(15):
        await quotas.admit("10.0.0.1", "EXTERNAL")
    assert trio.current_time() - began == pytest.approx(10 / 5)


async def test_a_wait_that_is_cancelled_counts_nothing():
    quotas = quotas_with(max_connections=1)
    await quotas.admit("10.0.0.1", LISTENER)
    with trio.move_on_after(0):
        await quotas.admit("10.0.0.2", LISTENER)
    assert (dict(quotas.by_address), dict(quotas.by_listener)) == ({"10.0.0.1": 1}, {LISTENER: 1})


async def test_new_connections_come_at_the_rate_after_a_burst(autojump_clock):
    quotas = quotas_with(max_connection_creation_rate=5)
    arrivals = []
    for _ in range(15):
        await quotas.admit("10.0.0.1", LISTENER)
        arrivals.append(trio.current_time())
    assert arrivals[4] - arrivals[0] < 0.01
    assert arrivals[14] - arrivals[4] == pytest.approx(10 / 5)


def test_a_rate_forgets_a_quiet_time_beyond_one_second():
    rate = ConnectionRate()
    assert rate.delay(0.0, 1) == 0.0
    assert rate.delay(0.0, 1) == 1.0
    assert rate.delay(1000.0, 1) == 0.0
    assert rate.delay(1000.0, 1) == 1.0


async def test_waiting_for_the_last_connection_ends_with_it(nursery):
    quotas = quotas_with()
    for _ in range(2):
        await quotas.admit("10.0.0.1", LISTENER)
    ended = trio.Event()

    async def wait() -> None:
        await quotas.wait_until_none()
        ended.set()

    nursery.start_soon(wait)
    quotas.release("10.0.0.1", LISTENER)
    await wait_all_tasks_blocked()
    assert not ended.is_set()
    quotas.release("10.0.0.1", LISTENER)
    await ended.wait()


def test_an_ipv4_address_seen_through_ipv6_is_itself():
    assert plain_address("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_address("::1") == "::1"


def test_a_flood_is_logged_once_per_interval_with_a_count(caplog):
    clock = ManualClock()
    throttle = LogThrottle(logging.getLogger("flood"), clock)
    for _ in range(100):
        throttle.warning("kind", "refused")
    throttle.warning("other", "also refused")
    clock.advance(LOG_INTERVAL_SECONDS)
    throttle.warning("kind", "refused again")
    assert [record.getMessage() for record in caplog.records] == [
        "refused",
        "also refused",
        "refused again (99 more like it since the last line)",
    ]
