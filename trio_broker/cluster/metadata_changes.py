"""What one batch of metadata records changes, as the change log has it: topics, and settings of topics, groups and
client metrics, access control entries, quotas, and passwords of users.

Settings of brokers are not here: what counts of them is the effective value, which ``BrokerConfig`` knows. Of other
brokers their decommission is, since a broker takes its own journal along.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from kafka_wire.sasl.scram import MECHANISMS_BY_NUMBER
from kafka_wire.stored.metadata import AccessControlEntryRecord, ClientQuotaRecord, UserScramCredentialRecord
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import differences
from trio_broker.cluster.acl_control import acl_of, acl_records
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import (
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    is_decommission,
)
from trio_broker.cluster.scram_control import credential_records
from trio_broker.common.setting_names import DECOMMISSION
from trio_broker.config.broker_config import BrokerConfig, shown_value
from trio_broker.config.client_metrics_config import CLIENT_METRICS_KEYS
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.entries import ValueChange
from trio_broker.config.keys import GROUP_KEYS, TOPIC_KEYS

R = TypeVar("R")

PARTITIONS = "partitions"

CONFIGURED: Mapping[ConfigResourceType, tuple[ChangedResource, Mapping[str, ConfigKey]]] = {
    ConfigResourceType.TOPIC: (ChangedResource.TOPIC, TOPIC_KEYS),
    ConfigResourceType.GROUP: (ChangedResource.GROUP, GROUP_KEYS),
    ConfigResourceType.CLIENT_METRICS: (ChangedResource.CLIENT_METRICS, CLIENT_METRICS_KEYS),
}
"""The resources whose settings are described here, and the keys that they have."""


def made_changes(
    delta: MetadataDelta, image: MetadataImage, config: BrokerConfig
) -> Generator[None, None, list[MadeChange]]:
    """Return what ``delta`` changed, which has led to ``image``. Yields between topics."""
    settings: dict[ConfigResource, list[ValueChange]] = {}
    for resource in delta.changed_configs:
        yield
        if resource.type in CONFIGURED:
            changed = differences(delta.image.configs(resource), image.configs(resource))
            settings[resource] = [setting_change(resource, each, config) for each in changed]
    own_settings = ConfigResource.of_broker(config.node.node_id)
    made = [
        decommission_changed(resource.name, is_leaving=is_leaving)
        for resource in delta.changed_configs
        if resource.type is ConfigResourceType.BROKER and resource != own_settings
        if (is_leaving := is_leaving_in(image, resource)) != is_leaving_in(delta.image, resource)
    ]
    made += yield from acls_changed(acl_records(delta.image), acl_records(image))
    quotas_before, quotas = (each.records_of(ClientQuotaRecord) for each in (delta.image, image))
    made += yield from keyed_values_changed(ChangedResource.QUOTA, quotas_before, quotas, quota_of)
    users_before, users = credential_records(delta.image), credential_records(image)
    made += yield from keyed_values_changed(ChangedResource.USER, users_before, users, password_of)
    for topic in delta.deleted_topics:
        yield
        made.append(topic_deleted(topic.name, len(topic.partitions)))
    for name in delta.changed_topics:
        yield
        before, after = delta.image.topics.get(name), image.topics[name]
        if before is None or before.topic_id != after.topic_id:
            own = settings.pop(ConfigResource(ConfigResourceType.TOPIC, name), ())
            made.append(topic_created(name, len(after.partitions), own))
        elif len(before.partitions) != len(after.partitions):
            made.append(partitions_added(name, len(before.partitions), len(after.partitions)))
    for resource, values in settings.items():
        yield
        if values:
            made.append(settings_changed(resource, values))
    return made


def setting_change(resource: ConfigResource, texts: ValueChange, config: BrokerConfig) -> ValueChange:
    """One setting of a topic or group before and after; where it has none of its own, the inherited one."""
    key = CONFIGURED[resource.type][1].get(texts.name)
    if key is None or key.sensitive:
        return ValueChange(texts.name, None, None)
    inherited = shown_value(key, key.default if key.broker_key is None else config.value(key.broker_key))
    old, new = (inherited if text is None else text for text in (texts.old, texts.new))
    return ValueChange(texts.name, old, new)


def acls_changed(
    before: Mapping[bytes, AccessControlEntryRecord], after: Mapping[bytes, AccessControlEntryRecord]
) -> Generator[None, None, list[MadeChange]]:
    """The access control entries that are gone or new. Yields after each."""
    made: list[MadeChange] = []
    if before is not after:
        for records, others, action in (
            (before, after, ChangeAction.DELETED),
            (after, before, ChangeAction.CREATED),
        ):
            for acl_id, record in records.items():
                if acl_id not in others:
                    made.append(MadeChange(action, ChangedResource.ACL, str(acl_of(record))))
                yield
    return made


def keyed_values_changed(
    type_: ChangedResource,
    before: Mapping[Any, R],
    after: Mapping[Any, R],
    value_of: Callable[[R], tuple[str, str, str]],
) -> Generator[None, None, list[MadeChange]]:
    """What of ``before`` is gone or another in ``after``, by the resource that ``value_of`` names beside a name and a
    value of it. Yields after each."""
    found: defaultdict[str, list[ValueChange]] = defaultdict(list)
    if before is not after:
        for key in before.keys() | after.keys():
            yield
            old, new = before.get(key), after.get(key)
            if old == new:
                continue
            resource, name, _ = value_of(old or new)  # type: ignore[arg-type]
            found[resource].append(
                ValueChange(name, *(None if each is None else value_of(each)[2] for each in (old, new)))
            )
    return [
        MadeChange(ChangeAction.CONFIG, type_, resource, tuple(sorted(values, key=lambda each: each.name)))
        for resource, values in sorted(found.items())
    ]


def quota_of(record: ClientQuotaRecord) -> tuple[str, str, str]:
    names = [
        f"{each.entity_type} {'(default)' if each.entity_name is None else each.entity_name}" for each in record.entity
    ]
    return ", ".join(sorted(names, reverse=True)), record.key, f"{record.value:.15g}"


def password_of(record: UserScramCredentialRecord) -> tuple[str, str, str]:
    return record.name, MECHANISMS_BY_NUMBER[record.mechanism].value, f"iterations={record.iterations}"


def is_leaving_in(image: MetadataImage, broker: ConfigResource) -> bool:
    return is_decommission(image.configs(broker).get(DECOMMISSION))


def decommission_changed(broker: str, *, is_leaving: bool) -> MadeChange:
    old, new = ("false", "true") if is_leaving else ("true", "false")
    value = ValueChange(DECOMMISSION, old, new)
    return MadeChange(ChangeAction.CONFIG, ChangedResource.BROKER, broker, (value,))


def topic_created(name: str, partitions: int, settings: Sequence[ValueChange]) -> MadeChange:
    own = tuple(ValueChange(each.name, None, each.new) for each in settings)
    values = (ValueChange(PARTITIONS, None, str(partitions)), *own)
    return MadeChange(ChangeAction.CREATED, ChangedResource.TOPIC, name, values)


def topic_deleted(name: str, partitions: int) -> MadeChange:
    values = (ValueChange(PARTITIONS, str(partitions), None),)
    return MadeChange(ChangeAction.DELETED, ChangedResource.TOPIC, name, values)


def partitions_added(name: str, before: int, after: int) -> MadeChange:
    values = (ValueChange(PARTITIONS, str(before), str(after)),)
    return MadeChange(ChangeAction.PARTITIONS_ADDED, ChangedResource.TOPIC, name, values)


def settings_changed(resource: ConfigResource, values: Sequence[ValueChange]) -> MadeChange:
    return MadeChange(ChangeAction.CONFIG, CONFIGURED[resource.type][0], resource.name, tuple(values))
