"""UnregisterBroker: take a broker that is gone for good out of the cluster.

Here a cluster is one broker, which is there: any other id is not registered, and its own is refused. Kafka would
unregister itself, and leave all its partitions without a leader until it is started again.

Source: Kafka's ControllerApis.handleUnregisterBroker and QuorumController.unregisterBroker.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles


def error_response(request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))


@handles(UnregisterBrokerRequest, error_response=error_response, by_controller=True)
async def unregister_broker(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    """Answer which broker is not registered, or that this one cannot be taken out of its own cluster."""
    if request.broker_id not in context.services.metadata_cache.image.brokers:
        raise KafkaError(
            f"Broker ID {request.broker_id} is not currently registered", code=ErrorCode.BROKER_ID_NOT_REGISTERED
        )
    raise KafkaError(
        f"broker {request.broker_id} is the whole cluster, and serves all partitions: stop it instead",
        code=ErrorCode.INVALID_REQUEST,
    )
