"""The records of a running broker, for the admin app: fetched as a consumer does, appended as a producer does.

Reading goes through the replica manager's ordinary fetch, up to the high watermark; files are read and batches inflated
in worker threads, while the caller walks over what was fetched. The metadata log is read as if it were a topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import attrs
import trio

from broker_admin.views.cluster.messages import (
    AppendedMessage,
    BatchInfo,
    BatchOutcome,
    FetchedLogBatch,
    NewMessage,
    PartitionBatches,
    ReadablePartition,
    UnreadableBatch,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.records.batch import NO_PRODUCER_ID, BatchHeader, RecordBatch, build_batch, read_batches
from kafka_wire.records.record import NewRecord, Record
from trio_broker.broker_view.cluster.metadata_records import MetadataRecords, is_secret
from trio_broker.broker_view.cluster.own_formats import read_own_format, without_secrets
from trio_broker.common.murmur2 import partition_of
from trio_broker.common.request_phase import ignore_release
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC, is_internal_topic
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.list_offsets import find_offset
from trio_broker.handlers.produce import require_may_write
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.fetch_operation import FetchedPartition, FetchLimits, FetchTarget
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.runtime.disk import FileRegion
from trio_broker.storage.own_records import OWN_TOPICS
from trio_broker.storage.transaction_index import AbortedTransaction

PRODUCE_VERSION = 13
"""The version of Produce whose rules appended records follow: the newest."""

APPEND_TIMEOUT_SECONDS = 30.0
"""How long an append may wait for its sync: a producer's default ``request.timeout.ms``."""

LARGEST_BATCH_BYTES = 512 * 1024
"""Records of one partition are appended in batches of about this size, below the default ``message.max.bytes``."""

RECORD_OVERHEAD_BYTES = 40
"""What a record takes beside its key, value and headers, at the most; with what a batch takes for it alone."""


class LiveMessagesView:
    """The part of the admin app's view that is about records."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self.metadata_records = MetadataRecords(services)

    def contents_enabled(self) -> bool:
        return self.services.config.node.admin_messages_enabled

    # ---- reading ----

    def readable_partitions(self, topic: str) -> Sequence[ReadablePartition] | None:
        if topic == CLUSTER_METADATA_TOPIC:
            return [self.metadata_records.readable()]
        local = self.services.replicas.topics.get(topic)
        if local is None:
            return None
        return [readable_partition(local, index) for index in sorted({*local.partitions, *local.failures})]

    def takes_records(self, topic: str) -> bool:
        return topic in self.services.replicas.topics and not is_internal_topic(topic)

    async def offsets_at(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> Mapping[int, int]:
        if topic == CLUSTER_METADATA_TOPIC:
            return {index: await self.metadata_records.offset_at(timestamp_ms) for index in partitions}
        replicas, offsets = self.services.replicas, {}
        async for index in InTurns(partitions):
            partition = replicas.topic(topic).partition(index)
            end_offset = partition.high_watermark
            found = await run_steps(find_offset(partition, timestamp_ms, IsolationLevel.READ_UNCOMMITTED, replicas))
            offsets[index] = found.offset if found.offset >= 0 else end_offset
        return offsets

    async def fetch_batches(
        self, topic: str, positions: Mapping[int, int], *, max_bytes: int, max_wait_seconds: float = 0.0
    ) -> Sequence[PartitionBatches]:
        if topic == CLUSTER_METADATA_TOPIC:
            reads = [self.metadata_records.fetch(each, max_bytes, max_wait_seconds) for each in positions.values()]
            return [fetched_batches(topic, await read) for read in reads]
        replicas = self.services.replicas
        try:
            local = replicas.topic(topic)
        except KafkaError as error:
            return [PartitionBatches(index, 0, 0, no_batches, str(error)) for index in positions]
        targets = [
            FetchTarget(index, offset, max_bytes, local.partitions.get(index) or local.missing(index))
            for index, offset in positions.items()
        ]
        limits = FetchLimits(max_wait_seconds, 1 if max_wait_seconds else 0, max_bytes)
        results = await run_steps(replicas.fetch_steps(targets, limits, release_handler=ignore_release))
        return [
            fetched_batches(topic, result, outcomes_of(target, result))
            for target, result in zip(targets, results, strict=True)
        ]

    # ---- appending ----

    async def append(
        self, topic: str, messages: Sequence[NewMessage], *, dry_run: bool = False
    ) -> Sequence[AppendedMessage] | None:
        replicas = self.services.replicas
        local = replicas.topics.get(topic)
        if local is None:
            return None
        count = len(local.partitions) + len(local.failures)
        anywhere = self.services.runtime.random.randrange(count)
        indexes = [chosen_partition(message, count, anywhere) for message in messages]
        results: list[AppendedMessage | None] = [None] * len(messages)
        waiting: list[tuple[RequiredOffset, Sequence[int]]] = []
        now_ms = self.services.clock.now_ms()
        for index, numbers in batches_of(messages, indexes):
            await trio.lowlevel.checkpoint()
            try:
                require_may_write(local, None)
                partition = local.partition(index)
                if dry_run:
                    partition.require_leader()
                    fill(results, numbers, AppendedMessage(index, None))
                    continue
                build = partial(batch_of, [messages[number] for number in numbers], now_ms)
                batch = await self.services.runtime.workers.run(build)
                info = await run_steps(
                    replicas.appends.append_steps(partition, batch, produce_version=PRODUCE_VERSION, acks_all=True)
                )
            except KafkaError as error:
                fill(results, numbers, AppendedMessage(index, None, f"{error.code.name}: {error}"))
                continue
            waiting.append((RequiredOffset(partition, info.last_offset + 1), numbers))
            for offset, number in enumerate(numbers, info.first_offset):
                results[number] = AppendedMessage(index, offset)
        await self._wait(waiting, results)
        return [result for result in results if result is not None]

    async def _wait(
        self, waiting: Sequence[tuple[RequiredOffset, Sequence[int]]], results: list[AppendedMessage | None]
    ) -> None:
        """Wait until what was appended is safe, and put the error into the results of what is not."""
        if not waiting:
            return
        codes = await self.services.replicas.appends.wait_until_replicated(
            [awaited for awaited, _ in waiting], timeout_seconds=APPEND_TIMEOUT_SECONDS, release_handler=ignore_release
        )
        for (_, numbers), code in zip(waiting, codes, strict=True):
            if code is not ErrorCode.NONE:
                for number in numbers:
                    result = results[number]
                    assert result is not None
                    results[number] = attrs.evolve(result, error=code.name)


def no_batches() -> Iterator[FetchedLogBatch]:
    return iter(())


def readable_partition(local: LocalTopic, index: int) -> ReadablePartition:
    partition = local.partitions.get(index)
    failure = local.missing(index) if partition is None else partition.failure
    if partition is None or failure is not None:
        return ReadablePartition(index, 0, 0, 0, str(failure))
    return ReadablePartition(index, partition.log_start_offset, partition.high_watermark, partition.log.size_bytes)


@attrs.frozen
class TransactionOutcomes:
    """What has become of the transactions in a part of a log: which were aborted, by producer, and where those that are
    open began.
    """

    aborted: Mapping[int, Sequence[AbortedTransaction]] = attrs.field(factory=dict)
    open_since: Mapping[int, int] = attrs.field(factory=dict)

    def of(self, header: BatchHeader) -> BatchOutcome | None:
        if not header.is_transactional or header.is_control:
            return None
        if any(each.has(header) for each in self.aborted.get(header.producer_id, ())):
            return BatchOutcome.ABORTED
        first_offset = self.open_since.get(header.producer_id)
        if first_offset is not None and header.base_offset >= first_offset:
            return BatchOutcome.OPEN
        return BatchOutcome.COMMITTED


NO_TRANSACTIONS = TransactionOutcomes()


def outcomes_of(target: FetchTarget, result: FetchedPartition) -> TransactionOutcomes:
    """What is known of the transactions in the records that were fetched."""
    if not result.size_bytes or isinstance(target.found, KafkaError):
        return NO_TRANSACTIONS
    log = target.found.log
    aborted: dict[int, list[AbortedTransaction]] = defaultdict(list)
    for each in log.aborted_transactions(target.fetch_offset, target.fetch_offset + result.record_count):
        aborted[each.producer_id].append(each)
    undecided = log.producers.transactions.undecided
    return TransactionOutcomes(aborted, {producer_id: offset for offset, producer_id in undecided.items()})


def fetched_batches(
    topic: str, result: FetchedPartition, outcomes: TransactionOutcomes = NO_TRANSACTIONS
) -> PartitionBatches:
    error = None if result.error_code is ErrorCode.NONE else result.error_code.name
    walk = partial(batches_in, topic, result.records, result.high_watermark, outcomes)
    return PartitionBatches(result.index, result.size_bytes, result.high_watermark, walk, error)


def batches_in(
    topic: str, records: FileRegion | bytes, end_offset: int, outcomes: TransactionOutcomes
) -> Iterator[FetchedLogBatch]:
    """The batches of a region of a file. Blocks: runs in a worker thread."""
    data = records if isinstance(records, bytes) else records.read()
    try:
        for batch in read_batches(data):
            if batch.header.base_offset < end_offset:
                is_own = batch.header.is_control or topic in OWN_TOPICS
                own_format = partial(read_own_format, topic, batch.header.is_control) if is_own else None
                records_in = metadata_records_of if topic == CLUSTER_METADATA_TOPIC else records_of
                info = batch_info(batch.header, outcomes.of(batch.header))
                yield FetchedLogBatch(info, partial(records_in, batch), own_format)
    except KafkaError as error:
        raise UnreadableBatch(str(error)) from None


def records_of(batch: RecordBatch) -> Iterator[Record]:
    try:
        yield from batch.records()
    except KafkaError as error:
        raise UnreadableBatch(f"the batch at offset {batch.header.base_offset}: {error}") from None


def metadata_records_of(batch: RecordBatch) -> Iterator[Record]:
    return (without_secrets(record, is_secret) for record in records_of(batch))


def batch_info(header: BatchHeader, outcome: BatchOutcome | None = None) -> BatchInfo:
    has_producer = header.producer_id != NO_PRODUCER_ID
    return BatchInfo(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        size_bytes=header.size_bytes,
        codec=header.codec.name.lower(),
        timestamp_type=header.timestamp_type.name.lower(),
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id if has_producer else None,
        producer_epoch=header.producer_epoch if has_producer else None,
        base_sequence=header.base_sequence if has_producer else None,
        transactional=header.is_transactional,
        control=header.is_control,
        outcome=outcome,
    )


# ---- records to append ----


def fill(results: list[AppendedMessage | None], numbers: Sequence[int], outcome: AppendedMessage) -> None:
    for number in numbers:
        results[number] = outcome


def chosen_partition(message: NewMessage, partition_count: int, anywhere: int) -> int:
    """The partition of a record: its own, the one of its key, or the one that chance chose for all of them."""
    if message.partition is not None:
        return message.partition
    return anywhere if message.key is None else partition_of(message.key, partition_count)


def batches_of(messages: Sequence[NewMessage], indexes: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The numbers of the records that make a batch, with its partition; in one partition in their order."""
    open_batches: dict[int, list[int]] = defaultdict(list)
    sizes: dict[int, int] = defaultdict(int)
    for number, (message, index) in enumerate(zip(messages, indexes, strict=True)):
        size = message_bytes(message)
        if open_batches[index] and sizes[index] + size > LARGEST_BATCH_BYTES:
            yield index, open_batches.pop(index)
            sizes[index] = 0
        open_batches[index].append(number)
        sizes[index] += size
    yield from open_batches.items()


def message_bytes(message: NewMessage) -> int:
    headers = sum(3 * len(name) + len(value or b"") + 10 for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers + RECORD_OVERHEAD_BYTES


def batch_of(messages: Sequence[NewMessage], now_ms: int) -> memoryview:
    return memoryview(
        build_batch(
            NewRecord(
                now_ms if message.timestamp_ms is None else message.timestamp_ms,
                message.key,
                message.value,
                message.headers,
            )
            for message in messages
        )
    )
