"""The controller: the only writer of the cluster's metadata.

Every change has the same steps: decide (a function of the image), append (one batch, durable), apply to the image,
notify the listeners. A lock serializes the requests, so that a decision is still valid when it is written. Listeners
are notified before the request is answered: a topic that was created can be produced to.

Once a batch is appended nothing interrupts the remaining steps, not even cancellation: with an image behind its own log
the next decision would be wrong. A listener that fails is logged and nothing is undone, since the change is in the
log; the listener catches up at the next start.

Source: Kafka's QuorumController, without the quorum.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

import attrs
import trio

from kafka_wire.errors import KafkaError
from trio_broker.changes.caller import CALLER, THE_BROKER
from trio_broker.changes.change import Change, ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import ChangeLog, differences
from trio_broker.cluster.cluster_control import NodeRegistration, decide_registration
from trio_broker.cluster.configuration_control import ConfigChange, decide_config_change, require_configurable, scope_of
from trio_broker.cluster.controller_result import ControllerResult, attempt, outcomes_of
from trio_broker.cluster.features import FeatureUpdate, decide_feature_updates
from trio_broker.cluster.leader_elections import ElectionType, decide_election
from trio_broker.cluster.logger_levels import change_levels
from trio_broker.cluster.metadata_changes import made_changes
from trio_broker.cluster.metadata_delta import MetadataDelta, replayed
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    ConfigResourceType,
    TopicImage,
)
from trio_broker.cluster.metadata_log import QuorumInfo
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignment
from trio_broker.cluster.producer_ids import ProducerIdBlock, decide_producer_id_block
from trio_broker.cluster.replication_control import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicTarget,
    decide_new_partitions,
    decide_new_topics,
    decide_topic_deletions,
)
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope, ValueChange
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.runtime.clock import SystemClock
from trio_broker.topic_partition import TopicPartition
from trio_broker.yield_budget import InTurns

T = TypeVar("T")

log = logging.getLogger(__name__)

MetadataListener = Callable[[MetadataDelta], Awaitable[None]]
"""Called with what changed, after the image has it. Deleted topics precede changed ones: a name may be in both."""


class MetadataLogWriter(Protocol):
    """What a controller needs of a metadata log."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def failure(self) -> OSError | None:
        """What took the log offline for good, if anything did."""
        ...

    @property
    def quorum(self) -> QuorumInfo:
        """Who leads the log, and how far it has come."""
        ...

    async def append(self, records: Sequence[Any]) -> int:
        """Append as one batch; returns the first offset once all are durable."""
        ...


@attrs.frozen
class ConfigOutcome:
    """The result of a request to change settings: for each resource itself or its error, in the order of the request,
    and what was recorded of the changes that had an effect."""

    results: Sequence[ConfigResource | KafkaError]
    changes: Sequence[Change]


class Controller:
    """Decides about topics, leaders, settings, features, nodes and producer ids."""

    def __init__(
        self,
        metadata_log: MetadataLogWriter,
        config: BrokerConfig,
        records: Iterable[Any] = (),
        *,
        changes: ChangeLog | None = None,
    ) -> None:
        """Begin with the image of ``records``, the replay of the log. What changes from now on goes to ``changes``."""
        self.config = config
        self.changes = changes or ChangeLog(SystemClock())
        self.node_id = config.node.node_id
        self._metadata_log = metadata_log
        self._lock = trio.Lock()
        self._listeners: list[MetadataListener] = []
        self.image = replayed(records, offset=self.metadata_offset, epoch=metadata_log.quorum.leader_epoch)
        for resource in (CLUSTER_DEFAULT, self.broker_resource):
            self._apply_broker_configs(resource)

    @property
    def broker_resource(self) -> ConfigResource:
        """The config resource of this broker."""
        return ConfigResource(ConfigResourceType.BROKER, str(self.node_id))

    @property
    def metadata_offset(self) -> int:
        """The offset of the newest record of the metadata log; it grows over all starts."""
        return self._metadata_log.log_end_offset - 1

    @property
    def failure(self) -> OSError | None:
        """Why no decision can be recorded any more, if its log's disk failed."""
        return self._metadata_log.failure

    @property
    def quorum(self) -> QuorumInfo:
        """How the quorum of the metadata log stands; this node is its leader and only voter."""
        return self._metadata_log.quorum

    def subscribe(self, listener: MetadataListener) -> Callable[[], None]:
        """Call ``listener`` after every change from now on. Returns a function that ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- requests ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        """Create each topic; return it or its error, in the order of ``topics``.

        Raises:
            KafkaError: the request as a whole is refused.
            OSError: the metadata log could not be written; nothing has changed.
        """
        async with self._lock:
            return await self._carry_out(decide_new_topics(self.image, self.config, topics), validate_only)

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[NewPartitions | KafkaError]:
        """Add partitions to each topic; results in the order of ``topics``, errors as ``create_topics``."""
        async with self._lock:
            return await self._carry_out(decide_new_partitions(self.image, topics), validate_only)

    async def delete_topics(
        self, targets: Sequence[TopicTarget], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        """Delete each topic; results in the order of ``targets``, errors as ``create_topics``."""
        async with self._lock:
            return await self._carry_out(decide_topic_deletions(self.image, self.config, targets), validate_only)

    async def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> ConfigOutcome:
        """Change the settings of each resource, all of a resource's or none, in the order of ``changes``.

        Resources must differ from each other. Levels of loggers are set at once, and no record of them is written.

        Raises:
            OSError: the metadata log could not be written; nothing has changed.
        """
        async with self._lock:
            of_loggers: list[Change] = []
            decide = partial(self._decide_config, validate_only=validate_only, of_loggers=of_loggers)
            decisions = [attempt(partial(decide, change)) async for change in InTurns(changes)]
            recorded = of_loggers if validate_only else [*of_loggers, *await self._commit(decisions)]
            results = outcomes_of(decisions)
            return ConfigOutcome(results, recorded)

    def _decide_config(
        self, change: ConfigChange, *, validate_only: bool, of_loggers: list[Change]
    ) -> ControllerResult[ConfigResource]:
        if change.resource.type is not ConfigResourceType.BROKER_LOGGER:
            return decide_config_change(self.image, self.config, change)
        require_configurable(self.image, self.config, change.resource)
        values = change_levels(change, validate_only=validate_only)
        if values and not validate_only:
            made = MadeChange(ChangeAction.CONFIG, ChangedResource.BROKER_LOGGER, change.resource.name, values)
            of_loggers.append(self.changes.record(made))
        return ControllerResult(change.resource, ())

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition]
    ) -> list[KafkaError | None]:
        """Elect a leader of each partition; results in the order of ``partitions``, errors as ``create_topics``."""
        async with self._lock:
            decisions = (
                attempt(partial(decide_election, self.image, self.node_id, election, partition))
                for partition in partitions
            )
            return await self._carry_out(decisions, False)

    async def reassign_partitions(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> list[KafkaError | None]:
        """Assign each partition its replicas; results in the order of ``reassignments``, errors as
        ``create_topics``."""
        decide = partial(
            decide_reassignment,
            self.image,
            self.node_id,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        async with self._lock:
            return await self._carry_out((attempt(partial(decide, wanted)) for wanted in reassignments), False)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Finalize all the levels asked for, or none.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION: one of them cannot be.
            OSError: the metadata log could not be written; nothing has changed.
        """
        async with self._lock:
            decision = decide_feature_updates(self.image, self.node_id, updates)
            await self._carry_out([decision], validate_only)
            if not validate_only:
                for record in decision.records:
                    log.info("feature %s: finalized at level %d", record.name, record.feature_level)

    async def register_node(self, node: NodeRegistration) -> int:
        """Register this start and begin new leader epochs for the node's partitions. Returns the broker epoch."""
        async with self._lock:
            # Under the lock, so that the registration, the first record of its batch, gets just this offset.
            offset = self._metadata_log.log_end_offset
            decision = decide_registration(self.image, self.config, node, broker_epoch=offset)
            await self._carry_out([decision], False)
            return decision.outcome

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """Return a block of ids that was never allocated before."""
        async with self._lock:
            decision = decide_producer_id_block(self.image, self.node_id)
            await self._carry_out([decision], False)
            return decision.outcome

    async def try_broker_configs(self, values: Mapping[str, str | None]) -> tuple[ValueChange, ...]:
        """Put settings of this broker in effect without writing them; return the effective values that changed.

        Raises:
            ConfigError: as ``BrokerConfig.try_values``.
        """
        async with self._lock:
            return self.config.try_values(values)

    async def end_trial(self) -> tuple[ValueChange, ...]:
        """Take back what was tried; return the effective values that changed."""
        async with self._lock:
            return self.config.end_trial()

    # --- the steps of a change ---

    async def _carry_out(
        self, decisions: Iterable[ControllerResult[T] | KafkaError], validate_only: bool
    ) -> list[T | KafkaError]:
        """Commit the decisions in one batch unless only validating, and return each outcome or error."""
        # The image stands still meanwhile: only the holder of the lock changes it.
        decided = [decision async for decision in InTurns(decisions)]
        if not validate_only:
            await self._commit(decided)
        return outcomes_of(decided)

    async def _commit(self, decisions: Sequence[ControllerResult[Any] | KafkaError]) -> list[Change]:
        """Append the records of all decisions as one batch and publish them; return what was recorded as changed."""
        records = list(chain.from_iterable(item.records for item in decisions if isinstance(item, ControllerResult)))
        if not records:
            return []
        recorded: list[Change] = []
        # Shielded: a batch that is in the log must be in the image too, even if the request is cancelled.
        with trio.CancelScope(shield=True):
            first_offset = await self._metadata_log.append(records)
            recorded += await self._publish(records, first_offset + len(records) - 1)
        return recorded

    async def _publish(self, records: Sequence[Any], offset: int) -> list[Change]:
        # The broker's settings come before the listeners, which resolve topic settings against them.
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(offset=offset, epoch=self._metadata_log.quorum.leader_epoch)
        made = made_changes(delta, self.image, self.config)
        for resource in delta.changed_configs:
            made += self._apply_broker_configs(resource)
        # Recorded before the listeners are notified: a change has its number by the time that its effects are seen.
        recorded = [self.changes.record(each) for each in made]
        # A copy, since a listener may unsubscribe while it is called.
        for listener in tuple(self._listeners):
            try:
                await listener(delta)
            except Exception:
                log.exception("a listener failed on %s", delta)
        return recorded

    def _apply_broker_configs(self, resource: ConfigResource) -> list[MadeChange]:
        if resource not in (CLUSTER_DEFAULT, self.broker_resource):
            return []
        scope = scope_of(resource)
        before, tried = self.config.dynamic(scope), self.config.tried
        effective = self.config.set_dynamic(scope, self.image.configs(resource))
        # A trial that is kept was recorded when it began.
        said = {*(each.name for each in effective), *(tried if scope is ConfigScope.BROKER else ())}
        stored = differences(before, self.config.dynamic(scope))
        # What the broker itself writes at its first start was asked for by nobody.
        is_asked_for = CALLER.get() is not THE_BROKER
        shadowed = tuple(without_secret(each) for each in stored if is_asked_for and each.name not in said)
        if not effective and not shadowed:
            return []
        kind = ChangedResource.BROKER if resource.name else ChangedResource.CLUSTER
        return [MadeChange(ChangeAction.CONFIG, kind, resource.name, effective, shadowed_values=shadowed)]


def without_secret(value: ValueChange) -> ValueChange:
    """``value``, or only the name of a secret."""
    key = BROKER_KEYS.get(value.name)
    return ValueChange(value.name, None, None) if key is None or key.sensitive else value
