"""Ends transactions in partitions of this broker: one marker in each, and waits until all are durable.

In a partition of ``__consumer_offsets`` the marker goes through the shard of the group coordinator, whose pending
offsets it decides; in any other it is a batch for the log alone.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.transactions import inter_broker_sender
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.transaction_end import TransactionEnd


@attrs.frozen
class MarkerWriter:
    """See the head of the file. The ``MarkerChannel`` of a ``TransactionMarkerChannelManager`` to the broker itself."""

    replicas: ReplicaManager
    groups: GroupCoordinator

    async def write(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> dict[TopicPartition, ErrorCode]:
        """``write_steps`` in the calling task."""
        return await run_steps(self.write_steps(end, partitions, release_handler))

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        """See ``MarkerChannel``."""
        codes: dict[TopicPartition, ErrorCode] = {}
        idle: list[Partition] = []
        busy: list[Partition] = []
        budget = YieldBudget()
        for topic_partition in partitions:
            if budget.is_spent:
                yield budget.renewed
            try:
                partition = self._partition(topic_partition)
            except KafkaError as error:
                codes[topic_partition] = error.code
            else:
                (busy if partition.writer.is_busy else idle).append(partition)
        # The busy ones last, so that no other waits for them.
        found = idle + busy
        yield from self.replicas.appends.ready_steps(found, release_handler)
        awaited: dict[TopicPartition, RequiredOffset] = {}
        for partition in found:
            topic_partition = partition.topic_partition
            # Not after the last one: what ends here needs no task.
            if budget.is_spent:
                yield budget.renewed
            try:
                awaited[topic_partition] = RequiredOffset(partition, (yield from self._append(partition, end)))
            except KafkaError as error:
                codes[topic_partition] = error.code
        durable = yield from self.replicas.appends.replication_steps(
            list(awaited.values()),
            timeout_seconds=inter_broker_sender.REQUEST_TIMEOUT_SECONDS,
            release_handler=release_handler,
        )
        return codes | dict(zip(awaited, durable, strict=True))

    def _partition(self, topic_partition: TopicPartition) -> Partition:
        return self.replicas.topic(topic_partition.topic).partition(topic_partition.partition)

    def _append(self, partition: Partition, end: TransactionEnd) -> Steps[int]:
        """Append the marker, and return the offset after it.

        Raises:
            KafkaError: nothing was appended.
        """
        topic = partition.topic_partition.topic
        if topic == TRANSACTION_STATE_TOPIC:
            # No producer writes there, and each start would meet a marker that is none of its records.
            raise KafkaError(f"{topic} has no transactions", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        if topic == CONSUMER_OFFSETS_TOPIC:
            return self.groups.end_transaction(partition.topic_partition.partition, end)
        return (yield from self.replicas.appends.append_marker_steps(partition, end))
