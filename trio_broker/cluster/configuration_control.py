"""Decides about dynamic settings: the resulting values, whether they are valid, and the records to write.

Both kinds of change are here: the incremental one of KIP-339 (set, delete, append, subtract) and the older one of
KIP-133 that replaces all settings of a resource. Either is first converted to a map of new values, which is validated
as a whole and written key by key; a key that keeps its value writes no record.

Source: Kafka's ConfigurationControlManager, ConfigAdminManager and ControllerConfigurationValidator; KIP-339.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import attrs

from kafka_wire.config_resources import ConfigOperation as ConfigOperation
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ConfigRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.decommission import decommission_changes
from trio_broker.cluster.eligible_leaders import eligibility_changes
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.common.topic_names import require_valid_topic_name
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.client_metrics_config import (
    CLIENT_METRICS_KEYS,
    check_client_metrics_configs,
    unknown_client_metrics_key,
)
from trio_broker.config.config_key import ConfigKey, ConfigType, split_list
from trio_broker.config.entries import ConfigScope
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from trio_broker.config.resource_config import check_group_configs, check_topic_configs
from trio_broker.runtime.workers import Workers

KEYS: Mapping[ConfigResourceType, Mapping[str, ConfigKey]] = {
    ConfigResourceType.TOPIC: TOPIC_KEYS,
    ConfigResourceType.BROKER: BROKER_KEYS,
    ConfigResourceType.GROUP: GROUP_KEYS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
"""The keys that a resource of each type may set."""


@attrs.frozen
class ConfigAlteration:
    """One change of one key."""

    name: str
    operation: ConfigOperation
    value: str | None = attrs.field(repr=False)


@attrs.frozen
class ResourceAlterations:
    """Changes of one resource, to be made together or not at all.

    Kafka's clients may at most double or halve a pool of threads; ``any_pool_size`` lifts that.
    """

    resource: ConfigResource
    alterations: tuple[ConfigAlteration, ...]
    any_pool_size: bool = False


@attrs.frozen
class ResourceReplacement:
    """The new settings of one resource, which replace all that it has."""

    resource: ConfigResource
    configs: Mapping[str, str | None] = attrs.field(repr=False)


ConfigChange = ResourceAlterations | ResourceReplacement


ASKED_ABOUT = ("ssl.", "sasl.")
"""What the names of settings have whose values are not enough to judge them: files are read, and more."""


def validation(image: MetadataImage, config: BrokerConfig, change: ConfigChange) -> Callable[[], None] | None:
    """Return what asks the parts of this broker about a change of its settings, None where it is about others.

    It may block, and raises as ``decide_config_change``, by which other reasons to refuse are found.
    """
    resource = change.resource
    if resource not in (CLUSTER_DEFAULT, ConfigResource.of_broker(config.node.node_id)):
        return None
    try:
        changes = _changes(image, config, change)
        if not any(part in name for name in changes for part in ASKED_ABOUT):
            return None
        changed = config.changed(scope_of(resource), changes)
    except KafkaError:
        return None

    def validate() -> None:
        try:
            for each in config.validators:
                each(changed, changes)
        except ConfigError as error:
            raise _refusal_of_broker(error) from None

    return validate


async def refusal_here(
    image: MetadataImage, config: BrokerConfig, workers: Workers, change: ConfigChange
) -> KafkaError | None:
    """Return why this broker could not follow a change of its settings, as ``decide_config_change`` and ``validation``
    find it; None where it can, or they are not its. A controller elsewhere knows neither its file nor its keys."""
    if change.resource not in (CLUSTER_DEFAULT, ConfigResource.of_broker(config.node.node_id)):
        return None
    try:
        decide_config_change(image, config, change)
        if (validate := validation(image, config, change)) is not None:
            await workers.run(validate)
    except KafkaError as refusal:
        return refusal.with_traceback(None)
    return None


def decide_config_change(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange
) -> ControllerResult[ConfigResource]:
    """Decide about the settings of one resource.

    Raises:
        KafkaError: the resource does not exist or has no settings, the request is malformed, or a value is
            invalid (INVALID_CONFIG; INVALID_REQUEST for a broker, as in Kafka).
    """
    resource = change.resource
    if resource.type is ConfigResourceType.TOPIC and not resource.name:
        raise KafkaError("Default topic resources are not allowed.", code=ErrorCode.INVALID_REQUEST)
    is_of_other_broker = _is_of_other_broker(image, config, resource)
    if not is_of_other_broker:
        require_configurable(image, config, resource)
    changes = _changes(image, config, change)
    any_pool_size = isinstance(change, ResourceAlterations) and change.any_pool_size
    if is_of_other_broker:
        _check_each(config, changes)
    else:
        _check(config, resource, image.configs(resource), changes, any_pool_size)
    records = [_record(resource, name, value) for name, value in changes.items()]
    following = (eligibility_changes, decommission_changes)
    beside = [change for changes_of in following for change in changes_of(image, config, resource, records)]
    return ControllerResult(resource, (*records, *beside))


def parse_resource(resource_type: int, name: str) -> ConfigResource:
    """Return the resource that a request names.

    Raises:
        KafkaError: INVALID_REQUEST: there are no resources of that type.
    """
    try:
        return ConfigResource(ConfigResourceType(resource_type), name)
    except ValueError:
        raise KafkaError(f"unknown resource type {resource_type}", code=ErrorCode.INVALID_REQUEST) from None


def require_configurable(image: MetadataImage, config: BrokerConfig, resource: ConfigResource) -> None:
    """Refuse a resource that is not there, or has no settings that this broker keeps.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION or INVALID_REQUEST.
    """
    match resource.type:
        case ConfigResourceType.TOPIC:
            require_valid_topic_name(resource.name)
            if resource.name not in image.topics:
                raise KafkaError(f"no topic {resource.name!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            require_own_resource(config, resource)
        case ConfigResourceType.GROUP:
            if not resource.name:
                raise KafkaError("Default group resources are not allowed.", code=ErrorCode.INVALID_REQUEST)
        case ConfigResourceType.CLIENT_METRICS:
            if not resource.name:
                raise KafkaError("Client metrics subscription name must not be empty", code=ErrorCode.INVALID_REQUEST)


def require_own_resource(config: BrokerConfig, resource: ConfigResource) -> None:
    """Refuse settings or loggers of another broker.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    node_id = config.node.node_id
    if resource != CLUSTER_DEFAULT and resource.name != str(node_id):
        raise KafkaError(
            f"Unexpected broker id, expected {node_id} or empty string, but received {resource.name}",
            code=ErrorCode.INVALID_REQUEST,
        )


def _is_of_other_broker(image: MetadataImage, config: BrokerConfig, resource: ConfigResource) -> bool:
    """Whether they are the settings of another broker of the cluster, which has sent the change on."""
    return (
        resource.type is ConfigResourceType.BROKER
        and resource.name != str(config.node.node_id)
        and resource.name in map(str, image.brokers)
    )


def _check_each(config: BrokerConfig, changes: Mapping[str, str | None]) -> None:
    """Check settings of another broker each by itself: what the others are there, its file says, which is not known
    here. That broker has checked them together (``refusal_here``), and leaves without effect what contradicts them."""
    try:
        for name, value in changes.items():
            config.check_value(ConfigScope.BROKER, name, value)
    except ConfigError as error:
        raise _refusal_of_broker(error) from None


def scope_of(resource: ConfigResource) -> ConfigScope:
    """Return which dynamic layer a broker resource names."""
    return ConfigScope.BROKER if resource.name else ConfigScope.CLUSTER


def _refusal_of_broker(error: ConfigError) -> ConfigError:
    # KAFKA-13609: whatever Kafka's DynamicBrokerConfig refuses is answered INVALID_REQUEST, although INVALID_CONFIG
    # would fit better; clients expect it by now.
    return ConfigError(str(error), key=error.key, code=ErrorCode.INVALID_REQUEST)


def _changes(image: MetadataImage, config: BrokerConfig, change: ConfigChange) -> dict[str, str | None]:
    """Return what differs afterwards; None takes a value away."""
    current = image.configs(change.resource)
    if isinstance(change, ResourceReplacement):
        wanted = _wanted_by_replacement(current, change.configs)
    else:
        wanted = _wanted_by_alterations(current, config, change)
    return {name: value for name, value in wanted.items() if current.get(name) != value}


def _wanted_by_replacement(current: Mapping[str, str], configs: Mapping[str, str | None]) -> dict[str, str | None]:
    for name, value in configs.items():
        _require_value(name, value)
    # None deletes: a key that the request does not name returns to its default (KIP-133).
    return {**dict.fromkeys(current), **configs}


def _wanted_by_alterations(
    current: Mapping[str, str], config: BrokerConfig, change: ResourceAlterations
) -> dict[str, str | None]:
    counts = Counter(alteration.name for alteration in change.alterations)
    wanted = {}
    for alteration in change.alterations:
        if counts[alteration.name] > 1:
            raise KafkaError(f"{alteration.name} is changed twice in one request", code=ErrorCode.INVALID_REQUEST)
        wanted[alteration.name] = _altered(current, config, change.resource, alteration)
    return wanted


def _altered(
    current: Mapping[str, str], config: BrokerConfig, resource: ConfigResource, alteration: ConfigAlteration
) -> str | None:
    """Return the value of a key after one alteration; None deletes it."""
    if alteration.operation is ConfigOperation.DELETE:
        return None
    value = _require_value(alteration.name, alteration.value)
    if alteration.operation is ConfigOperation.SET:
        return value
    key = _key(resource, alteration.name)
    if key.type is not ConfigType.LIST:
        raise ConfigError(f"{key.name} is not a list, so {alteration.operation.name} means nothing", key=key.name)
    present = current.get(key.name)
    items = _effective_items(key, config) if present is None else split_list(present)
    operands = split_list(value)
    if alteration.operation is ConfigOperation.APPEND:
        return ",".join([*items, *(operand for operand in operands if operand not in items)])
    return ",".join(item for item in items if item not in operands)


def _key(resource: ConfigResource, name: str) -> ConfigKey:
    if (key := KEYS.get(resource.type, {}).get(name)) is None:
        if resource.type is ConfigResourceType.CLIENT_METRICS:
            raise unknown_client_metrics_key(name)
        raise ConfigError(f"Unknown {resource.type.name.lower()} config name: {name}", key=name)
    return key


def _effective_items(key: ConfigKey, config: BrokerConfig) -> Sequence[str]:
    """Return the effective list, which APPEND and SUBTRACT start from while the resource has no value of its own."""
    inherited = config.value(key) if key is BROKER_KEYS.get(key.name) else key.default
    if key.broker_key is not None:
        inherited = config.value(key.broker_key)
    return split_list(key.text_of(inherited)) if inherited is not None else ()


def _require_value(name: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(f"{name} has no value", code=ErrorCode.INVALID_REQUEST)
    return value


def _check(
    config: BrokerConfig,
    resource: ConfigResource,
    current: Mapping[str, str],
    changes: Mapping[str, str | None],
    any_pool_size: bool,
) -> None:
    if resource.type is ConfigResourceType.BROKER:
        try:
            config.check_change(scope_of(resource), changes, any_pool_size=any_pool_size)
        except ConfigError as error:
            raise _refusal_of_broker(error) from None
        return
    merged = {name: value for name, value in {**current, **changes}.items() if value is not None}
    for name in changes:
        _key(resource, name)
    match resource.type:
        case ConfigResourceType.GROUP:
            check_group_configs(merged, config)
        case ConfigResourceType.CLIENT_METRICS:
            check_client_metrics_configs(merged)
        case _:
            check_topic_configs(merged, config)


def _record(resource: ConfigResource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
