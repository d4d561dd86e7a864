"""AllocateProducerIds: give another broker ids to hand out.

Source: Kafka's ControllerApis.handleAllocateProducerIdsRequest and ProducerIdControlManager.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, for_cluster


def error_response(request: AllocateProducerIdsRequest, error: KafkaError) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=error.code)


@handles(
    AllocateProducerIdsRequest,
    error_response=error_response,
    requires=[for_cluster(CLUSTER_ACTION)],
    by_controller=True,
    between_brokers=True,
)
async def allocate_producer_ids(request: AllocateProducerIdsRequest, context: Context) -> AllocateProducerIdsResponse:
    """Allocate a block of ids to a broker."""
    context.release_for_disk()
    block = await context.services.controller.allocate_producer_ids_to(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.end - block.first)
