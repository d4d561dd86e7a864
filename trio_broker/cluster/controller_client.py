"""What the other parts of a broker ask of the cluster's controller.

On one broker it is the ``Controller`` itself. Of several brokers it is a ``RemoteController``, which asks the one that
is the controller now; handlers ask the ``Controller`` of their own broker, since what comes to them has been sent on.

Source: Kafka's Controller interface and ForwardingManager (KIP-590).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import DelegationTokenRecord
from trio_broker.changes.change import Change
from trio_broker.cluster.alter_partition import PartitionAlteration
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.broker_liveness import BrokerHeartbeatReply
from trio_broker.cluster.client_quota_control import QuotaAlteration
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.configuration_control import ConfigChange
from trio_broker.cluster.delegation_token_control import NewToken
from trio_broker.cluster.directory_assignments import DirectoryAssignment
from trio_broker.cluster.features import FeatureUpdate
from trio_broker.cluster.leader_elections import ElectionType
from trio_broker.cluster.metadata_image import ConfigResource, PartitionImage, TopicImage
from trio_broker.cluster.partition_reassignments import Reassignment
from trio_broker.cluster.producer_ids import ProducerIdBlock
from trio_broker.cluster.quorum_info import QuorumInfo
from trio_broker.cluster.replication_control import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionChangeQuota,
    TopicTarget,
    unbounded,
)
from trio_broker.cluster.scram_control import ScramChange
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_acl import AclFilter, StandardAcl


@attrs.frozen
class ConfigOutcome:
    """The result of a request to change settings: for each resource itself or its error, in the order of the request,
    and what was recorded of the changes that had an effect."""

    results: Sequence[ConfigResource | KafkaError]
    changes: Sequence[Change]


class ControllerClient(Protocol):
    """Requests to the controller. Each is answered when its changes are durable and this broker follows them: a topic
    that was created can be produced to.

    Every method raises ``OSError`` if the metadata log could not be written; nothing has changed then. What is refused
    is one item's ``KafkaError`` in its place of the result, unless the request as a whole is refused, which raises it.
    """

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        """Create each topic; return it or its error, in the order of ``topics``."""
        ...

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[NewPartitions | KafkaError]:
        """Add partitions to each topic; results in the order of ``topics``."""
        ...

    async def delete_topics(
        self, targets: Sequence[TopicTarget], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        """Delete each topic; results, the topics as they were, in the order of ``targets``."""
        ...

    async def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> ConfigOutcome:
        """Change the settings of each resource, all of a resource's or none, in the order of ``changes``.

        Resources must differ from each other, and be no loggers, whose levels the broker itself sets.
        """
        ...

    async def alter_scram_credentials(self, changes: Sequence[ScramChange]) -> Mapping[str, KafkaError | None]:
        """Change the passwords of users for SCRAM; return each user's error, None for those that are changed."""
        ...

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """Set and remove quotas of each entity; results in the order of ``alterations``."""
        ...

    async def create_acls(self, acls: Sequence[StandardAcl]) -> list[StandardAcl | KafkaError]:
        """Create each access control entry that there is not yet; results in the order of ``acls``.

        Raises:
            KafkaError: INVALID_REQUEST: they are too many.
        """
        ...

    async def register_broker(self, node: NodeRegistration) -> int:
        """Register the start of one broker of several, which is fenced at first. Returns the broker epoch.

        Raises:
            KafkaError: as ``decide_broker_registration``.
        """
        ...

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        """Take note that a broker is alive, and return what it is to do.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        ...

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> list[PartitionImage | KafkaError]:
        """Give each partition the ISR that its leader wants; return it as it is then, or its error.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        ...

    async def assign_replicas(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[KafkaError | None]:
        """Take note of the log directories of a broker's replicas; results in the order of ``assignments``.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        ...

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """Return a block of ids that was never allocated before, for this broker."""
        ...


class ControllerApi(ControllerClient, Protocol):
    """What the handlers of the controller's own APIs ask beside that; ``apply_quota`` may refuse single topics."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, apply_quota: PartitionChangeQuota = unbounded
    ) -> list[CreatedTopic | KafkaError]:
        """As above."""
        ...

    async def create_partitions(
        self,
        topics: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        apply_quota: PartitionChangeQuota = unbounded,
    ) -> list[NewPartitions | KafkaError]:
        """As above."""
        ...

    async def delete_topics(
        self,
        targets: Sequence[TopicTarget],
        *,
        validate_only: bool = False,
        apply_quota: PartitionChangeQuota = unbounded,
    ) -> list[TopicImage | KafkaError]:
        """As above."""
        ...

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition]
    ) -> list[KafkaError | None]:
        """Elect a leader of each partition; results in the order of ``partitions``."""
        ...

    async def reassign_partitions(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> list[KafkaError | None]:
        """Assign each partition its replicas; results in the order of ``reassignments``."""
        ...

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Sequence[StandardAcl] | KafkaError]:
        """Remove the access control entries that each filter matches; they, in the order of ``filters``."""
        ...

    async def allocate_producer_ids_to(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Return a block of ids for a broker.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        ...

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Finalize all the levels asked for, or none.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION: one of them cannot be.
        """
        ...

    async def create_delegation_token(self, wanted: NewToken) -> DelegationTokenRecord:
        """Create a delegation token.

        Raises:
            KafkaError: as ``decide_new_token``.
        """
        ...

    async def renew_delegation_token(self, requester: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        """Prolong a delegation token; return its new end, in milliseconds since 1970.

        Raises:
            KafkaError: as ``decide_token_renewal``.
        """
        ...

    async def expire_delegation_token(self, requester: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        """End a delegation token, at once or later; return its new end.

        Raises:
            KafkaError: as ``decide_token_end``.
        """
        ...

    async def remove_expired_delegation_tokens(self) -> None:
        """Remove the delegation tokens that are over, while this broker is the controller."""
        ...

    async def unregister_broker(self, broker_id: int) -> None:
        """Take a broker that is gone for good out of the cluster.

        Raises:
            KafkaError: as ``decide_unregistration``.
        """
        ...

    async def lead(self) -> None:
        """Be the controller whenever no other broker is, until cancelled or ``retire``."""
        ...

    async def run_periodic_tasks(self) -> None:
        """Do what the controller does by itself, until cancelled."""
        ...

    def retire(self) -> None:
        """Be the controller no more, now or later: another broker is, before this one is reached by nobody."""
        ...

    async def describe_quorum(self) -> QuorumInfo:
        """Return who leads the metadata log, and how far it has come."""
        ...
