"""What one batch of metadata records changes, as the change log has it: topics, and settings of topics and groups.

Settings of brokers are not here: what counts of them is the effective value, which ``BrokerConfig`` knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_wire.stored.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.entries import ValueChange
from trio_broker.config.keys import GROUP_KEYS, TOPIC_KEYS

PARTITIONS = "partitions"

CONFIGURED: Mapping[ConfigResourceType, tuple[ChangedResource, Mapping[str, ConfigKey]]] = {
    ConfigResourceType.TOPIC: (ChangedResource.TOPIC, TOPIC_KEYS),
    ConfigResourceType.GROUP: (ChangedResource.GROUP, GROUP_KEYS),
}
"""The resources whose settings are described here, and the keys that they have."""


def made_changes(image: MetadataImage, records: Sequence[Any], config: BrokerConfig) -> list[MadeChange]:
    """Return what ``records`` will change in ``image``, which must not have folded them yet."""
    created: dict[bytes, str] = {}
    # Dictionaries, because they keep the order in which things changed.
    partitions: dict[str, int] = {}
    settings: dict[ConfigResource, list[ValueChange]] = {}
    deleted: dict[str, int] = {}
    for record in records:
        match record:
            case TopicRecord():
                created[record.topic_id] = record.name
                partitions[record.name] = 0
            case PartitionRecord():
                name = created.get(record.topic_id) or image.topics_by_id[record.topic_id].name
                before = 0 if record.topic_id in created else len(image.topics[name].partitions)
                partitions[name] = partitions.get(name, before) + 1
            case RemoveTopicRecord():
                topic = image.topics_by_id[record.topic_id]
                deleted[topic.name] = len(topic.partitions)
            case ConfigRecord() if record.resource_type in CONFIGURED:
                resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
                settings.setdefault(resource, []).append(setting_change(image, config, resource, record))
    names = set(created.values())
    return [
        *(topic_deleted(name, count) for name, count in deleted.items()),
        *(
            topic_created(name, count, settings.pop(ConfigResource(ConfigResourceType.TOPIC, name), ()))
            if name in names
            else partitions_added(name, len(image.topics[name].partitions), count)
            for name, count in partitions.items()
        ),
        *(settings_changed(resource, values) for resource, values in settings.items()),
    ]


def setting_change(
    image: MetadataImage, config: BrokerConfig, resource: ConfigResource, record: ConfigRecord
) -> ValueChange:
    """One setting before and after ``record``; where the resource has none of its own, the inherited one."""
    key = CONFIGURED[resource.type][1].get(record.name)
    own = image.configs(resource).get(record.name)
    if key is None or key.sensitive:
        return ValueChange(record.name, None, None)
    inherited = key.text_of(key.default if key.broker_key is None else config.value(key.broker_key))
    return ValueChange(
        record.name, inherited if own is None else own, inherited if record.value is None else record.value
    )


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
