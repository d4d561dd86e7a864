"""The settings of topics and brokers: the source of each value, and changes of single keys.

Source: Kafka's DescribeConfigs and IncrementalAlterConfigs APIs; KIP-339.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs

from kafka_wire.config_resources import ConfigOperation, ConfigResourceType
from kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.errors import check, only
from trio_broker.client.kafka_client import KafkaClient

SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "broker, dynamic",
    3: "cluster, dynamic",
    4: "broker, static",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
"""The sources of a value in words, numbered as in Kafka's DescribeConfigsResponse.ConfigSource."""

CHANGED_SOURCES: Final = {
    ConfigResourceType.TOPIC: frozenset({1}),
    ConfigResourceType.BROKER: frozenset({2, 3}),
    ConfigResourceType.BROKER_LOGGER: frozenset({6}),
}
"""The sources of values that were set through the protocol, by AlterConfigs or IncrementalAlterConfigs. A level may
also have been set by the broker itself: there is one source for all of them."""

CLUSTER_DEFAULT: Final = ""
"""The resource name that stands for all brokers: their dynamic default values (KIP-226)."""


@attrs.frozen(order=True)
class Resource:
    """A topic by its name, a broker or its loggers by the id in decimal, or all brokers by ``CLUSTER_DEFAULT``."""

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ConfigResourceType.BROKER and self.name == CLUSTER_DEFAULT:
            return "all brokers"
        if self.type is ConfigResourceType.BROKER_LOGGER:
            return f"loggers of broker {self.name!r}"
        return f"{self.type.name.lower()} {self.name!r}"


@attrs.frozen
class DescribedConfig:
    """One setting; ``value`` is None for a secret, which brokers do not send, and for a value that is null."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool

    def is_changed(self, resource: Resource) -> bool:
        """Whether the value was set for this very resource rather than inherited."""
        # One broker inherits the cluster's dynamic default, source 3, which only ``all brokers`` has as its own.
        if resource.type is ConfigResourceType.BROKER and resource.name != CLUSTER_DEFAULT:
            return self.source == 2
        return self.source in CHANGED_SOURCES[resource.type]


@attrs.frozen
class ConfigChange:
    """One change of one setting; ``value`` is None exactly for DELETE."""

    name: str
    operation: ConfigOperation
    value: str | None


def describe_configs(
    client: KafkaClient, resources: Collection[Resource], keys: Sequence[str] | None = None
) -> dict[Resource, list[DescribedConfig]]:
    """Return the settings of each resource, sorted by key: every one, or those of ``keys``. Each broker is asked about
    its own settings.

    Raises:
        Refused: a resource does not exist or may not be seen.
    """
    described: dict[Resource, list[DescribedConfig]] = {}
    shared = [each for each in resources if not _must_answer_itself(each)]
    if shared:
        described |= client.attempt(lambda: _describe(client, client.any_broker(), shared, keys))
    for each in resources:
        if _must_answer_itself(each):
            described |= client.attempt(functools.partial(describe_broker, client, each, keys))
    return {each: described[each] for each in resources}


def alter_configs(
    client: KafkaClient, resource: Resource, changes: Sequence[ConfigChange], *, validate_only: bool
) -> None:
    """Make all of the changes to one resource or none of them; with ``validate_only``, only check them.

    Raises:
        Refused: a key or a value is not allowed, or the resource does not exist.
    """
    configs = [
        AlterableConfig(name=change.name, config_operation=change.operation, value=change.value) for change in changes
    ]
    wanted = AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)
    # APPEND and SUBTRACT start from the present list, so doing them twice may differ from doing them once.
    repeatable = all(change.operation in (ConfigOperation.SET, ConfigOperation.DELETE) for change in changes)

    def ask() -> None:
        broker = client.node(int(resource.name)) if _must_answer_itself(resource) else client.controller()
        request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
        result = only(client.ask(broker, request).responses, str(resource))
        check(str(resource), result.error_code, result.error_message)

    client.attempt(ask, repeatable=repeatable or validate_only)


def _must_answer_itself(resource: Resource) -> bool:
    """Whether only the named broker can answer; another knows neither its static nor its dynamic values."""
    return resource.type is not ConfigResourceType.TOPIC and resource.name.isdecimal()


def describe_broker(
    client: KafkaClient, resource: Resource, keys: Sequence[str] | None
) -> dict[Resource, list[DescribedConfig]]:
    """As ``describe_configs`` for one broker, which is asked once.

    Raises:
        ClientError: it cannot be asked, or refuses.
    """
    return _describe(client, client.node(int(resource.name)), [resource], keys)


def _describe(
    client: KafkaClient, broker: BrokerConnection, resources: Sequence[Resource], keys: Sequence[str] | None
) -> dict[Resource, list[DescribedConfig]]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=each.type,
                resource_name=each.name,
                configuration_keys=None if keys is None else list(keys),
            )
            for each in resources
        ]
    )
    results = client.ask(broker, request).results
    described: dict[Resource, list[DescribedConfig]] = {}
    for each in resources:
        about = [found for found in results if (found.resource_type, found.resource_name) == (each.type, each.name)]
        result = only(about, str(each))
        check(str(each), result.error_code, result.error_message)
        described[each] = sorted(map(_entry, result.configs), key=lambda entry: entry.name)
    return described


def _entry(config: DescribeConfigsResourceResult) -> DescribedConfig:
    return DescribedConfig(
        name=config.name,
        value=config.value,
        source=config.config_source,
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
    )
