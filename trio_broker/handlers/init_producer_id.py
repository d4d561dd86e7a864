"""InitProducerId: an id for an idempotent producer, by which its retries are distinguished from new records.

Without a transactional id every caller gets a new id at epoch 0, whatever other fields the request has. Transactions
are not served: a transactional id is refused with a fatal error, since a retriable one would be retried for ever.

Source: Kafka's TransactionCoordinator.handleInitProducerId; KIP-98.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.transactions import refuse_transactional_id

FIRST_EPOCH = 0
NO_EPOCH = -1


def error_response(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=NO_EPOCH)


@handles(InitProducerIdRequest, error_response=error_response)
async def init_producer_id(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    """Hand out the next producer id."""
    if request.transactional_id is not None:
        refuse_transactional_id(request.transactional_id, context)
    return InitProducerIdResponse(producer_id=await context.services.producer_ids.next(), producer_epoch=FIRST_EPOCH)
