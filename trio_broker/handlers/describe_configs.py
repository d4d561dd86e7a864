"""DescribeConfigs: the settings of topics, of this broker and of its loggers, and where each value comes from.

Everything but types and documentation is in version 1 already (KIP-226), at which librdkafka stops: the source,
and on request the chain of places behind it. A secret is null. A key that is asked for and does not exist is left out.

A resource is described once in a response: all settings of a broker with their documentation take ten thousand bytes,
and six bytes ask for them, so that one request could otherwise make a response of gigabytes.

Source: Kafka's ConfigHelper.describeConfigs.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from trio_broker.cluster.configuration_control import parse_resource, require_configurable
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.config.entries import ConfigEntry
from trio_broker.config.loggers import logger_entries
from trio_broker.config.resource_config import client_metrics_entries, group_entries, topic_entries
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    config_rights,
)


def error_response(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[refused_resource(resource, error) for resource in request.resources])


@handles(
    DescribeConfigsRequest,
    error_response=error_response,
    requires=[
        config_rights(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS, results="results")
    ],
)
def describe_configs(request: DescribeConfigsRequest, context: Context) -> Steps[DescribeConfigsResponse]:
    """Describe each resource, or answer with its error."""
    results: list[DescribeConfigsResult] = []
    described: set[ConfigResource] = set()
    budget = YieldBudget()
    for resource in request.resources:
        results.append(describe_resource(resource, request, context, described))
        # Thousands of topics take seconds, which others shall not wait for.
        if budget.is_spent:
            yield budget.renewed
    return DescribeConfigsResponse(results=results)


def describe_resource(
    wanted: DescribeConfigsResource, request: DescribeConfigsRequest, context: Context, described: set[ConfigResource]
) -> DescribeConfigsResult:
    """Describe one resource and add it to those ``described``, in which it may not be yet."""
    try:
        resource = parse_resource(wanted.resource_type, wanted.resource_name)
        if resource in described:
            raise KafkaError("a resource is named twice in one request", code=ErrorCode.INVALID_REQUEST)
        # As in Kafka, an empty list names every key, just as null does.
        keys = frozenset(wanted.configuration_keys or ()) or None
        entries = entries_of(resource, keys, context)
    except KafkaError as error:
        return refused_resource(wanted, error)
    described.add(resource)
    return DescribeConfigsResult(
        error_message=None,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=[describe_entry(entry, request) for entry in entries if keys is None or entry.name in keys],
    )


def entries_of(resource: ConfigResource, keys: frozenset[str] | None, context: Context) -> Sequence[ConfigEntry]:
    """The ``keys`` of a resource, or all of them, with their values; others may be among them.

    Raises:
        KafkaError: the resource does not exist, or its type has no settings here.
    """
    config, image = context.services.config, context.services.metadata_cache.image
    require_configurable(image, config, resource)
    if resource.type is ConfigResourceType.TOPIC:
        return topic_entries(image.topics[resource.name].configs, config, keys)
    if resource.type is ConfigResourceType.GROUP:
        return group_entries(image.configs(resource), config, keys)
    if resource.type is ConfigResourceType.CLIENT_METRICS:
        return client_metrics_entries(image.configs(resource), config, keys)
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        return logger_entries()
    # An empty name stands for the default of all brokers of the cluster (KIP-226).
    return config.entries(keys) if resource.name else config.default_entries()


def describe_entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=item.name, value=item.value, source=item.source) for item in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def refused_resource(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
