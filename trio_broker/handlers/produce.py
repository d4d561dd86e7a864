"""Produce: append record batches to the partitions this broker leads.

Every partition has its own result: an error of one does not affect the others. With acks=1 the answer is sent after the
write, with acks=all when the high watermark has passed the batch (in page-cache mode with one replica that is at once),
with acks=0 never: an error then closes the connection, since the client reads no response.

The common request holds one small batch, and thousands of them a second determine the cost of the broker; so there is
no checkpoint on the path of a batch from here to the file.

Source: Kafka's KafkaApis.handleProduceRequest and ReplicaManager.appendRecords.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

import attrs

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.headers import RequestHeader
from kafka_wire.messages.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    BY_ID_SINCE_VERSION,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_wire.records.batch import ATTRIBUTES_LOW_BYTE, CODEC_MASK, PRODUCER_ID_POSITION, TRANSACTIONAL_BIT
from kafka_wire.records.errors import InvalidRecord
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_names import is_internal_topic
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.partitions import NOT_HERE, CurrentLeaders
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import (
    CLUSTER_ACTION,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    ForEach,
    InHandler,
    for_transactional_id,
    its_name_or_id,
)
from trio_broker.handlers.support.transactional_produce import NotInTransaction, TransactionalProduce
from trio_broker.network.client_activity import NOT_IDEMPOTENT, ProducerActivity
from trio_broker.network.errors import CloseConnection
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.writer import AppendGuard
from trio_broker.storage.errors import RecordValidationError

INTERNAL_WRITER = "__admin_client"
"""The client id that produces to internal topics on purpose; Kafka's own tools use it."""

NO_RECORDS = memoryview(b"")

UNNAMED_LEADER = LeaderIdAndEpoch()
"""The default of every partition's answer; never changed."""

SUCCESS = struct.Struct(">ihqqq")
"""The numbers of a partition in a response: index, error code, base offset, log append time and log start offset."""

LOG_START_OFFSET_SINCE_VERSION = 5

NAMES_LEADERS_SINCE_VERSION = 10

LED_ELSEWHERE = NOT_HERE | {ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""The refusals of a partition that another broker may lead."""

TOPICS_REMEMBERED = 1024
"""Topics, each in the versions that its producers speak, whose answers are made of two remembered pieces; some 200
bytes each."""

WITHOUT_LOG_START_OFFSET = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""The refusals beside which Kafka answers -1; beside all others, such as a sequence out of order, a producer gets the
log start offset and sees whether its records were deleted (ReplicaManager.appendToLocalLog)."""


def error_response(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """Every partition has the error.

    Raises:
        CloseConnection: acks=0, so no response may be sent.
    """
    if request.acks == ACKS_NONE:
        raise CloseConnection(f"produce with acks=0 failed: {error}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[failed(partition.index, error) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def failed(index: int, error: KafkaError, log_start_offset: int = -1) -> PartitionProduceResponse:
    """The answer for one partition that refused its batch (KIP-467: from version 8 with the reason and the bad
    records)."""
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        record_errors=record_errors(error),
        error_message=str(error) or None,
    )


def record_errors(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """The records that are to blame; none where the whole batch is.

    A producer fails these with their messages, and all others of the batch with the news that it held bad records.
    """
    if isinstance(error, RecordValidationError):
        return [
            BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
            for each in error.record_errors
        ]
    if isinstance(error, InvalidRecord) and error.record_index is not None:
        return [BatchIndexAndErrorMessage(batch_index=error.record_index, batch_index_error_message=str(error))]
    return []


@attrs.frozen
class WaitingResponse:
    """An appended batch whose answer waits for the high watermark (acks=all)."""

    response: PartitionProduceResponse
    awaited: RequiredOffset


@attrs.define
class ProduceOperation:
    """One Produce request under way."""

    request: ProduceRequest
    header: RequestHeader
    replicas: ReplicaManager
    producer: ProducerActivity
    leaders: CurrentLeaders
    transaction: TransactionalProduce | None = None
    waiting: list[WaitingResponse] = attrs.Factory(list)
    has_begun_epochs: bool = False
    """Whether the leader epochs of its partitions are written down, as far as they could be."""

    def find_topic(self, topic: TopicProduceData) -> LocalTopic | KafkaError:
        """The topic, by name or by id (KIP-516) as the version has it, or why nothing may be written to it."""
        try:
            if self.header.api_version >= BY_ID_SINCE_VERSION:
                local = self.replicas.topic_by_id(topic.topic_id)
            else:
                local = self.replicas.topic(topic.name)
            require_may_write(local, self.leaders.context)
        except KafkaError as error:
            # Without its traceback, whose frames hold the request, and would be in a cycle with what the caller keeps.
            return error.with_traceback(None)
        return local

    def append(
        self, local: LocalTopic, data: PartitionProduceData, release_handler: ReleaseHandler
    ) -> Steps[PartitionProduceResponse]:
        """Append one partition's batch, and note the offset that acks=all has to wait for."""
        records = NO_RECORDS if data.records is None else data.records
        try:
            partition = local.partition(data.index)
        except KafkaError as error:
            return failed(data.index, error)
        if partition.writer.needs_epoch_entry and not self.has_begun_epochs:
            self.has_begun_epochs = True
            yield from self.replicas.appends.ready_steps(self._partitions(), release_handler)
        try:
            is_acks_all = self.request.acks == ACKS_ALL
            guard = None
            # As ``is_transactional``, without a call: every batch of every client is asked.
            if len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
                guard = self._guard(partition, records)
            info = yield from self.replicas.appends.append_steps(
                partition,
                records,
                produce_version=self.header.api_version,
                acks_all=is_acks_all,
                release_handler=release_handler,
                guard=guard,
            )
            producer = self.producer
            producer.records += info.last_offset - info.first_offset + 1
            producer.bytes += len(records)
            kind = records[ATTRIBUTES_LOW_BYTE] & CODEC_MASK | records[PRODUCER_ID_POSITION] & NOT_IDEMPOTENT
            producer.batches_by_kind[kind] += 1
        except KafkaError as error:
            # Behind a worker thread its frames and the refusal refer to each other, and hold the batch.
            error.__traceback__ = None
            knows_no_offset = error.code in WITHOUT_LOG_START_OFFSET or isinstance(error, NotInTransaction)
            return failed(data.index, error, -1 if knows_no_offset else partition.log_start_offset)
        response = PartitionProduceResponse(
            index=data.index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
            current_leader=UNNAMED_LEADER,
        )
        # Often the high watermark has passed the batch already; such a request never waits, and keeps its handler slot.
        if is_acks_all and partition.state.high_watermark <= info.last_offset:
            self.waiting.append(WaitingResponse(response, RequiredOffset(partition, info.last_offset + 1)))
        return response

    def _partitions(self) -> Iterator[Partition]:
        """The partitions of the request that are here, and may be written to."""
        for topic in self.request.topic_data:
            if not isinstance(local := self.find_topic(topic), KafkaError):
                for data in topic.partition_data:
                    if (partition := local.partitions.get(data.index)) is not None:
                        yield partition

    def _guard(self, partition: Partition, records: memoryview) -> AppendGuard:
        """What lets a transactional batch in.

        Raises:
            NotInTransaction: ``TRANSACTIONAL_ID_AUTHORIZATION_FAILED``: the request has no transactional id, which is
                nobody's to write with.
        """
        if self.transaction is None:
            text = f"{partition.topic_partition}: a transactional batch, and no transactional id"
            raise NotInTransaction(text, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return self.transaction.guard(partition, records)

    def wait(self, release_handler: ReleaseHandler) -> Steps[None]:
        """Wait until the high watermark has passed every batch; those that time out get REQUEST_TIMED_OUT."""
        codes = yield from self.replicas.appends.replication_steps(
            [waiting.awaited for waiting in self.waiting],
            timeout_seconds=self.request.timeout_ms / 1000,
            release_handler=release_handler,
        )
        for waiting, code in zip(self.waiting, codes, strict=True):
            waiting.response.error_code = code
            if code:
                partition = waiting.awaited.partition
                topic, response = partition.topic_partition.topic, waiting.response
                self.leaders.name_in(response, topic, partition.topic_id, response.index)


def require_may_write(local: LocalTopic, context: Context | None) -> None:
    """Refuse to write to an internal topic. Without a context a person writes, who may not.

    Raises:
        KafkaError: ``INVALID_TOPIC_EXCEPTION``.
    """
    # The client id is ``internalTopicsAllowed`` of KafkaApis: it prevents accidents. The right prevents attacks.
    if not is_internal_topic(local.name):
        return
    if context is None or context.client_id != INTERNAL_WRITER or not context.may(CLUSTER_ACTION):
        raise KafkaError(f"{local.name} is internal", code=ErrorCode.INVALID_TOPIC_EXCEPTION)


@handles(
    ProduceRequest,
    error_response=error_response,
    requires=[
        for_transactional_id(WRITE_TRANSACTIONAL_ID),
        ForEach([WRITE_TOPIC], "topic_data", "responses", its_name_or_id),
        InHandler([CLUSTER_ACTION], "internal topics: INVALID_TOPIC_EXCEPTION"),
    ],
    advertised_from=0,
)
def produce(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | bytes | None]:
    """Append every batch, and answer when ``acks`` is fulfilled."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        text = f"acks must be 0, 1 or -1, not {request.acks}"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUIRED_ACKS)
    client = context.request.client
    if (producer := client.producer) is None:
        producer = client.producer = ProducerActivity()
    producer.acks = request.acks
    leaders = CurrentLeaders(context, LED_ELSEWHERE, NAMES_LEADERS_SINCE_VERSION)
    production = ProduceOperation(request, context.request.header, context.services.replicas, producer, leaders)
    if request.transactional_id is not None:
        production.transaction = TransactionalProduce(request.transactional_id, context)
        yield from production.transaction.begin(request)
    responses = []
    batches = 0
    budget: YieldBudget | None = None
    for topic in request.topic_data:
        partition_responses: list[PartitionProduceResponse] = []
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses)
        )
        local = production.find_topic(topic)
        for data in topic.partition_data:
            # Refusals count too: a few bytes of a request name a partition, and its refusal costs several objects.
            # Before each batch but the first: sixteen kilobytes may hold thousands of headers, a millisecond's walk.
            if batches:
                budget = budget or YieldBudget()
                if budget.is_spent:
                    yield budget.renewed
            batches += 1
            response = (
                failed(data.index, local)
                if isinstance(local, KafkaError)
                else (yield from production.append(local, data, context.release_handler))
            )
            if response.error_code:
                leaders.name_in(response, topic.name, topic.topic_id, response.index)
            partition_responses.append(response)
    if request.acks == ACKS_NONE:
        require_all_appended(responses)
        return None
    if production.waiting:
        # Appended, its place is taken: what is sent behind it may be appended too, and be safe by the same sync.
        context.request.unmute()
        yield from production.wait(context.release_handler)
    # A topic may have no partitions at all, so one batch does not mean one topic.
    if batches == len(responses) == 1 and context.request.header.api_version >= LOG_START_OFFSET_SINCE_VERSION:
        [topic_response] = responses
        [response] = topic_response.partition_responses
        if not response.error_code:
            return encoded_success(context.request.header.api_version, topic_response, response)
    return ProduceResponse(responses=responses, node_endpoints=leaders.endpoints(NodeEndpoint))


def encoded_success(version: int, topic: TopicProduceResponse, partition: PartitionProduceResponse) -> bytes:
    """The answer to a request with one batch, which was appended."""
    before, after = around_success(version, topic.name, topic.topic_id)
    code, log_append_time_ms = ErrorCode.NONE, partition.log_append_time_ms
    return (
        before
        + SUCCESS.pack(partition.index, code, partition.base_offset, log_append_time_ms, partition.log_start_offset)
        + after
    )


@functools.lru_cache(maxsize=TOPICS_REMEMBERED)
def around_success(version: int, name: str, topic_id: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the numbers of the one partition, in the answer for a batch that was appended."""
    # Negative, so that no name of a topic has their bytes, nor has an id as many.
    marks = (-2, -3, -4, -5, -6)
    index, error_code, base_offset, log_append_time_ms, log_start_offset = marks
    partition = PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[partition])
    before, _, after = encode_bytes(ProduceResponse(responses=[topic]), version).partition(SUCCESS.pack(*marks))
    return before, after


def require_all_appended(responses: list[TopicProduceResponse]) -> None:
    """Close the connection of a producer that wants no answer and whose records were refused.

    Raises:
        CloseConnection: with the first refusal.
    """
    # No response can carry the error. A closed connection makes the producer ask for Metadata anew, as Kafka's
    # handleProduceRequest intends.
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise CloseConnection(
                    f"produce with acks=0 to partition {partition.index} failed: "
                    f"{ErrorCode(partition.error_code).name}: {partition.error_message}"
                )
