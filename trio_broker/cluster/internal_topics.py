"""How many replicas the broker's own topics have where no setting says so: as many as there are brokers, up to three.

A cluster that begins with one broker must not be found later with one copy of its offsets. So each partition gets
further replicas when brokers join, by a reassignment as any other, and with three of them a write needs two in sync, as
Kafka's default is. What a setting or an operator has said is left alone.

Source: Kafka's offsets.topic.replication.factor, transaction.state.log.replication.factor and -.min.isr;
docs/decisions/0096-replicas-without-a-setting.md.
"""

from __future__ import annotations

from typing import Any, Final

from kafka_wire.stored.metadata import ConfigRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import ConfigResourceType, MetadataImage, TopicImage
from trio_broker.cluster.partition_change_builder import Assignment
from trio_broker.cluster.replica_placer import ReplicaLoad
from trio_broker.cluster.topic_changes import MIN_INSYNC_REPLICAS, ClusterChanges
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.config.broker_config import BrokerConfig

MOST_REPLICAS: Final = 3
"""Kafka's number. One broker may be down for maintenance while another fails."""

UNSET: Final = -1
"""In the place of a number of replicas that no setting gives."""


def default_replication_factor(image: MetadataImage) -> int:
    """The replicas of a partition of the broker's own topics, now that so many brokers are active and stay."""
    return min(MOST_REPLICAS, max(len(image.active_brokers - image.leaving_brokers), 1))


def default_min_insync_replicas(replication_factor: int) -> int:
    """How many of them must be in sync for a write. With two replicas one may fail, so it is one."""
    return 2 if replication_factor >= MOST_REPLICAS else 1


def unset_topics(config: BrokerConfig) -> list[str]:
    """The topics of the broker's own whose number of replicas no setting gives."""
    factors = {
        CONSUMER_OFFSETS_TOPIC: config.group_coordinator.offsets_topic_replication_factor,
        TRANSACTION_STATE_TOPIC: config.transaction_coordinator.transaction_state_log_replication_factor,
    }
    return [name for name, factor in factors.items() if factor == UNSET]


def decide_internal_growth(image: MetadataImage, config: BrokerConfig) -> Steps[ControllerResult[None]]:
    """Give the partitions of the broker's own topics the replicas that there are brokers for now."""
    topics = [image.topics[name] for name in unset_topics(config) if name in image.topics]
    factor = default_replication_factor(image)
    records: list[Any] = []
    changes, budget = ClusterChanges(image, config), YieldBudget()
    partitions = [each for topic in topics for each in topic.partitions.values()]
    load = yield from ReplicaLoad.of(image, partitions)
    for topic in topics:
        for index, partition in topic.partitions.items():
            missing = 0 if partition.is_reassigned else factor - len(partition.replicas)
            if missing > 0 and (added := load.added(partition.replicas, missing)):
                replicas = load.led_evenly((*partition.replicas, *added), partition.replicas[0])
                assignment = Assignment.of(partition).reassigned_to(replicas)
                records.append(changes.of(topic).change(index, assignment=assignment))
            if budget.is_spent:
                yield budget.renewed
        records += _raised_min_isr(topic, factor)
    return ControllerResult(None, [record for record in records if record is not None])


def _raised_min_isr(topic: TopicImage, factor: int) -> list[ConfigRecord]:
    """Ask for a second replica in sync once every partition has one, so that no write has to wait for it. A topic that
    has a number of its own keeps it."""
    wanted = default_min_insync_replicas(factor)
    is_ready = all(
        len(each.replicas) >= factor and len(each.isr) >= wanted and not each.is_reassigned
        for each in topic.partitions.values()
    )
    if wanted == 1 or not is_ready or MIN_INSYNC_REPLICAS in topic.configs:
        return []
    return [_min_isr(topic, str(wanted))]


def lowered_min_isr(topic: TopicImage) -> list[ConfigRecord]:
    """Ask no longer for a second replica in sync, where ``_raised_min_isr`` has: the topic loses its third replica, and
    one of two may fail."""
    raised = str(default_min_insync_replicas(MOST_REPLICAS))
    return [_min_isr(topic, None)] if topic.configs.get(MIN_INSYNC_REPLICAS) == raised else []


def _min_isr(topic: TopicImage, value: str | None) -> ConfigRecord:
    resource_type = ConfigResourceType.TOPIC
    return ConfigRecord(resource_type=resource_type, resource_name=topic.name, name=MIN_INSYNC_REPLICAS, value=value)
