from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.spark.producer.producer_pool import IDLE_SECONDS, MOST_IDLE, ProducerPool

SETTINGS = ProducerSettings(parse_addresses("127.0.0.1:9092"))
OTHERS = [attrs.evolve(SETTINGS, client_id=f"client-{number}") for number in range(MOST_IDLE + 2)]


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def pool(now: list[float]) -> Iterator[ProducerPool]:
    pool = ProducerPool(lambda: now[0])
    yield pool
    pool.close()


def test_the_next_task_with_equal_settings_gets_the_same_producer(pool: ProducerPool):
    producer = pool.acquire(SETTINGS)
    pool.release(producer)

    assert pool.acquire(attrs.evolve(SETTINGS)) is producer
    assert pool.acquire(SETTINGS) is not producer


def test_other_settings_make_another_producer(pool: ProducerPool):
    producer = pool.acquire(SETTINGS)
    pool.release(producer)

    assert pool.acquire(OTHERS[0]) is not producer


def test_a_producer_that_an_error_ended_is_not_kept(pool: ProducerPool):
    producer = pool.acquire(SETTINGS)
    producer.is_usable = False
    pool.release(producer)

    assert pool.acquire(SETTINGS) is not producer


def test_a_producer_that_was_idle_for_long_is_closed(pool: ProducerPool, now: list[float]):
    producer = pool.acquire(SETTINGS)
    pool.release(producer)
    now[0] = IDLE_SECONDS

    assert pool.acquire(SETTINGS) is not producer
    assert not producer.is_usable


def test_only_a_few_are_kept_and_those_of_last(pool: ProducerPool):
    producers = [pool.acquire(settings) for settings in OTHERS]
    for producer in producers:
        pool.release(producer)

    assert [producer.is_usable for producer in producers] == [False, False, *[True] * MOST_IDLE]
