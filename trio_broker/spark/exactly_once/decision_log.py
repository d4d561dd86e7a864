"""The newest decision of each job, in a compacted topic: read and written by one driver at a time.

``take_over`` begins a transaction under the job's own transactional id, which fences every other driver of the job.
What is then read is what will be replaced: once another driver takes over, ``write`` fails. So the pair is a
compare-and-swap. It fails as well where the reading had missed a decision, as from a leader that was cut off from the
others and replaced: a record is written by the present leader alone, and its offset shows what lies before it.

Source: docs/decisions/0052.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

import attrs

from kafka_wire.config_resources import ConfigResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.list_offsets import SpecialTimestamp
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from trio_broker.client.configs import Resource, describe_configs
from trio_broker.client.errors import Refused
from trio_broker.client.fetcher import Fetcher
from trio_broker.client.offsets import find_offsets
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.record_producer import OpenBatch
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.topic_changes import ensure_topic
from trio_broker.client.topics import find_topics
from trio_broker.common.murmur2 import partition_of
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.exactly_once.decision import Decision

PARTITIONS: Final = 8
"""Of a topic that is created, and as many as are used: a driver that dies in the middle of a write holds up the jobs of
one partition only. Of a topic that has fewer the first one is used, so that a job is found when there are more."""

MOST_REPLICAS: Final = 3
"""Of a topic that is created, as of the brokers' own topics, whatever their default is: with a single replica the loss
of its broker would stop every job, and might lose what was decided. One of the replicas may be missing."""

CLEANUP_POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"

SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""Small, since only what lies in older segments is compacted."""

WRITE_TIMEOUT_MS: Final = 30_000
"""The timeout of the transaction that writes a decision: for so long a driver that dies can hold up others."""

FIRST_OFFSETS: Final = 256
"""How many of the newest offsets are read first; a job that commits often has its decision there."""

POLL_SECONDS: Final = 0.05
"""How often the last stable offset is asked for while another job's transaction holds it back."""


class DecisionLog:
    """The decisions of one job. Use it as a context manager, or call ``close``."""

    def __init__(self, settings: ProducerSettings, topic: str, transactional_id: str) -> None:
        self._settings = settings
        self._topic = topic
        self._id = transactional_id
        self._key = transactional_id.encode()
        # Decisions are written with short timeouts; those of the tasks' transactions are the user's.
        self._producer = BatchProducer(_own_settings(settings))
        self.transactions = self._producer.transaction_client
        self._end: int | None = None

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._producer.close()

    def take_over(self) -> Decision | None:
        """Fence the other drivers of the job and return its newest decision; None if it has none.

        Raises:
            ClientError: the cluster does not answer in time, or refuses.
            SparkJobError: the decision cannot be read, or the topic does not keep decisions.
        """
        first = TopicPartition(self._topic, 0)
        has_enough = self._partition_count() >= PARTITIONS
        self._partition = TopicPartition(self._topic, partition_of(self._key, PARTITIONS)) if has_enough else first
        self._transaction = self._producer.begin_transaction(self._id)
        # The first partition has what was decided while there were fewer.
        for each in dict.fromkeys((self._partition, first)):
            if (value := self._read_newest(each)) is not None:
                return Decision.from_bytes(value)
        return None

    def write(self, decision: Decision) -> None:
        """Replace the decision. Durable when this returns.

        Raises:
            ClientError: another driver has taken over, or whether it was written is not known.
            SparkJobError: ``take_over`` has not returned the newest decision.
        """
        batch = OpenBatch(now := time.time_ns() // 1_000_000, now)
        batch.append(NewRecord(now, self._key, decision.to_bytes(), ()))
        delivered = self._producer.deliver([batch.closed(self._partition, Codec.GZIP, None)])
        self._require_newest(delivered[self._partition])
        self.transactions.end(self._transaction, commit=True)
        # The same epoch goes on: the next write of this driver fails if another one has taken over in between.
        self._producer.continue_with_next_transaction()

    def _require_newest(self, offset: int) -> None:
        """Refuse the record at ``offset`` if there is a decision of the job behind what ``take_over`` has read."""
        end, self._end = self._end, None
        # From the second record on, only this driver's lie between.
        if end is not None and self._newest_between(self._partition, end, offset)[0]:
            raise SparkJobError(f"{self._partition} was read up to offset {end}, and a newer decision lies behind it")

    def _partition_count(self) -> int:
        client = self.transactions.client
        found = self.transactions.retry(lambda: find_topics(client, [self._topic])[self._topic])
        if isinstance(found, Refused):
            if found.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise found
            self._create_topic()
        self._require_compaction()
        return self._producer.partition_count(self._topic)

    def _require_compaction(self) -> None:
        """Refuse a topic that would lose the decision of a job that rests for longer than its retention."""
        client, topic = self.transactions.client, Resource(ConfigResourceType.TOPIC, self._topic)
        [found] = self.transactions.retry(lambda: describe_configs(client, [topic], [CLEANUP_POLICY])[topic])
        if found.value != COMPACT:
            raise SparkJobError(
                f"{topic} cannot keep what is decided about batches: its {CLEANUP_POLICY} is {found.value!r} and must"
                f" be {COMPACT!r}; change it, or name another topic ('commitTopic')"
            )

    def _create_topic(self) -> None:
        client = self.transactions.client
        replicas = min(MOST_REPLICAS, len(self.transactions.retry(client.brokers).nodes))
        configs = {
            CLEANUP_POLICY: COMPACT,
            "segment.bytes": str(SEGMENT_BYTES),
            "min.insync.replicas": str(max(1, replicas - 1)),
        }
        ensure_topic(client, self._topic, partitions=PARTITIONS, replication_factor=replicas, configs=configs)

    def _read_newest(self, partition: TopicPartition) -> bytes | None:
        """Return the newest value of the job's key, read backwards from the end; None if there is none."""
        start, end = self._readable_range(partition)
        if partition == self._partition:
            self._end = end
        count = FIRST_OFFSETS
        while start < end:
            begin = max(start, end - count)
            found, value = self._newest_between(partition, begin, end)
            if found:
                return value
            end, count = begin, count * 8
        return None

    def _readable_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset and the end, once no open transaction hides anything before the end."""
        client = self.transactions.client
        deadline = time.monotonic() + self._settings.max_block_ms / 1000

        def ask(timestamp: int, *, read_committed: bool) -> int:
            def one() -> int:
                found = find_offsets(client, [partition], timestamp, read_committed=read_committed)
                offset = found[partition]
                if isinstance(offset, Refused):
                    raise offset
                return offset

            return self.transactions.retry(one)

        end = ask(SpecialTimestamp.LATEST, read_committed=False)
        while ask(SpecialTimestamp.LATEST, read_committed=True) < end:
            if time.monotonic() > deadline:
                raise SparkJobError(f"{partition}: an open transaction hides the newest decisions")
            time.sleep(POLL_SECONDS)
        return ask(SpecialTimestamp.EARLIEST, read_committed=False), end

    def _newest_between(self, partition: TopicPartition, begin: int, end: int) -> tuple[bool, bytes | None]:
        """Return whether the job's key is between the offsets, and its newest value there."""
        client, found, value = self.transactions.client, False, None
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        position = begin
        lost: list[str] = []
        fetcher = Fetcher(client, {partition: begin}, read_committed=True, on_lost=lost.append)
        while position < end:
            # Nothing but the end itself ends the reading: a decision that was overlooked would be taken twice.
            if time.monotonic() > deadline:
                raise SparkJobError(f"{partition}: offsets {position} to {end} could not be read")
            for fetched in fetcher.fetch():
                for batch in fetched.batches():
                    for record in batch.records:
                        if record.key == self._key and record.offset < end:
                            found, value = True, record.value
                    position = batch.next_offset
            fetcher.positions[partition] = position = max(position, fetcher.positions[partition])
        return found, value


def _own_settings(settings: ProducerSettings) -> ProducerSettings:
    return attrs.evolve(
        settings,
        transaction_timeout_ms=min(WRITE_TIMEOUT_MS, settings.transaction_timeout_ms),
        # The topic has been created by now; this only has the producer wait until its broker knows of it.
        allow_auto_topic_creation=True,
    )
