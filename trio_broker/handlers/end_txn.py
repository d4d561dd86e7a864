"""EndTxn: commit or abort the transaction of a producer.

The response says that the decision is durable; the markers in the partitions follow at once. Version 5 is the second
transaction protocol: the response has the epoch for the next transaction.

Source: Kafka's KafkaApis.handleEndTxnRequest; KIP-98, KIP-890.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.errors import KafkaError
from kafka_wire.messages.end_txn import EPOCH_BUMP_SINCE_VERSION, EndTxnRequest, EndTxnResponse
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import WRITE_TRANSACTIONAL_ID, for_transactional_id
from trio_broker.handlers.support.transactions import in_version
from trio_broker.partition.transaction_end import EPOCH_BUMP_VERSION

FENCED_SINCE_VERSION: Final = 2


def error_response(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.code)


@handles(EndTxnRequest, error_response=error_response, requires=[for_transactional_id(WRITE_TRANSACTIONAL_ID)])
def end_txn(request: EndTxnRequest, context: Context) -> Steps[EndTxnResponse]:
    """Decide how the transaction ends."""
    try:
        return (
            yield from context.services.transactions.end_transaction_steps(
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                commits=request.committed,
                client_transaction_version=EPOCH_BUMP_VERSION if context.version >= EPOCH_BUMP_SINCE_VERSION else 0,
                context=context.request_context,
                release_handler=context.release_handler,
            )
        )
    except KafkaError as error:
        raise in_version(error, context.version, fenced_since=FENCED_SINCE_VERSION) from error
