"""ListPartitionReassignments: the partitions on their way to other brokers, of which one node never has any.

Every change that ``cluster/partition_reassignments.py`` allows is complete when it is answered. Partitions that do not
exist are left out of the answer, as are those that stand still.

Source: Kafka's ReplicationControlManager.listPartitionReassignments.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles


def error_response(request: ListPartitionReassignmentsRequest, error: KafkaError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error), topics=[])


@handles(ListPartitionReassignmentsRequest, error_response=error_response, by_controller=True)
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    """List the partitions on their way to other brokers: none, since there are no others."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
