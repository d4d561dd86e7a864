"""One partition as its clients see it: a log, and how much of it is visible.

Four offsets describe it::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

Consumers read up to the high watermark, consumers of committed records up to the last stable offset (the first record
of the oldest open transaction). With one replica and ``log.durability=page-cache`` the high watermark is the log end;
with ``fsync`` it is the durable offset, so that no consumer reads what a power cut can take back.

Source: Kafka's Partition and UnifiedLog; KIP-101 for leader epochs, KIP-320 for fencing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.append_times import AppendTimes
from trio_broker.partition.delayed_operations import DelayedOperations
from trio_broker.partition.log_commands import InThread
from trio_broker.partition.remote_replicas import RemoteReplicas
from trio_broker.partition.state import NO_EPOCH, PartitionState
from trio_broker.partition.view import LogView, PublishedState
from trio_broker.partition.writer import PartitionWriter
from trio_broker.storage.log import Log
from trio_broker.storage.producer_state import ProducerStates


class Durability(enum.Enum):
    """When a record counts as safe; the values are those of ``log.durability``."""

    FSYNC = "fsync"
    PAGE_CACHE = "page-cache"


class Partition:
    """A partition that this broker leads or follows. ``state`` says which offsets it has; on frequent paths it is read
    directly.

    What changes it is a command of its ``writer``, which needs ``sync_soon`` and ``in_thread``; what waits for it is in
    ``delayed``. It is made without a leader.
    """

    def __init__(
        self,
        log: Log,
        remote: RemoteReplicas,
        *,
        high_watermark: int,
        durability: Durability,
        sync_soon: Callable[[PartitionWriter], None],
        in_thread: InThread,
    ) -> None:
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.log = log
        self.durability = durability
        state = PartitionState(
            remote,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=high_watermark,
            durable_offset=log.recovery_point,
            waits_for_disk=durability is Durability.FSYNC,
            transactions=log.producers.transactions,
            min_in_sync_replicas=log.config.min_insync_replicas,
        )
        self.delayed = DelayedOperations()
        self.state: PublishedState = state
        self.writer = PartitionWriter(log, state, self.delayed, sync_soon=sync_soon, in_thread=in_thread)
        # Since this start: what fetches were answered with. See ``broker_topic_stats``.
        self.fetched_bytes = self.fetched_records = 0

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} epoch {self.leader_epoch} high watermark {self.high_watermark}>"

    def configure(self, config: LogConfig, now: float) -> None:
        """Let the settings of the topic count from now on."""
        self.log.config = config
        self.writer.set_min_in_sync_replicas(config.min_insync_replicas, now)

    # ---- what is visible ------------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.state.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Everything before it is decided: committed, aborted, or never in a transaction."""
        return self.state.last_stable_offset

    @property
    def failure(self) -> KafkaError | None:
        """What every request gets once the partition was deleted or its disk failed."""
        return self.state.failure

    @property
    def append_times(self) -> AppendTimes:
        return self.writer.append_times

    @property
    def appended_bytes(self) -> int:
        """Bytes appended since this start, as the leader."""
        return self.writer.appended_bytes

    @property
    def appended_records(self) -> int:
        """Records appended since this start, as the leader."""
        return self.writer.appended_records

    @property
    def last_append_ms(self) -> int | None:
        """When something was appended last (wall clock), None if not since this start."""
        return self.writer.last_append_ms or None

    @property
    def has_other_replicas(self) -> bool:
        """Whether other brokers have, or are to have, what this one has."""
        return not self.state.is_leader or bool(self.writer.state.remote.replicas)

    def is_in_sync(self, broker_id: int) -> bool:
        """Whether the replica of a broker is in sync, as far as this leader knows."""
        return broker_id in self.writer.state.remote.state.isr

    @property
    def has_visible_epoch(self) -> bool:
        """Whether the high watermark has reached the beginning of this leader epoch. Before that, consumers may have
        seen more than it shows, from the leader before (KIP-207)."""
        return not self.has_other_replicas or self.high_watermark >= self.writer.state.remote.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """A leader's: the offset before which no replica that is alive has any record; -1 where one of them has not
        fetched yet."""
        return min(self.log_start_offset, self.writer.state.remote.least_log_start_offset())

    def fetch_upper_bound(self, isolation_level: IsolationLevel | None) -> int:
        """The offset that a consumer of this isolation level may read up to, exclusive; without one, a replica."""
        if isolation_level is None:
            return self.log_end_offset
        return self.last_stable_offset if isolation_level == IsolationLevel.READ_COMMITTED else self.high_watermark

    # ---- what its log knows beside records ------------------------------------------------------------------------

    @property
    def producers(self) -> ProducerStates:
        """The producers of its batches, and their transactions. To be asked each time: a log that is cut has others."""
        return self.log.producers

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch in which ``offset`` was or will be appended, None before the first epoch."""
        return self.log.epochs.epoch_for_offset(offset)

    # ---- who may use it -------------------------------------------------------------------------------------------

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuse when the partition cannot be used, or is not led here, or when the client believes in another leader
        epoch (KIP-320).

        Raises:
            KafkaError: the partition's failure; ``FENCED_LEADER_EPOCH`` for an older epoch, ``UNKNOWN_LEADER_EPOCH``
                for a newer one; ``NOT_LEADER_OR_FOLLOWER``.
        """
        self.require_epoch(current_leader_epoch)
        if not self.state.is_leader:
            raise KafkaError(f"{self.topic_partition} is not led here", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_epoch(self, current_leader_epoch: int) -> None:
        """As ``require_leader``, where a follower serves as well."""
        state = self.state
        state.require_online()
        leader_epoch = state.leader_epoch
        if current_leader_epoch in (NO_EPOCH, leader_epoch):
            return
        text = f"{self.topic_partition}: the client knows leader epoch {current_leader_epoch}, this is {leader_epoch}"
        if current_leader_epoch < leader_epoch:
            raise KafkaError(text, code=ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(text, code=ErrorCode.UNKNOWN_LEADER_EPOCH)

    def require_replica(self, broker_id: int, current_leader_epoch: int) -> None:
        """Refuse a broker that has no replica of the partition, as far as this leader knows.

        Raises:
            KafkaError: ``UNKNOWN_LEADER_EPOCH``: it may be news that this broker has not read yet, and the follower
                asks again; ``NOT_LEADER_OR_FOLLOWER`` where it does not say which epoch it believes in.
        """
        if broker_id not in self.writer.state.remote.replicas:
            text = f"{self.topic_partition}: broker {broker_id} has no replica in leader epoch {self.leader_epoch}"
            is_without = current_leader_epoch == NO_EPOCH
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_without else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(text, code=code)

    # ---- followers that consumers read from (KIP-392)

    def preferred_read_replica(self, brokers: Collection[int], fetch_offset: int) -> int | None:
        """The broker of ``brokers`` that a consumer had better ask for what follows ``fetch_offset``; None if none of
        them is known to have it, and where this broker does not lead."""
        return self.writer.state.remote.preferred_read_replica(brokers, fetch_offset)

    def high_watermark_sent(self, replica_id: int) -> int:
        """The last high watermark that a follower was sent, -1 if none was in this leadership."""
        return self.writer.state.remote.replicas[replica_id].sent_high_watermark

    def fail(self, failure: KafkaError) -> None:
        """Take the partition out of use for good; every waiting request gets the error now. The first failure
        stands."""
        self.writer.fail(failure)

    def view(self) -> LogView:
        """The partition as it is now, for what goes on in a worker thread or after a wait."""
        return LogView.of(self.state)

    # ---- deleting records -----------------------------------------------------------------------------------------

    def require_may_delete_before(self, offset: int) -> None:
        """Refuse to delete what is not yet safe, or what cannot be there.

        Raises:
            KafkaError: ``OFFSET_OUT_OF_RANGE``: that is beyond the high watermark.
        """
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                f"{self.topic_partition}: {offset} is not between 0 and the high watermark {self.high_watermark}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
