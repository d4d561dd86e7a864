"""Carries out what is declared of topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_topics import BROKER_DEFAULT
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ResourceAlterations,
)
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.cluster.replication_control import NewPartitions, NewTopic
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigSource
from trio_broker.config.keys import TOPIC_KEYS
from trio_broker.config.resource_config import topic_entries
from trio_broker.declaration.declaration import Declaration
from trio_broker.declaration.plan import CurrentSetting, CurrentTopic, TopicPlan, plan_declaration


def plan_topics_on_image(declaration: Declaration, image: MetadataImage, config: BrokerConfig) -> tuple[TopicPlan, ...]:
    """Return what is to be done about each declared topic.

    Raises:
        DeclarationError: it contradicts a topic that exists, or a setting is unknown.
    """
    names = [topic.name for topic in declaration.topics if topic.name in image.topics]
    return plan_declaration(declaration, {name: current_topic(image, config, name) for name in names}, list(TOPIC_KEYS))


def current_topic(image: MetadataImage, config: BrokerConfig, name: str) -> CurrentTopic:
    """Return a topic as it is, as far as a declaration may change it."""
    topic = image.topics[name]
    settings = {
        entry.name: CurrentSetting(entry.value, entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG)
        for entry in topic_entries(topic.configs, config)
    }
    # As in Kafka, one of its partitions gives the replication factor of the topic; there is always one.
    return CurrentTopic(len(topic.partitions), len(topic.partitions[0].replicas), settings)


def additional_partitions(plans: Iterable[TopicPlan], config: BrokerConfig) -> int:
    """The partitions of new topics, and those that topics grow by."""
    additional = 0
    for plan in plans:
        if plan.current is None:
            additional += plan.declared.partitions or config.request.num_partitions
        elif plan.new_partitions is not None:
            additional += plan.new_partitions - plan.current.partitions
    return additional


async def change_topics(plans: Sequence[TopicPlan], controller: ControllerClient, *, validate_only: bool) -> list[str]:
    """Request all changes, or only their check; return what is refused, a line each."""
    new = [plan for plan in plans if plan.is_new]
    grown = [plan for plan in plans if plan.new_partitions is not None]
    changed = [plan for plan in plans if plan.changes]
    creations = await controller.create_topics([new_topic(plan) for plan in new], validate_only=validate_only)
    growths = await controller.create_partitions(
        [NewPartitions(name=plan.declared.name, count=plan.new_partitions or 0) for plan in grown],
        validate_only=validate_only,
    )
    settings = await controller.change_configs([config_change(plan) for plan in changed], validate_only=validate_only)
    outcomes = [*creations, *growths, *settings.results]
    return [
        f"{plan.declared}: {outcome}"
        for plan, outcome in zip([*new, *grown, *changed], outcomes, strict=True)
        if isinstance(outcome, KafkaError)
    ]


def new_topic(plan: TopicPlan) -> NewTopic:
    topic = plan.declared
    return NewTopic(
        name=topic.name,
        num_partitions=topic.partitions or BROKER_DEFAULT,
        replication_factor=topic.replication_factor or BROKER_DEFAULT,
        configs=topic.settings,
    )


def config_change(plan: TopicPlan) -> ConfigChange:
    resource = ConfigResource(ConfigResourceType.TOPIC, plan.declared.name)
    alterations = (ConfigAlteration(each.name, ConfigOperation.SET, each.new) for each in plan.changes)
    return ResourceAlterations(resource, tuple(alterations))
