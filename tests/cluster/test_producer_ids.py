"""Producer ids are given once."""

from __future__ import annotations

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ProducerIdsRecord
from tests.fakes.controllers import make_controller
from trio_broker.cluster.producer_ids import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIds


async def test_ids_follow_each_other_and_a_block_costs_one_record(controller, metadata_log):
    before = len(metadata_log.batches)
    ids = ProducerIds(controller.allocate_producer_ids)
    given = [await ids.next() for _ in range(BLOCK_SIZE)]
    assert given == list(range(BLOCK_SIZE))
    assert len(metadata_log.batches) == before + 1
    assert await ids.next() == BLOCK_SIZE
    assert len(metadata_log.batches) == before + 2


async def test_no_id_comes_twice_over_a_restart(controller, metadata_log, config):
    first = await ProducerIds(controller.allocate_producer_ids).next()
    restarted = make_controller(metadata_log, config, metadata_log.records)
    assert await ProducerIds(restarted.allocate_producer_ids).next() == first + BLOCK_SIZE


@pytest.mark.parametrize("distance", [0, BLOCK_SIZE - 1])
async def test_no_id_is_given_beyond_the_last_one(metadata_log, config, distance):
    records = [ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=LAST_PRODUCER_ID - distance)]
    controller = make_controller(metadata_log, config, records)
    before = len(metadata_log.batches)
    with pytest.raises(KafkaError, match="no producer id is left") as raised:
        await ProducerIds(controller.allocate_producer_ids).next()
    assert (raised.value.code, len(metadata_log.batches)) == (ErrorCode.UNKNOWN_SERVER_ERROR, before)


async def test_the_last_block_is_given_whole(metadata_log, config):
    records = [ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=LAST_PRODUCER_ID - BLOCK_SIZE)]
    ids = ProducerIds(make_controller(metadata_log, config, records).allocate_producer_ids)
    given = [await ids.next() for _ in range(BLOCK_SIZE)]
    assert given[-1] == LAST_PRODUCER_ID - 1
    with pytest.raises(KafkaError, match="no producer id is left"):
        await ids.next()


async def test_producers_that_come_at_once_get_different_ids(controller):
    ids = ProducerIds(controller.allocate_producer_ids)
    given = []

    async def take():
        given.append(await ids.next())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(take)
    assert len(set(given)) == 20


async def test_a_block_that_cannot_be_recorded_gives_no_id(controller, metadata_log):
    ids = ProducerIds(controller.allocate_producer_ids)
    metadata_log.failure = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await ids.next()
    metadata_log.failure = None
    assert await ids.next() == 0
