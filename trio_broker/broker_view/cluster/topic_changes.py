"""Changes of topics for the admin app: by the controller and the replica manager, as Kafka's clients have them made."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import lcm
from operator import methodcaller
from typing import TypeVar
from urllib.parse import quote

import attrs

from broker_admin.views.cluster.peers import PeerUnavailable
from broker_admin.views.cluster.topics import (
    AddedPartitions,
    ChangedTopicConfigs,
    PurgedPartition,
    PurgedTopic,
    PurgeTarget,
    TopicConfigChange,
    TopicCreation,
    TopicDeletion,
    TopicRefused,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_topics import BROKER_DEFAULT
from kafka_wire.primitives import uuid_text
from trio_broker.broker_view.cluster.config import alteration
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.broker_view.cluster.remote_records import RemoteRecords
from trio_broker.broker_view.cluster.topics import LiveTopicsView
from trio_broker.changes.audit_context import CALLER, THE_BROKER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.cluster.configuration_control import ResourceAlterations
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, TopicImage
from trio_broker.cluster.replication_control import NewPartitions, NewTopic, TopicTarget
from trio_broker.common.amounts import counted
from trio_broker.config.errors import ConfigError
from trio_broker.config.resource_config import topic_entries
from trio_broker.handlers.support.record_deletion import deletable_partition
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.partition import Partition
from trio_broker.partition.record_deletion import HIGH_WATERMARK
from trio_broker.storage.time_index import TimestampOffset

T = TypeVar("T")

FIELDS: Mapping[ErrorCode, str] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "name",
    ErrorCode.TOPIC_ALREADY_EXISTS: "name",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.POLICY_VIOLATION: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replication_factor",
}
"""Which part of a request an error is about."""


class LiveTopicChangesView:
    """The part of the admin app's view that changes topics."""

    def __init__(
        self,
        services: BrokerServices,
        peers: LivePeersView,
        topics: LiveTopicsView,
    ) -> None:
        self.services = services
        self.peers = peers
        self.topics = topics

    async def create(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str],
        *, dry_run: bool, changed_by: str,
    ) -> TopicCreation:  # fmt: skip
        wanted = NewTopic(
            name=name,
            num_partitions=BROKER_DEFAULT if partitions is None else partitions,
            replication_factor=BROKER_DEFAULT if replication_factor is None else replication_factor,
            configs=configs,
        )
        with called_by(changed_by):
            outcome = await only_outcome(
                self.services.controller_client.create_topics([wanted], validate_only=dry_run), refused
            )
        return TopicCreation(
            dry_run=dry_run,
            name=outcome.name,
            topic_id=None if dry_run else uuid_text(outcome.topic_id),
            partitions=outcome.num_partitions,
            replication_factor=outcome.replication_factor,
            configs=dict(outcome.configs),
        )

    async def delete(self, name: str, *, dry_run: bool, changed_by: str) -> TopicDeletion:
        groups = await self.topics.consumers(name) or ()
        known = await self.topics.get(name)
        local = self.services.replicas.topics.get(name)
        partitions = list(local.partitions.values()) if local is not None else []
        # Before the deletion, which makes room.
        delay_ms = await self.services.replicas.log_maintenance.removal_delay_ms([each.log for each in partitions])
        with called_by(changed_by):
            outcome = await only_outcome(
                self.services.controller_client.delete_topics([TopicTarget(name)], validate_only=dry_run), refused
            )
        return TopicDeletion(
            dry_run=dry_run,
            name=name,
            partitions=len(outcome.partitions),
            record_count=known.summary.record_count if known is not None else 0,
            size_bytes=known.summary.size_bytes if known is not None else 0,
            groups=tuple(each.group_id for each in groups),
            file_delete_delay_ms=delay_ms,
        )

    async def add_partitions(self, name: str, count: int, *, dry_run: bool, changed_by: str) -> AddedPartitions:
        before = len(self._existing(name).partitions)
        wanted = NewPartitions(name=name, count=count)
        with called_by(changed_by):
            await only_outcome(
                self.services.controller_client.create_partitions([wanted], validate_only=dry_run), refused
            )
        return AddedPartitions(
            dry_run=dry_run,
            partitions_before=before,
            partitions=count,
            # A hash stays where it leaves the same rest by both numbers: one rest in each multiple of them.
            keys_that_stay_ratio=before / lcm(before, count),
        )

    async def purge(
        self, name: str, target: PurgeTarget, partitions: Collection[int], *, dry_run: bool, changed_by: str
    ) -> PurgedTopic:
        existing = self._existing(name)
        wanted = sorted(partitions or existing.partitions)
        elsewhere = {each.index: each.leader for each in RemoteRecords(self.services).led_elsewhere(name, wanted)}
        # All of them are checked before the first is changed.
        others = [] if dry_run else await self._purge_elsewhere(name, target, elsewhere, dry_run=True)
        here = [index for index in wanted if index not in elsewhere]
        own = await self._purge_here(name, target, here, dry_run=dry_run, changed_by=changed_by)
        others = await self._purge_elsewhere(name, target, elsewhere, dry_run=dry_run)
        results = sorted((each for part in (own, *others) for each in part.partitions), key=lambda each: each.partition)
        return attrs.evolve(own, record_count=sum(each.record_count for each in results), partitions=tuple(results))

    async def _purge_elsewhere(
        self, name: str, target: PurgeTarget, leaders: Mapping[int, int], *, dry_run: bool
    ) -> list[PurgedTopic]:
        """Have other brokers purge what they lead.

        Raises:
            TopicRefused: one of them refuses, or does not answer.
        """
        purged = []
        path = f"/api/v1/topics/{quote(name, safe='')}:purge?dry_run={str(dry_run).lower()}"
        for leader in sorted(set(leaders.values())):
            wanted = [index for index, leading in leaders.items() if leading == leader]
            named = {key: value for key, value in attrs.asdict(target).items() if value not in (None, False)}
            body = json.dumps(named | {"partitions": wanted}).encode()
            try:
                purged.append(await self.peers.fetch(leader, path, PurgedTopic, method="POST", body=body))
            except PeerUnavailable as error:
                text = f"broker {leader}, which leads {counted(len(wanted), 'partition')} of it: {error}"
                raise TopicRefused(ErrorCode.LEADER_NOT_AVAILABLE.name, text) from error
        return purged

    async def _purge_here(
        self, name: str, target: PurgeTarget, partitions: Collection[int], *, dry_run: bool, changed_by: str
    ) -> PurgedTopic:
        """As ``purge``, of what this broker leads."""
        replicas = self.services.replicas
        offsets: dict[Partition, int] = {}
        starts: dict[Partition, int] = {}
        outcomes: dict[Partition, int | KafkaError] = {}
        for index in partitions:
            try:
                partition = deletable_partition(self.services, name, index)
                offsets[partition] = await self._offset_of(partition, target)
                starts[partition] = partition.log_start_offset
                outcomes[partition] = replicas.record_deletion.require_deletable(partition, offsets[partition])
            except KafkaError as error:
                raise refused(error, partition=index) from error
        # Before the deletion, which makes room.
        delay_ms = await replicas.log_maintenance.removal_delay_ms([partition.log for partition in offsets])
        if not dry_run:
            with called_by(changed_by):
                outcomes = await replicas.record_deletion.delete(offsets)
        results = tuple(purged_partition(each, starts[each], outcome) for each, outcome in outcomes.items())
        return PurgedTopic(
            dry_run=dry_run,
            record_count=sum(each.record_count for each in results),
            file_delete_delay_ms=delay_ms,
            partitions=results,
        )

    async def _offset_of(self, partition: Partition, target: PurgeTarget) -> int:
        """Where ``target`` lies in one partition.

        Raises:
            KafkaError: the partition cannot be used.
        """
        partition.require_leader()
        if target.to_offset is not None:
            return target.to_offset
        if target.to_timestamp_ms is not None:
            look = methodcaller("offset_for_timestamp", target.to_timestamp_ms, partition.high_watermark)
            found: TimestampOffset | None = await self.services.replicas.run_in_thread(partition, look)
            if found is not None:
                return found.offset
        return HIGH_WATERMARK

    async def change_configs(
        self, name: str, changes: Mapping[str, str | None], *, dry_run: bool, changed_by: str
    ) -> ChangedTopicConfigs:
        before = dict(self._existing(name).configs)
        wanted = ResourceAlterations(
            ConfigResource(ConfigResourceType.TOPIC, name),
            tuple(alteration(key, value) for key, value in changes.items()),
        )
        with called_by(changed_by):
            outcome = await self.services.controller_client.change_configs([wanted], validate_only=dry_run)
        [result] = outcome.results
        if isinstance(result, KafkaError):
            raise refused(result)
        after = {key: value for key, value in {**before, **changes}.items() if value is not None}
        return ChangedTopicConfigs(
            dry_run=dry_run,
            changes=tuple(
                TopicConfigChange(key=key, old=before.get(key), new=value)
                for key, value in changes.items()
                if before.get(key) != value
            ),
            configs={
                entry.name: entry for entry in topic_entries(after, self.services.config) if entry.name in changes
            },
        )

    def _existing(self, name: str) -> TopicImage:
        topic = self.services.metadata_cache.image.topics.get(name)
        if topic is None:
            raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, f"there is no topic {name!r}")
        return topic


@contextmanager
def called_by(changed_by: str) -> Iterator[None]:
    """Have what is changed inside the block recorded with the client that asked for it over HTTP."""
    if CALLER.get() is not THE_BROKER:
        yield  # the request has said more of its client
        return
    token = CALLER.set(ChangeOrigin(ChangeChannel.HTTP, changed_by))
    try:
        yield
    finally:
        CALLER.reset(token)


async def only_outcome(request: Awaitable[Sequence[T | KafkaError]], refused: Callable[[KafkaError], Exception]) -> T:
    """The outcome of a request for one change.

    Raises:
        Exception: what ``refused`` makes of its error, or of that of the request as a whole.
    """
    try:
        [outcome] = await request
    except KafkaError as error:
        raise refused(error) from error
    if isinstance(outcome, KafkaError):
        raise refused(outcome)
    return outcome


def purged_partition(partition: Partition, start_before: int, outcome: int | KafkaError) -> PurgedPartition:
    """What became of one partition."""
    error = str(outcome) if isinstance(outcome, KafkaError) else None
    start = partition.log_start_offset if isinstance(outcome, KafkaError) else outcome
    return PurgedPartition(
        partition=partition.topic_partition.partition,
        log_start_offset_before=start_before,
        log_start_offset=start,
        record_count=max(start - start_before, 0),
        error=error,
    )


def refused(error: KafkaError, *, partition: int | None = None) -> TopicRefused:
    """Why the controller or the replica manager refuses, for the admin app."""
    if isinstance(error, ConfigError):
        return TopicRefused(error.code.name, str(error), field="configs", key=error.key)
    if partition is not None:
        field = "to_offset" if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else "partitions"
        return TopicRefused(error.code.name, str(error), field=field)
    return TopicRefused(error.code.name, str(error), field=FIELDS.get(error.code))
