"""Short, repeatable slices of ``fuzz.live_socket`` and ``fuzz.admin_http``, and proof that they find what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz import admin_http
from fuzz.live_socket import CHECK_EVERY, LOGIN, TOPICS, RequestMaker, Statistics, Watch, fuzz, port_of_logins
from fuzz.raw_client import HealthyClient, RawConnection
from trio_broker.testing.process import BrokerProcess

ROUNDS = 20
ADMIN_ROUNDS = 2
SEED = 20261121


@pytest.fixture(scope="module")
def has_admin() -> bool:
    return True


def test_broken_requests_harm_nobody_but_their_senders(broker: BrokerProcess) -> None:
    statistics = Statistics()
    findings = list(fuzz(broker.port, SEED, range(ROUNDS), statistics, broker))
    assert not findings, "\n".join(map(str, findings))
    assert statistics.sent == ROUNDS * CHECK_EVERY
    assert statistics.closed > 100, "some requests are broken beyond an answer"
    assert statistics.answered > 100, "and some are answered"


@pytest.mark.soak
def test_broken_requests_of_who_has_logged_in_harm_nobody(start_broker: Callable[..., BrokerProcess]) -> None:
    """Soak: a broker of its own."""
    broker = start_broker(log_durability="page-cache", **LOGIN)
    findings = list(fuzz(broker.port, SEED, range(ROUNDS), Statistics(), broker, port_of_logins(broker)))
    assert not findings, "\n".join(map(str, findings))


def test_broken_requests_to_the_admin_page_harm_no_kafka_client(broker: BrokerProcess) -> None:
    statistics = Statistics()
    findings = list(admin_http.fuzz(broker, SEED, range(ADMIN_ROUNDS), statistics))
    assert not findings, "\n".join(map(str, findings))


def make_maker() -> RequestMaker:
    return RequestMaker(random.Random(SEED), {name: bytes(16) for name in TOPICS})


def test_the_same_seed_sends_the_same_bytes() -> None:
    one, other = make_maker().frames(), make_maker().frames()
    assert [next(one) for _ in range(500)] == [next(other) for _ in range(500)]


@pytest.fixture
def watch(broker: BrokerProcess, topic: str) -> Iterator[Watch]:
    healthy = HealthyClient(broker.port, topic)
    yield Watch(healthy, broker, Statistics(), lines_seen=len(broker.output))
    healthy.close()


def test_nothing_is_found_where_nothing_is_wrong(watch: Watch) -> None:
    assert list(watch.problems()) == []


@pytest.mark.parametrize("line", ["Traceback (most recent call last):", "2026-01-01 00:00:00 ERROR   a.b: it failed"])
def test_a_bug_in_the_log_is_found(watch: Watch, broker: BrokerProcess, line: str) -> None:
    watch.broker = BrokerProcess(Path(), output=[*broker.output, line])
    watch.broker._process = broker.process
    (problem,) = watch.problems()
    assert line in problem


def test_a_wrong_record_is_found(watch: Watch) -> None:
    watch.healthy.rounds = 5
    (problem,) = watch.problems()
    assert "the healthy client" in problem


def test_a_broker_that_ended_is_found(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(log_durability="page-cache")
    healthy = HealthyClient(broker.port, "healthy")
    watch = Watch(healthy, broker, Statistics())
    broker.kill()
    problems = list(watch.problems())
    healthy.close()
    assert len(problems) == 2, problems
    assert "ended with -9" in problems[1]


def test_a_closed_connection_is_no_answer(broker: BrokerProcess) -> None:
    with RawConnection.open(broker.port) as connection:
        assert connection.exchange(b"short") is None
