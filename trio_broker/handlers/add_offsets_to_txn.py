"""AddOffsetsToTxn: name a group before a transaction commits offsets for it.

Its partition of ``__consumer_offsets`` becomes part of the transaction.

Source: Kafka's KafkaApis.handleAddOffsetsToTxnRequest; KIP-98.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.errors import KafkaError
from kafka_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import READ_GROUP, WRITE_TRANSACTIONAL_ID, for_group, for_transactional_id
from trio_broker.handlers.support.transactions import in_version

FENCED_SINCE_VERSION: Final = 2


def error_response(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)


@handles(
    AddOffsetsToTxnRequest,
    error_response=error_response,
    requires=[for_transactional_id(WRITE_TRANSACTIONAL_ID), for_group(READ_GROUP)],
)
def add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: Context) -> Steps[AddOffsetsToTxnResponse]:
    """Add the partition of the group."""
    services = context.services
    # A group that nobody has looked for may be the first of all.
    yield from services.groups.find_steps(request.group_id)
    partition = services.groups.runtime.partition_of(request.group_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        yield from services.transactions.add_partitions_steps(
            request.transactional_id, producer, (partition,), 0, context.request_context, context.release_handler
        )
    except KafkaError as error:
        raise in_version(error, context.version, fenced_since=FENCED_SINCE_VERSION) from error
    return AddOffsetsToTxnResponse()
