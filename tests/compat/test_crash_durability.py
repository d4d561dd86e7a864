"""Kill −9 while a client produces, start again: every acknowledged record is there, once, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.consumed_messages import consumed, values_by_offset
from tests.waits import MOST_TIMES, flushed, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
TOPIC = "survivor"
MOST_BETWEEN, MOST_BETWEEN_MANY = 1500, 5000
"""Acknowledged records between two kills, of a few and of hundreds."""


class Sender:
    """Sends numbered records from a thread of its own, idempotently, and notes which were acknowledged, and where."""

    def __init__(self, servers: str, prefix: str) -> None:
        self.prefix = prefix
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0
        self.enough = threading.Event()
        self.progress = threading.Condition()
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": SECONDS * MOST_TIMES * 1000,
            }
        )
        self.thread = threading.Thread(target=self.run, name=f"sender {prefix}")

    def run(self) -> None:
        while not self.enough.is_set():
            if len(self.producer) < 2000:
                value = f"{self.prefix}-{self.sent}".encode()
                self.producer.produce(TOPIC, value, partition=0, on_delivery=self.delivered)
                self.sent += 1
            self.producer.poll(0.001)
        assert flushed(self.producer, SECONDS)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        with self.progress:
            self.acknowledged[offset] = value
            self.progress.notify_all()

    def wait_for(self, count: int) -> None:
        """Return when ``count`` more records were acknowledged."""
        with self.progress:
            goal = len(self.acknowledged) + count
            assert within(partial(self.progress.wait_for, lambda: len(self.acknowledged) >= goal), SECONDS)


def read_all(servers: str) -> dict[int, bytes]:
    return values_by_offset(consumed(servers, [(TOPIC, 0)]))


def kill_while_producing(broker: BrokerProcess, *, kills: int, most_between: int, seed: int = 0) -> None:
    """Kill as often, each time when up to ``most_between`` more records were acknowledged; see what is there."""
    random = Random(seed)
    sender = Sender(broker.bootstrap_servers, "r")
    sender.thread.start()
    try:
        for _ in range(kills):
            sender.wait_for(random.randint(1, most_between))
            broker.kill()
            broker.start()
        sender.wait_for(1)
    finally:
        sender.enough.set()
        sender.thread.join()

    found = read_all(broker.bootstrap_servers)
    assert {offset: found.get(offset) for offset in sender.acknowledged} == sender.acknowledged
    assert [found[offset] for offset in sorted(found)] == [f"r-{number}".encode() for number in range(sender.sent)]


@pytest.mark.parametrize("durability", [pytest.param("page-cache", marks=pytest.mark.soak), "fsync"])
def test_every_acknowledged_record_survives_kill_9_once_and_in_order(
    start_broker: Callable[..., BrokerProcess], durability: str
) -> None:
    broker = start_broker(log_durability=durability, log_segment_bytes="1048576")
    kill_while_producing(broker, kills=3, most_between=MOST_BETWEEN)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_five_hundred_kills(start_broker: Callable[..., BrokerProcess], durability: str, seed: int) -> None:
    broker = start_broker(log_durability=durability, log_segment_bytes="1048576")
    kill_while_producing(broker, kills=25, most_between=MOST_BETWEEN_MANY, seed=seed)


def test_a_clean_stop_keeps_everything_too(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    sender = Sender(broker.bootstrap_servers, "r")
    sender.thread.start()
    sender.wait_for(1000)
    sender.enough.set()
    sender.thread.join()

    assert broker.stop() == 0
    broker.start()
    assert read_all(broker.bootstrap_servers) == sender.acknowledged
