"""AlterConfigs: replace all settings of a resource by those in the request.

A key that the request does not name returns to its default. aiokafka and kafkajs have no other way.

Source: Kafka's ConfigAdminManager and ConfigurationControlManager.legacyAlterConfigs.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from trio_broker.cluster.configuration_control import ResourceReplacement
from trio_broker.cluster.metadata_image import ConfigResource
from trio_broker.handlers.support.config_changes import change_resources
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.yield_budget import InTurns


def error_response(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[outcome_of(resource, error) for resource in request.resources])


@handles(AlterConfigsRequest, error_response=error_response)
async def alter_configs(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    """Replace the settings of each resource, or answer with its error."""
    outcomes = await change_resources(request.resources, replacement, context, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            outcome_of(resource, error)
            async for resource, error in InTurns(zip(request.resources, outcomes, strict=True))
        ]
    )


def replacement(wanted: AlterConfigsResource, resource: ConfigResource) -> ResourceReplacement:
    """All settings that the resource shall have.

    Raises:
        KafkaError: INVALID_REQUEST: a key is named twice.
    """
    configs = {config.name: config.value for config in wanted.configs}
    if len(configs) != len(wanted.configs):
        raise KafkaError("a key is named twice for one resource", code=ErrorCode.INVALID_REQUEST)
    return ResourceReplacement(resource, configs)


def outcome_of(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
