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
from trio_broker.handlers.support.config_changes import change_resources, of_broker_asked, resource_response
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    config_rights,
)


def error_response(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[resource_response(AlterConfigsResourceResponse, each, error) for each in request.resources]
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


@handles(
    AlterConfigsRequest,
    error_response=error_response,
    requires=[config_rights(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS, results="responses")],
    by_controller=True,
    local_part=of_broker_asked(replacement),
)
async def alter_configs(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    """Replace the settings of each resource, or answer with its error."""
    return AlterConfigsResponse(
        responses=await change_resources(
            request.resources, replacement, AlterConfigsResourceResponse, context, validate_only=request.validate_only
        )
    )
