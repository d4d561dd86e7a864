"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings of topics, brokers and loggers.

The only way of Java's admin client since Kafka 4 (KIP-339). A broker is named by its id, or by an empty name for the
defaults of the cluster; changes of either are in effect when the answer is sent.

Source: Kafka's ConfigAdminManager and ConfigurationControlManager; KIP-339.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
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


def error_response(request: IncrementalAlterConfigsRequest, error: KafkaError) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[resource_response(AlterConfigsResourceResponse, each, error) for each in request.resources]
    )


def alterations(wanted: AlterConfigsResource, resource: ConfigResource) -> ResourceAlterations:
    return ResourceAlterations(resource, tuple(alteration(config) for config in wanted.configs))


def alteration(config: AlterableConfig) -> ConfigAlteration:
    """The change of one key.

    Raises:
        KafkaError: INVALID_REQUEST: the operation is unknown.
    """
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        text = f"unknown operation {config.config_operation} on {config.name}"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST) from None
    return ConfigAlteration(config.name, operation, config.value)


@handles(
    IncrementalAlterConfigsRequest,
    error_response=error_response,
    requires=[config_rights(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS, results="responses")],
    by_controller=True,
    local_part=of_broker_asked(alterations),
)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    """Change each resource, or answer with its error."""
    return IncrementalAlterConfigsResponse(
        responses=await change_resources(
            request.resources, alterations, AlterConfigsResourceResponse, context, validate_only=request.validate_only
        )
    )
