"""Transactions of a broker in the test's own event loop: one that its coordinator knows, and one that hangs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.admin.live_admin import LiveAdmin
from tests.handlers.transaction_client import TransactionClient
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch


async def open_transaction(live: LiveAdmin, transactional_id: str = "id") -> dict[str, int]:
    """A transaction with one record in ``t-0``, whose topic is made; its producer as an abort over HTTP names it."""
    await live.kafka.create_topic("t", 2)
    await live.broker.services.transactions.runtime._create_topic()
    wire: Any = SimpleNamespace(ask=live.kafka.ask, clock=live.broker.clock, services=live.broker.services)
    producers = TransactionClient(wire)
    producer = await producers.begin(transactional_id)
    assert await producers.add(producer, 0, transactional_id=transactional_id) == {0: 0}
    assert await producers.produce(producer, transactional_id=transactional_id) == 0
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


async def begin_hanging(live: LiveAdmin, topic: str) -> None:
    """A transactional batch in the first partition of ``topic``, of a producer that no coordinator knows."""
    records = batch(
        b"lost",
        timestamp=live.broker.clock.now_ms(),
        producer_id=9_000,
        producer_epoch=2,
        base_sequence=0,
        transactional=True,
    )
    replicas = live.broker.services.replicas
    await append_to_leader(replicas, replicas.topic(topic).partition(0), records)
