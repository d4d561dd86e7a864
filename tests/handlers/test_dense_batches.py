"""No step of the event loop grows with what a batch is full of: records, headers, blocks of its codec.

``fuzz.dense_batches`` has one for each construct; a step is counted in calls, as in ``test_largest_requests.py``.
"""

from __future__ import annotations

import pytest
from trio.lowlevel import checkpoint

from fuzz.dense_batches import DenseBatch, dense_batches
from kafka_wire.codec import encode_bytes
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.handlers.calls_per_step import calls_per_step
from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.turns import Turns
from trio_broker.runtime.real_workers import RealWorkers
from trio_broker.storage import validation

VERSION = 9

BATCH_BYTES = 100_000

MAX_CALLS = 2900
"""In one step, as in ``test_largest_requests.py``; the batches have from 6,000 elements on."""


def produce_of(*batches: bytes) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="dense", partition_data=partitions)]
    )


@pytest.fixture
def workers():
    """What is done in threads is no step of the event loop."""
    return RealWorkers()


@pytest.mark.parametrize("dense", list(dense_batches(BATCH_BYTES)), ids=lambda dense: dense.construct)
async def test_no_step_grows_with_what_is_in_a_batch(wire, dense: DenseBatch):
    await wire.create_topic("dense", 1)
    body = encode_bytes(produce_of(dense.data), VERSION)
    with calls_per_step() as calls:
        # A step is counted if it begins and ends here.
        await checkpoint()
        await wire.send(ProduceRequest.API_KEY, VERSION, body)
        await checkpoint()
    assert calls.most < MAX_CALLS, calls.where


async def test_a_turn_is_given_between_any_two_batches(wire, monkeypatch):
    """A small batch is walked over at once, and may have thousands of headers."""
    batches = [
        batch.data
        for batch in dense_batches(validation.CHEAP_WALK_BYTES - 1000)
        if batch.construct == "headers"
        for _ in range(5)
    ]
    await wire.create_topic("dense", len(batches))
    turns = []

    async def counted(self: Turns) -> None:
        turns.append(self)

    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(Turns, "wait", counted)
    await wire.send(ProduceRequest.API_KEY, VERSION, encode_bytes(produce_of(*batches), VERSION))
    assert len(turns) >= len(batches) - 1
