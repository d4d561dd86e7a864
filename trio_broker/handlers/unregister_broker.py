"""UnregisterBroker: take a broker that is gone for good out of the cluster.

One that is running is refused, the only one of a cluster above all. Kafka would unregister it, and leave its partitions
without a leader until it is started again.

Source: Kafka's ControllerApis.handleUnregisterBroker and QuorumController.unregisterBroker.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster


def error_response(request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))


@handles(
    UnregisterBrokerRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER)], by_controller=True
)
async def unregister_broker(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    """Unregister the broker; one that is running is refused."""
    context.release_for_disk()
    await context.services.controller.unregister_broker(request.broker_id)
    return UnregisterBrokerResponse(error_message=None)
