"""The metadata image: the state of the cluster after the records of the metadata log up to an offset.

An image is a value and never changes, so it may be kept across an await. ``MetadataDelta`` makes the next one, which
shares what the records do not change.

Source: Kafka's MetadataImage, PartitionRegistration.merge for the epochs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from kafka_wire.config_resources import ConfigResourceType as ConfigResourceType
from kafka_wire.messages.metadata import NO_LEADER as NO_LEADER
from kafka_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from trio_broker.common.cluster_status import RegistrationState, is_under_replicated
from trio_broker.common.setting_names import DECOMMISSION
from trio_broker.config.entries import ConfigScope

T = TypeVar("T")

NO_RECORDS: Final[Mapping[Any, Any]] = {}

LEADER_UNCHANGED = -2
"""The leader in a PartitionChangeRecord that is about something else."""

RECOVERY_UNCHANGED = -1
"""The recovery state in a PartitionChangeRecord that is about something else."""

UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
"""Kafka's id for "no log directory was chosen yet" beside a replica."""

MIGRATING_DIRECTORY: Final = bytes(16)
"""Kafka's id for "not known" beside a replica that is older than ids of log directories."""


@attrs.frozen
class ConfigResource:
    """One holder of settings. The broker with the empty name stands for every broker."""

    type: ConfigResourceType
    name: str

    @classmethod
    def of_broker(cls, node_id: int) -> ConfigResource:
        """The holder of the settings of one broker."""
        return cls(ConfigResourceType.BROKER, str(node_id))


CLUSTER_DEFAULT = ConfigResource(ConfigResourceType.BROKER, "")
"""The holder of the dynamic defaults of the cluster."""


def is_decommission(value: str | None) -> bool:
    """Whether a value of ``DECOMMISSION`` asks for it."""
    return value is not None and value.lower() == "true"


@attrs.frozen
class PartitionImage:
    """Who has a partition and who leads it. Replicas stand in order of preference.

    Of a reassignment under way, ``adding_replicas`` and ``removing_replicas`` are those that come and go.
    ``eligible_leader_replicas`` have left the replicas in sync and have every committed record all the same, and
    ``last_known_elr`` is the last leader where nobody is eligible (KIP-966). ``leader_recovery_state`` is 1 after an
    unclean election. ``directories`` are the ids of the log directories beside ``replicas``.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    directories: tuple[bytes, ...] = attrs.field()

    @directories.default
    def _unassigned(self) -> tuple[bytes, ...]:
        return _beside(self.replicas, ())

    @classmethod
    def of(cls, record: PartitionRecord) -> PartitionImage:
        """The partition as ``record`` creates it."""
        return cls(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            adding_replicas=tuple(record.adding_replicas),
            removing_replicas=tuple(record.removing_replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
            directories=_beside(record.replicas, record.directories),
        )

    def directory_of(self, replica: int) -> bytes:
        """The id of the log directory of a replica, as far as it is known."""
        return directory_beside(self.replicas, self.directories, replica)

    def with_directory(self, replica: int, directory: bytes) -> tuple[bytes, ...]:
        """The ids of the log directories of all replicas, with the one of ``replica`` changed."""
        return tuple(
            directory if each == replica else known for each, known in zip(self.replicas, self.directories, strict=True)
        )

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas that stay: of a reassignment under way, its outcome (KIP-860)."""
        removing = self.removing_replicas
        return tuple(each for each in self.replicas if each not in removing) if removing else self.replicas

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return is_under_replicated(self.replicas, self.isr)

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)

    def changed_by(self, record: PartitionChangeRecord) -> PartitionImage:
        """Return the partition after ``record``; naming a leader raises the leader epoch even if it is the same one."""
        elected = record.leader != LEADER_UNCHANGED
        recovery = record.leader_recovery_state
        replicas = _replaced(self.replicas, record.replicas)
        return PartitionImage(
            leader=record.leader if elected else self.leader,
            # One more for an election. The records leave both epochs out (PartitionRegistration.merge).
            leader_epoch=self.leader_epoch + elected,
            partition_epoch=self.partition_epoch + 1,
            replicas=replicas,
            isr=_replaced(self.isr, record.isr),
            adding_replicas=_replaced(self.adding_replicas, record.adding_replicas),
            removing_replicas=_replaced(self.removing_replicas, record.removing_replicas),
            eligible_leader_replicas=_replaced(self.eligible_leader_replicas, record.eligible_leader_replicas),
            last_known_elr=_replaced(self.last_known_elr, record.last_known_elr),
            leader_recovery_state=self.leader_recovery_state if recovery == RECOVERY_UNCHANGED else recovery,
            directories=_beside(replicas, _replaced(self.directories, record.directories)),
        )


def directory_beside(replicas: Sequence[int], directories: Sequence[bytes], replica: int) -> bytes:
    """That of ``directories`` that is beside ``replica``; for another broker it is not assigned yet."""
    return dict(zip(replicas, directories, strict=True)).get(replica, UNASSIGNED_DIRECTORY)


def _replaced(before: tuple[T, ...], after: Sequence[T] | None) -> tuple[T, ...]:
    return before if after is None else tuple(after)


def _beside(replicas: Sequence[int], directories: Sequence[bytes]) -> tuple[bytes, ...]:
    """A directory for each replica: those that a record has said, unless it was written without any."""
    return tuple(directories) if len(directories) == len(replicas) else (UNASSIGNED_DIRECTORY,) * len(replicas)


@attrs.frozen
class TopicImage:
    """One topic: its partitions by index, and the settings it has of its own."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]
    configs: Mapping[str, str]


@attrs.frozen
class EndpointImage:
    """An address at which a broker can be reached; ``security_protocol`` is Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int


@attrs.frozen
class BrokerImage:
    """A broker as it registered. ``broker_epoch`` is the offset of that record and fences its earlier lives.

    ``features`` are the levels that it knows, lowest and highest; ``log_dirs`` the ids of its data directories that
    work, and ``cordoned_log_dirs`` those of them that take no new replicas, None where it has not said.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[EndpointImage, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    features: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, record: RegisterBrokerRecord) -> BrokerImage:
        """The broker as ``record`` registers it."""
        return cls(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                EndpointImage(item.name, item.host, item.port, item.security_protocol) for item in record.end_points
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            features={each.name: (each.min_supported_version, each.max_supported_version) for each in record.features},
        )

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def state(self) -> RegistrationState:
        """What it may do. One that was stopped under control is fenced, and was stopping up to that."""
        if self.fenced:
            return RegistrationState.FENCED
        return RegistrationState.STOPPING if self.in_controlled_shutdown else RegistrationState.ACTIVE

    def endpoint(self, listener_name: str) -> EndpointImage | None:
        """Where other brokers reach it by this listener; None if they do not."""
        return next((each for each in self.endpoints if each.name == listener_name and each.host), None)

    def has_online(self, directory: bytes) -> bool:
        """Whether a replica in the log directory of this id can be served, as far as is known."""
        is_known = directory not in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) and self.log_dirs
        return not is_known or directory in self.log_dirs

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> BrokerImage:
        """Return the broker after ``record``."""
        cordoned = record.cordoned_log_dirs
        return attrs.evolve(
            self,
            fenced=self.fenced if record.fenced == 0 else record.fenced > 0,
            # Kafka has no value for "no longer": only the next registration ends a controlled shutdown (KIP-841).
            in_controlled_shutdown=self.in_controlled_shutdown or record.in_controlled_shutdown > 0,
            log_dirs=tuple(record.log_dirs) or self.log_dirs,
            cordoned_log_dirs=self.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )


@attrs.frozen(kw_only=True, eq=False)
class MetadataImage:
    """The state of the cluster after the record at ``offset``, which was written in ``epoch`` of the metadata log.

    Its containers are ordinary dictionaries, typed as what nobody may change.
    """

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, TopicImage] = attrs.field(factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = attrs.field(factory=dict)
    brokers: Mapping[int, BrokerImage] = attrs.field(factory=dict)
    features: Mapping[str, int] = attrs.field(factory=dict)
    """Finalized levels. Level 0 is kept, unlike in Kafka: it tells a feature that was switched off, which has to stay
    so, from one that a newer broker finds without a level."""
    configs_by_resource: Mapping[ConfigResource, Mapping[str, str]] = attrs.field(factory=dict, repr=False)
    """Only resources that have settings of their own."""
    keyed_records: Mapping[type[Any], Mapping[Hashable, Any]] = attrs.field(factory=dict)
    """Records that are their own image, by kind and key (``keyed_records.py``)."""
    next_producer_id: int = 0
    """The first id that no broker was given yet."""
    partition_count: int = 0
    """Partitions of all topics."""

    @property
    def has_one_broker(self) -> bool:
        """Whether the only broker registered is a cluster alone."""
        return len(self.brokers) == 1

    @property
    def leaving_brokers(self) -> frozenset[int]:
        """The brokers that are being decommissioned, which get no new replicas."""
        return frozenset(
            broker_id
            for broker_id in self.brokers
            if is_decommission(self.configs(ConfigResource.of_broker(broker_id)).get(DECOMMISSION))
        )

    @property
    def active_brokers(self) -> frozenset[int]:
        """The brokers that may lead partitions and be in sync."""
        return frozenset(broker.broker_id for broker in self.brokers.values() if broker.is_active)

    def can_lead(self, broker_id: int, directory: bytes) -> bool:
        """Whether a broker is active, and its replica in the log directory of this id can be served."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker.has_online(directory)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition; None if there is no such one."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def config_layers(self, node_id: int) -> Mapping[ConfigScope, Mapping[str, str]]:
        """What is set for the cluster and for one of its brokers, by which its controller decides."""
        broker = ConfigResource.of_broker(node_id)
        return {ConfigScope.CLUSTER: self.configs(CLUSTER_DEFAULT), ConfigScope.BROKER: self.configs(broker)}

    def records_of(self, kind: type[T]) -> Mapping[Any, T]:
        """The keyed records of one kind; the same object as long as none of them has changed."""
        return self.keyed_records.get(kind, NO_RECORDS)

    def configs(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return what is set for ``resource`` itself."""
        return self.configs_by_resource.get(resource, {})
