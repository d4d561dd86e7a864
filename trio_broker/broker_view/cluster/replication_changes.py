"""Elections, reassignments and the end of a broker, for the admin app: with the requests that Kafka's tools send.

They go to this broker's own listener, which sends them on to the controller, wherever that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from broker_admin.views.cluster.replication import (
    BegunReassignment,
    ElectedPartition,
    PreferredElection,
    ReassignedPartition,
    ReplicationRefused,
    Unregistration,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafka_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafka_wire.messages.unregister_broker import UnregisterBrokerRequest
from kafka_wire.schema import Request
from trio_broker.broker_view.cluster.topics import LiveTopicsView
from trio_broker.cluster.leader_elections import ElectionType
from trio_broker.cluster.metadata_image import PartitionImage, TopicImage
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.errors import RequestFailed

R = TypeVar("R")

CONTROLLER_SECONDS: Final = 30.0
"""How long the controller may take, Kafka's default of a client."""


class ReplicationChanges:
    """See the head of the file."""

    def __init__(self, services: BrokerServices, topics: LiveTopicsView) -> None:
        self.services, self.topics = services, topics

    async def _ask(self, request: Request[R]) -> R:
        clients = self.services.broker_clients
        if clients is None:
            raise refused(ErrorCode.INVALID_REQUEST, "this broker is alone: its partitions have nowhere to go")
        try:
            return await clients.client(self.services.node.node_id).send(request, timeout_seconds=CONTROLLER_SECONDS)
        except RequestFailed as error:
            raise refused(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None

    # ---- elections ----

    async def elect_preferred(self, partitions: Sequence[tuple[str, int]], *, dry_run: bool) -> PreferredElection:
        wanted = [self._named(*place) for place in partitions] or await self._imbalanced()
        errors: dict[tuple[str, int], str] = {}
        if wanted and not dry_run:
            by_topic: dict[str, list[int]] = {}
            for each in wanted:
                by_topic.setdefault(each.topic, []).append(each.partition)
            named = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
            request = ElectLeadersRequest(election_type=ElectionType.PREFERRED, topic_partitions=named)
            response = await self._ask(request)
            require_none(response.error_code, None)
            for topic in response.replica_election_results:
                for result in topic.partition_result:
                    if text := error_text(result.error_code, result.error_message):
                        errors[topic.topic, result.partition_id] = text
        return PreferredElection(
            dry_run=dry_run,
            partitions=tuple(
                ElectedPartition(
                    topic=each.topic,
                    partition=each.partition,
                    leader=each.leader,
                    preferred=each.preferred,
                    error=errors.get((each.topic, each.partition)) or each.error,
                )
                for each in wanted
            ),
        )

    def _named(self, topic: str, index: int) -> ElectedPartition:
        return to_be_elected(topic, index, self._state_of(self._topic(topic), index))

    async def _imbalanced(self) -> list[ElectedPartition]:
        """The partitions that another broker leads than the preferred one, which could."""
        found = []
        async for topic in InTurns(self.services.metadata_cache.image.topics.values()):
            async for index, state in InTurns(sorted(topic.partitions.items())):
                if state.leader != state.replicas[0] and state.replicas[0] in state.isr:
                    found.append(to_be_elected(topic.name, index, state))
        return found

    # ---- reassignments ----

    async def reassign(
        self, topic: str, targets: Sequence[tuple[int, tuple[int, ...] | None]], *, dry_run: bool
    ) -> BegunReassignment:
        image = self._topic(topic)
        before = {index: self._state_of(image, index) for index, _ in targets}
        for index, target in targets:
            self._require_possible(topic, index, before[index], target)
        sizes = {each.partition: each.size_bytes or 0 for each in await self.topics.partitions(topic) or ()}
        errors: Mapping[int, str] = {}
        if not dry_run:
            partitions = [
                ReassignablePartition(partition_index=index, replicas=None if target is None else list(target))
                for index, target in targets
            ]
            named = ReassignableTopic(name=topic, partitions=partitions)
            response = await self._ask(AlterPartitionReassignmentsRequest(topics=[named]))
            require_none(response.error_code, response.error_message)
            errors = {
                each.partition_index: text
                for answered in response.responses
                for each in answered.partitions
                if (text := error_text(each.error_code, each.error_message))
            }
        return BegunReassignment(
            dry_run=dry_run,
            moved_bytes=sum(
                sizes.get(index, 0) * len(set(target or ()).difference(before[index].replicas))
                for index, target in targets
            ),
            partitions=tuple(
                ReassignedPartition(
                    topic=topic,
                    partition=index,
                    replicas=before[index].replicas,
                    target=former_replicas(before[index]) if target is None else target,
                    error=errors.get(index),
                )
                for index, target in targets
            ),
        )

    def _require_possible(self, topic: str, index: int, state: PartitionImage, target: tuple[int, ...] | None) -> None:
        """Refuse what the controller would refuse.

        Raises:
            ReplicationRefused: as it says.
        """
        if target is None:
            if not state.is_reassigned:
                raise refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic}-{index} does not move")
            return
        brokers = self.services.metadata_cache.image.brokers
        unknown = [each for each in target if each not in brokers]
        if unknown or not target or len(set(target)) < len(target):
            known = ", ".join(map(str, sorted(brokers)))
            text = f"{topic}-{index}: its brokers are to be some of {known}, each named once"
            raise refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    # ---- brokers ----

    async def unregister(self, broker_id: int, *, dry_run: bool) -> Unregistration:
        image = self.services.metadata_cache.image
        broker = image.brokers.get(broker_id)
        if broker is None:
            raise refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
        if not broker.fenced:
            text = f"broker {broker_id} is in contact: stop it first"
            raise refused(ErrorCode.INVALID_REQUEST, text)
        count = sum(
            broker_id in state.replicas for topic in image.topics.values() for state in topic.partitions.values()
        )
        if not dry_run:
            response = await self._ask(UnregisterBrokerRequest(broker_id=broker_id))
            require_none(response.error_code, response.error_message)
        return Unregistration(dry_run=dry_run, broker_id=broker_id, replica_count=count)

    # ---- what there is ----

    def _topic(self, name: str) -> TopicImage:
        topic = self.services.metadata_cache.image.topics.get(name)
        if topic is None:
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r:.200}")
        return topic

    def _state_of(self, topic: TopicImage, index: int) -> PartitionImage:
        state = topic.partitions.get(index)
        if state is None:
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        return state


def to_be_elected(topic: str, index: int, state: PartitionImage) -> ElectedPartition:
    """A partition before the election of its preferred leader, with what speaks against that."""
    preferred = state.replicas[0]
    error = None if preferred in state.isr else f"broker {preferred}, the preferred leader, is not in sync"
    return ElectedPartition(topic=topic, partition=index, leader=state.leader, preferred=preferred, error=error)


def former_replicas(state: PartitionImage) -> tuple[int, ...]:
    """Where a partition was before the reassignment under way."""
    return tuple(each for each in state.replicas if each not in state.adding_replicas)


def refused(code: ErrorCode, reason: str) -> ReplicationRefused:
    return ReplicationRefused(code.name, reason)


def require_none(code: int, message: str | None) -> None:
    """See that a request as a whole was taken.

    Raises:
        ReplicationRefused: it was not.
    """
    if text := error_text(code, message):
        raise refused(ErrorCode(code), text)


def error_text(code: int, message: str | None) -> str | None:
    """The error of one item, in words; None for none."""
    return None if code == ErrorCode.NONE else message or ErrorCode(code).name
