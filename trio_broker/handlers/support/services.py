"""The services of a running broker that handlers use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import attrs

from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.broker_clients import BrokerClients
from trio_broker.cluster.broker_lifecycle_manager import BrokerLifecycleManager
from trio_broker.cluster.cluster_events import ClusterEvents
from trio_broker.cluster.config_trials import ConfigTrials
from trio_broker.cluster.controller_channel import ControllerChannel
from trio_broker.cluster.controller_client import ControllerApi, ControllerClient
from trio_broker.cluster.log_dir_failure_handler import LogDirFailureHandler
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_faults import MetadataFaults
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_store import MetadataStore
from trio_broker.cluster.producer_ids import ProducerIds
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.marker_writer import MarkerWriter
from trio_broker.coordinator.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from trio_broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from trio_broker.handlers.support.audit_log import AuditLog
from trio_broker.handlers.support.metadata_answers import MetadataAnswers
from trio_broker.network.request_channel import QueuedRequest
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.quota.quota_managers import QuotaManagers
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.runtime import Runtime
from trio_broker.security.authorizer import Authorizer

log = logging.getLogger(__name__)


@attrs.frozen
class NodeInfo:
    """This node: its id, its cluster, and the advertised endpoints of its listeners.

    ``advertised`` maps a listener's name to the endpoint that its clients receive. One without a host stands for the
    address that the client has connected to: the commonest problem with Kafka in containers is a broker that advertises
    an address which its clients cannot reach, and they can reach the one that they have just used.
    """

    node_id: int
    cluster_id: str
    rack: str | None
    advertised: Mapping[str, Endpoint]
    inter_broker_listener: str | None = None
    """The listener that other brokers use; None on a broker alone."""


@attrs.define
class BrokerServices:
    """The services that handlers use. ``throttled_log`` is for warnings that clients can cause at any rate."""

    node: NodeInfo
    config: BrokerConfig
    runtime: Runtime
    controller: ControllerApi
    metadata_cache: MetadataCache
    metadata_log: MetadataLog
    changes: ChangeLog
    replicas: ReplicaManager
    log_dir_failures: LogDirFailureHandler
    producer_ids: ProducerIds
    groups: GroupCoordinator
    markers: MarkerWriter
    transactions: TransactionCoordinator
    transaction_verification: AddPartitionsToTxnManager
    trials: ConfigTrials
    controller_client: ControllerClient = attrs.field(
        default=attrs.Factory(lambda services: services.controller, takes_self=True)
    )
    """What every broker may ask of the controller, wherever that is; ``controller`` is this broker's own."""
    controller_channel: ControllerChannel | None = None
    """The way to the controller; None on a broker alone, which is it."""
    metadata_faults: MetadataFaults = attrs.field(factory=MetadataFaults)
    """What this broker could not follow."""
    quotas: QuotaManagers = attrs.field(
        default=attrs.Factory(
            lambda services: QuotaManagers(services.runtime.clock, services.config.quota), takes_self=True
        )
    )
    """The quotas of clients."""
    lifecycle: BrokerLifecycleManager | None = None
    """The life of this broker among several; None on a broker alone."""
    broker_clients: BrokerClients | None = None
    """The clients of the other brokers, for what people ask of them here; None on a broker alone."""
    cluster_events: ClusterEvents | None = None
    """What happens in the cluster; None on a broker alone."""
    metadata_store: MetadataStore | None = None
    """Where several brokers keep their metadata; None on a broker alone."""
    authorizer: Authorizer | None = None
    """What decides who may do what; None lets everybody do everything."""
    undeclared: str = attrs.field(init=False, default="")
    """Why what is declared is not all there; empty once it is."""
    answer_admin: Callable[[bytes], Awaitable[bytes]] | None = attrs.field(init=False, default=None)
    """Answers an HTTP request that another broker has passed on; None without an admin app."""
    answer_request: Callable[[QueuedRequest], Awaitable[bytes]] = attrs.field(init=False)
    """Answers a request that came inside another one, set by the Dispatcher."""
    metadata_answers: MetadataAnswers = attrs.field(init=False, factory=MetadataAnswers)
    audit_log: AuditLog = attrs.field(
        init=False, default=attrs.Factory(lambda services: AuditLog(services.clock), takes_self=True)
    )
    throttled_log: LogThrottle = attrs.field(
        init=False, default=attrs.Factory(lambda services: LogThrottle(log, services.clock), takes_self=True)
    )

    @property
    def clock(self) -> Clock:
        """The time, of which alone handlers ask the runtime often."""
        return self.runtime.clock
