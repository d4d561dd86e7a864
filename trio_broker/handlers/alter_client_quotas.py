"""AlterClientQuotas: set and remove quotas of users, client ids and addresses, all or none of each entity.

Source: Kafka's ControllerApis.handleAlterClientQuotas and ClientQuotaControlManager.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
)
from trio_broker.cluster.client_quota_control import QuotaAlteration
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS, for_cluster


def error_response(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[result(entry, error) for entry in request.entries])


@handles(
    AlterClientQuotasRequest,
    error_response=error_response,
    by_controller=True,
    requires=[for_cluster(ALTER_CLUSTER_CONFIGS)],
)
async def alter_client_quotas(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    """Alter the quotas of each entity, or answer with its error."""
    wanted = [alteration(entry) async for entry in InTurns(request.entries)]
    context.release_for_disk()
    outcomes = await context.services.controller.alter_client_quotas(wanted, validate_only=request.validate_only)
    pairs = zip(request.entries, outcomes, strict=True)
    return AlterClientQuotasResponse(entries=[result(*each) async for each in InTurns(pairs)])


def alteration(entry: AlterClientQuotasRequest.EntryData) -> QuotaAlteration:
    return QuotaAlteration(
        tuple((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def result(entry: AlterClientQuotasRequest.EntryData, error: KafkaError | None) -> EntryData:
    if error is None:
        return EntryData(error_message=None, entity=entry.entity)
    return EntryData(error_code=ErrorCode(error.code), error_message=str(error), entity=entry.entity)
