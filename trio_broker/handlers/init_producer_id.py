"""InitProducerId: an id for a producer, by which its retries are distinguished from new records.

Without a transactional id every caller gets a new id at epoch 0, whichever id it may have had. With one, the
transaction coordinator gives the same id with a raised epoch, which fences the producer that had it before.

Source: Kafka's KafkaApis.handleInitProducerIdRequest; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, InHandler
from trio_broker.handlers.support.transactions import in_version

FIRST_EPOCH: Final = 0

FENCED_SINCE_VERSION: Final = 4


def error_response(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


@handles(
    InitProducerIdRequest,
    error_response=error_response,
    requires=[
        InHandler([WRITE_TRANSACTIONAL_ID], "the request with an id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        InHandler(
            [IDEMPOTENT_WRITE, WRITE_TOPIC],
            "the request without an id, unless there is any topic to write to: CLUSTER_AUTHORIZATION_FAILED",
        ),
    ],
)
async def init_producer_id(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    """Hand out a producer id, or give a transactional id to this producer."""
    require_producer(request.transactional_id, context)
    services, expected = context.services, expected_producer(request)
    if request.transactional_id is None:
        context.release_for_disk()
        return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=FIRST_EPOCH)
    try:
        return await services.transactions.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            expected,
            context.request_context,
            context.release_handler,
        )
    except KafkaError as error:
        raise in_version(error, context.version, fenced_since=FENCED_SINCE_VERSION) from error


def require_producer(transactional_id: str | None, context: Context) -> None:
    """Refuse who may not write: with the transactional id, or, without one, anything at all (KIP-679).

    Raises:
        KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED.
    """
    if transactional_id is not None:
        context.require(WRITE_TRANSACTIONAL_ID, transactional_id)
    elif not context.may_any(WRITE_TOPIC):
        context.require(IDEMPOTENT_WRITE)


def expected_producer(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    """The producer that goes on with its transactional id (KIP-360); None for one that begins.

    Raises:
        KafkaError: ``INVALID_REQUEST``: an id without an epoch, or the other way round.
    """
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(f"producer id {producer_id} with epoch {epoch}", code=ErrorCode.INVALID_REQUEST)
    return None if producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(producer_id, epoch)
