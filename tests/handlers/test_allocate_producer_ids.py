"""AllocateProducerIds: blocks for other brokers, none of them twice."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.handlers.second_broker import NODE_ID


async def test_each_block_is_another_one(second_broker):
    await second_broker.register()
    request = AllocateProducerIdsRequest(broker_id=NODE_ID, broker_epoch=second_broker.broker_epoch)
    one, other = [await second_broker.wire.ask(request, 0) for _ in range(2)]
    own = await second_broker.wire.services.producer_ids.next()
    assert one.error_code == other.error_code == 0
    assert one.producer_id_len > 0
    assert other.producer_id_start == one.producer_id_start + one.producer_id_len
    assert own == other.producer_id_start + other.producer_id_len


async def test_an_earlier_life_of_the_broker_gets_none(second_broker):
    await second_broker.register()
    request = AllocateProducerIdsRequest(broker_id=NODE_ID, broker_epoch=second_broker.broker_epoch - 1)
    assert (await second_broker.wire.ask(request, 0)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_broker_gets_ids_before_that_of_the_controller_has_read_of_it(second_broker):
    cache = second_broker.wire.services.metadata_cache
    image = cache.image
    await second_broker.register()
    cache.set_image(image)
    request = AllocateProducerIdsRequest(broker_id=NODE_ID, broker_epoch=second_broker.broker_epoch)
    assert (await second_broker.wire.ask(request, 0)).error_code == ErrorCode.NONE
