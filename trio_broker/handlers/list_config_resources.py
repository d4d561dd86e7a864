"""ListConfigResources: the topics, brokers, groups and more that DescribeConfigs can be asked about.

Version 0 has the older name ListClientMetricsResources and lists only those. Topics and this broker are always listed;
groups and subscriptions to client metrics only if something is set for them.

Source: Kafka's KafkaApis.handleListConfigResources; KIP-714, KIP-1142.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from trio_broker.cluster.metadata_image import ConfigResourceType
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER_CONFIGS, for_cluster
from trio_broker.handlers.support.services import BrokerServices

TYPES_SINCE_VERSION = 1


def error_response(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.code, config_resources=[])


@handles(ListConfigResourcesRequest, error_response=error_response, requires=[for_cluster(DESCRIBE_CLUSTER_CONFIGS)])
async def list_config_resources(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    """List the resources of the types asked for, each once."""
    resources = []
    budget = YieldBudget()
    for resource_type in asked_types(request, context.version):
        for name in resource_names(resource_type, context.services):
            resources.append(ConfigResource(resource_name=name, resource_type=resource_type))
            await budget.maybe_yield()
    return ListConfigResourcesResponse(config_resources=resources)


def asked_types(request: ListConfigResourcesRequest, version: int) -> list[ConfigResourceType]:
    """The types of resources to list.

    Raises:
        KafkaError: ``UNSUPPORTED_VERSION``: one of them is none of Kafka's.
    """
    if version < TYPES_SINCE_VERSION:
        return [ConfigResourceType.CLIENT_METRICS]
    if not request.resource_types:
        return list(ConfigResourceType)
    try:
        # A type that is named twice is listed once: it takes a byte to name and, with many topics, megabytes to list.
        return [ConfigResourceType(number) for number in dict.fromkeys(request.resource_types)]
    except ValueError as error:
        raise KafkaError(f"resource type: {error}", code=ErrorCode.UNSUPPORTED_VERSION) from None


def resource_names(resource_type: ConfigResourceType, services: BrokerServices) -> list[str]:
    image = services.metadata_cache.image
    match resource_type:
        case ConfigResourceType.TOPIC:
            return list(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(services.node.node_id)]
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            return [resource.name for resource in image.configs_by_resource if resource.type is resource_type]
