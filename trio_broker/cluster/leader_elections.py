"""Decides about elections beside those that a broker's coming and going causes.

A request asks for the preferred leader of a partition or, accepting a loss of records, for any. The balance of leaders
does so by itself at an interval: after a broker has been away it leads nothing, until its partitions are given back.

Source: Kafka's ReplicationControlManager (electLeaders, maybeBalancePartitionLeaders, maybeElectUncleanLeaders);
KIP-183, KIP-460.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.metadata_image import LEADER_UNCHANGED, NO_LEADER, MetadataImage
from trio_broker.cluster.partition_change_builder import Election
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.config.broker_config import BrokerConfig


class ElectionType(enum.IntEnum):
    """Which leader an election is for, numbered as ElectLeaders sends it."""

    PREFERRED = 0
    UNCLEAN = 1


NOT_AVAILABLE = {
    ElectionType.PREFERRED: (
        "The preferred leader was not available.",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ),
    ElectionType.UNCLEAN: (
        "Eligible topic partition leaders are not available.",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ),
}
"""The error of an election without an eligible replica."""


ELECTIONS = {ElectionType.PREFERRED: Election.PREFERRED, ElectionType.UNCLEAN: Election.UNCLEAN}


def decide_elections(
    image: MetadataImage, config: BrokerConfig, election: ElectionType, partitions: Iterable[TopicPartition]
) -> Iterator[ControllerResult[None] | KafkaError]:
    """Decide about each election, in order, when it is asked for."""
    changes = ClusterChanges(image, config)
    return (attempt(partial(decide_election, changes, election, partition)) for partition in partitions)


def decide_election(
    changes: ClusterChanges, election: ElectionType, partition: TopicPartition
) -> ControllerResult[None]:
    """Elect the leader of ``partition`` that ``election`` asks for.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION; ELECTION_NOT_NEEDED: it has the leader wanted; or no replica
            may be elected, with the code for the type of the election.
    """
    topic = changes.image.topics.get(partition.topic)
    if topic is None:
        raise KafkaError(f"No such topic as {partition.topic}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = topic.partitions.get(partition.partition)
    if present is None:
        raise KafkaError(f"No such partition as {partition}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    is_preferred = present.leader == present.replicas[0]
    if is_preferred or (election is ElectionType.UNCLEAN and present.leader != NO_LEADER):
        raise KafkaError("Leader election not needed for topic partition.", code=ErrorCode.ELECTION_NOT_NEEDED)
    change = changes.of(topic).change(partition.partition, election=ELECTIONS[election])
    if change is None or change.leader in (LEADER_UNCHANGED, NO_LEADER):
        reason, code = NOT_AVAILABLE[election]
        raise KafkaError(reason, code=code)
    return ControllerResult(None, (change,))


MAX_BALANCING_ELECTIONS: Final = 1000
"""Elections of one decision, as many as in Kafka: each moves the clients of a partition, and other changes wait."""


def decide_leader_balance(image: MetadataImage, config: BrokerConfig) -> Steps[ControllerResult[bool]]:
    """Let preferred replicas lead that are live and in sync, and partitions without a leader be led by any live replica
    where their topic allows it. The outcome says whether there may be more to do.

    ``auto.leader.rebalance.enable`` is about the former alone.
    """
    changes, budget = ClusterChanges(image, config), YieldBudget()
    records: list[PartitionChangeRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            is_offline = partition.leader == NO_LEADER
            if is_offline or (config.node.auto_leader_rebalance_enable and partition.leader != partition.replicas[0]):
                of_topic = changes.of(topic)
                election = of_topic.online_election if is_offline else Election.PREFERRED
                change = of_topic.change(index, election=election)
                if change is not None and change.leader not in (LEADER_UNCHANGED, NO_LEADER):
                    records.append(change)
            if len(records) == MAX_BALANCING_ELECTIONS:
                return ControllerResult(True, records)
            if budget.is_spent:
                yield budget.renewed
    return ControllerResult(False, records)
