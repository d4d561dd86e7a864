"""Fetch: read record batches from partitions, waiting while there are fewer bytes than the client wants.

Records are not read into memory: the answer holds regions of segment files, which the network sends with ``sendfile``.
Topics go by name up to version 12 and by id from 13 on (KIP-516). Replicas are served as consumers are, up to the end
of the log; what they ask for says how far they are. Consumers since version 11 are served by followers as well
(KIP-392).

Source: Kafka's KafkaApis.handleFetchRequest; KIP-74 for the limits, KIP-227 for sessions.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.fetch import (
    NAMES_UP_TO,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kafka_wire.primitives import Chunk, unsigned_varint
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, clear_in_turns
from trio_broker.handlers.support.broker_nodes import broker_nodes
from trio_broker.handlers.support.client_quotas import fetch_is_throttled
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.partitions import NOT_HERE, CurrentLeaders
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, READ_TOPIC, InHandler, not_authorized
from trio_broker.partition.fetch_operation import FetchedPartition, FetchingReplica, FetchLimits, FetchTarget
from trio_broker.partition.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    KeyedResult,
    SessionKey,
)
from trio_broker.partition.partition import Partition
from trio_broker.partition.state import NO_EPOCH

NAMES_LEADERS_SINCE_VERSION = 16

READS_FOLLOWERS_SINCE_VERSION = 11

LED_DIFFERENTLY = NOT_HERE | {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
"""The refusals of a partition that another broker may lead, or this one in another epoch."""

ISOLATION_LEVELS = {level.value: level for level in IsolationLevel}

NO_DIVERGENCE, UNNAMED_LEADER, NO_SNAPSHOT = EpochEndOffset(), LeaderIdAndEpoch(), SnapshotId()
"""Defaults of every partition's answer. They are never changed, and to make them anew would cost as much as all the
rest of the answer."""

HEAD = struct.Struct(">ihi")
"""Throttle time, error code and session id, with which a response begins."""

OFFSETS = struct.Struct(">ihqqq")
"""The numbers of a partition in a response: index, error code, high watermark, last stable and log start offset."""

ENCODED_SINCE_VERSION = 12
"""From here on the size of the records is a varint; clients that ask in a version before it are rare."""

TOPICS_REMEMBERED = 1024
"""Topics, each in the versions that its consumers speak, whose answers are made of remembered pieces; some 300 bytes
each."""

PARTITIONS_PER_LOOK = 25
"""Partitions between two looks at the budget, of which the first begins it: most fetches have fewer, and need none."""


def failed(index: int, code: ErrorCode) -> PartitionData:
    """The answer for a partition that could not be read: no offsets, and zero bytes of records.

    The schema allows null records; librdkafka drops the response for them and kafka-python raises TypeError.
    """
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def error_response(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """The error for the whole response from version 7 on, and for every partition before it."""
    return FetchResponse(
        error_code=error.code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[failed(partition.partition, error.code) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


@handles(
    FetchRequest,
    error_response=error_response,
    requires=[
        InHandler([READ_TOPIC], "the partitions of a topic: TOPIC_AUTHORIZATION_FAILED"),
        InHandler([CLUSTER_ACTION], "of a replica, all partitions: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def fetch(request: FetchRequest, context: Context) -> Steps[FetchResponse | list[Chunk]]:
    """Read every partition asked for; wait up to ``max_wait_ms`` while there is less than ``min_bytes``."""
    # KIP-903 moved it into a tagged struct; the field that the version lacks reads as -1.
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    if replica_id >= 0 and not context.services.replicas.is_other_broker(replica_id):
        # Fatal to clients, as Kafka answers a client that poses as a broker.
        text = f"replica {replica_id} is not a follower of this broker"
        raise KafkaError(text, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    context.request.is_exempt = replica_id >= 0
    limits = limits_of(request, context)
    if replica_id >= 0:
        limits.replica = FetchingReplica(replica_id, request.replica_state.replica_epoch)
    elif context.version >= READS_FOLLOWERS_SINCE_VERSION:
        limits.reads_followers = True
        limits.nearer_brokers = nearer_brokers(request.rack_id, context)
    readable = None
    if context.services.authorizer is not None:
        readable = ReadableTopics(context, is_replica=replica_id >= 0)
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        return fetch_in_full(request, limits, context, readable)
    return fetch_in_session(request, limits, context, readable)


@attrs.define
class ReadableTopics:
    """Which topics the client of one request may read; a replica may read all or none.

    Asked anew in each request of a session: it may have lost a right since the session began.
    """

    context: Context
    is_replica: bool
    _answers: dict[str, KafkaError | None] = attrs.Factory(dict)

    def refusal(self, key: SessionKey) -> KafkaError | None:
        """Why nothing of a partition may be read; None where there is no such topic, too."""
        name = key.topic
        if not name:
            topic = self.context.services.metadata_cache.image.topics_by_id.get(key.topic_id)
            if topic is None:
                return None
            name = topic.name
        if name not in self._answers:
            context = self.context
            is_allowed = context.may(CLUSTER_ACTION) if self.is_replica else context.may(READ_TOPIC, name)
            self._answers[name] = None if is_allowed else not_authorized(READ_TOPIC)
        return self._answers[name]


def fetch_in_full(
    request: FetchRequest, limits: FetchLimits, context: Context, readable: ReadableTopics | None
) -> Steps[FetchResponse | list[Chunk]]:
    """Answer for every partition named; with the initial epoch, begin a session (KIP-227) if there is room."""
    replicas = context.services.replicas
    # A client gives a session up by naming it with one of these epochs. Kept, it would hold a place in the cache until
    # it is evicted (KIP-227).
    if request.session_id != NO_SESSION:
        replicas.fetch_sessions.close(request.session_id, context.principal)
    asked = yield from asked_partitions(request, context, readable)
    targets = list(asked.values())
    results = yield from read_steps(targets, limits, context)
    if is_throttled(results, context):
        return FetchResponse(session_id=NO_SESSION, responses=[])
    session_id = NO_SESSION
    if request.session_epoch == INITIAL_EPOCH:
        session = replicas.fetch_sessions.create(asked, context.principal, by_id=context.version > NAMES_UP_TO)
        if session is not None:
            # Called for its effect: it notes what this full answer says, so that the next one has only what changed
            # since.
            session.incremental_changes(session.partitions.items(), results)
            session_id = session.session_id
    response = yield from response_of(session_id, zip(asked, results, strict=True), len(results), context)
    if len(targets) > PARTITIONS_PER_LOOK:
        yield from clear_in_turns(asked, targets, results)
    return response


def fetch_in_session(
    request: FetchRequest, limits: FetchLimits, context: Context, readable: ReadableTopics | None
) -> Steps[FetchResponse | list[Chunk]]:
    """Read all partitions of a session and answer for those that changed. A bad session fails the whole."""
    replicas = context.services.replicas
    sessions = replicas.fetch_sessions
    # Before ``resume``, since this may yield: no other request of the session may come between the check of its epoch
    # and its changes.
    asked = yield from asked_partitions(request, context, readable)
    try:
        by_id = context.version > NAMES_UP_TO
        session = sessions.resume(request.session_id, request.session_epoch, context.principal, by_id=by_id)
        sessions.extend(session, asked)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    # After ``extend``, as in Kafka's FetchSession: a partition in both lists is forgotten.
    if request.forgotten_topics_data:
        session.forget(forgotten_partitions(request))
    reads, targets = list(session.partitions.items()), []
    for key, partition in reads:
        found = partition.target.found
        # Never so for nearly all partitions of a fetch. A topic may have been created or deleted since the session
        # began; a partition whose topic was deleted has a failure, so a topic created anew under its name is found too.
        if isinstance(found, KafkaError) or found.failure is not None:
            partition.target = attrs.evolve(partition.target, found=find_partition(key, context))
        refusal = None if readable is None else readable.refusal(key)
        targets.append(partition.target if refusal is None else attrs.evolve(partition.target, found=refusal))
    results = yield from read_steps(targets, limits, context)
    if is_throttled(results, context):
        # What the session last said stays as it was, so that the next answer has all that is new.
        return FetchResponse(session_id=session.session_id, responses=[])
    changes = session.incremental_changes(reads, results)
    return (yield from response_of(session.session_id, changes, len(changes), context))


def is_throttled(results: Iterable[FetchedPartition], context: Context) -> bool:
    """Whether a consumer is above its quota with these records, and so gets none of them now."""
    if not context.services.quotas.is_bounding or context.request.is_exempt:
        return False
    return fetch_is_throttled(sum(len(each.records) for each in results), context)


def read_steps(targets: Sequence[FetchTarget], limits: FetchLimits, context: Context) -> Steps[list[FetchedPartition]]:
    """Read ``targets``, waiting if there is too little, for as long as the client is there. A follower that has
    something else to ask does so on this connection, and is not to wait for this answer."""
    request = context.request
    when_unawaited = (
        (request.when_abandoned,) if limits.replica is None else (request.when_abandoned, request.when_followed)
    )
    return context.services.replicas.fetch_steps(
        targets, limits, release_handler=context.release_handler, when_unawaited=when_unawaited
    )


def limits_of(request: FetchRequest, context: Context) -> FetchLimits:
    """The limits of the request, within those of the broker."""
    isolation_level = ISOLATION_LEVELS.get(request.isolation_level)
    if isolation_level is None:
        raise KafkaError(f"{request.isolation_level} is no isolation level", code=ErrorCode.INVALID_REQUEST)
    max_bytes = min(request.max_bytes, context.services.config.request.fetch_max_bytes)
    quotas = context.services.quotas
    if quotas.is_bounding and not context.request.is_exempt:
        # A larger answer would be above the quota by itself, however long the consumer waits.
        max_bytes = int(min(max_bytes, quotas.fetch.max_in_window(*context.request.quota_client)))
    return FetchLimits(
        max_wait_seconds=request.max_wait_ms / 1000,
        # The answer never holds more than ``max_bytes``, so waiting for more would only end with the timeout.
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=isolation_level,
    )


def nearer_brokers(rack: str, context: Context) -> Collection[int]:
    """The brokers in the rack of a consumer that it reaches; none where it is to stay here (KIP-392)."""
    services = context.services
    if not rack or services.config.replication.replica_selector_class is None or rack == services.node.rack:
        return ()
    nodes = broker_nodes(services.metadata_cache.image, context.connection)
    return [each.broker_id for each in nodes if each.rack == rack]


def asked_partitions(
    request: FetchRequest, context: Context, readable: ReadableTopics | None
) -> Steps[dict[SessionKey, FetchTarget]]:
    """The partitions that the request names, found or not, in its order.

    A partition named twice is read once: at the place of its first entry with the values of its last, as in the linked
    map that Kafka builds.
    """
    replicas = context.services.replicas
    by_id = context.version > NAMES_UP_TO
    asked: dict[SessionKey, FetchTarget] = {}
    number = 0
    budget: YieldBudget | None = None
    for topic in request.topics:
        local = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.topic)
        for wanted in topic.partitions:
            index = wanted.partition
            key = SessionKey(topic.topic, topic.topic_id, index)
            found = (None if local is None else local.partitions.get(index)) or find_partition(key, context)
            if readable is not None:
                found = readable.refusal(key) or found
            asked[key] = FetchTarget(
                index,
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                found,
                # As in Kafka, any that is negative means that there is none.
                max(wanted.current_leader_epoch, NO_EPOCH),
                max(wanted.last_fetched_epoch, NO_EPOCH),
                wanted.log_start_offset,
            )
            number += 1
            if number % PARTITIONS_PER_LOOK == 0:
                budget = budget or YieldBudget()
                if budget.is_spent:
                    yield budget.renewed
    return asked


def forgotten_partitions(request: FetchRequest) -> Iterator[SessionKey]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield SessionKey(topic.topic, topic.topic_id, index)


def find_partition(key: SessionKey, context: Context) -> Partition | KafkaError:
    """The partition, its topic found by name or by id (KIP-516) as the version has it, or why there is none."""
    replicas = context.services.replicas
    try:
        by_id = context.version > NAMES_UP_TO
        local = replicas.topic_by_id(key.topic_id) if by_id else replicas.topic(key.topic)
        return local.partition(key.partition)
    except KafkaError as error:
        # Without its traceback: a request may have tens of thousands of these to keep.
        return error.with_traceback(None)


def response_of(
    session_id: int, results: Iterable[KeyedResult], count: int, context: Context
) -> Steps[FetchResponse | list[Chunk]]:
    """The answer with ``count`` results."""
    # Where quotas bound clients, a throttle time may have to be put into it.
    if count == 1 and context.version >= ENCODED_SINCE_VERSION and not context.services.quotas.is_bounding:
        results = list(results)
        key, result = results[0]
        # With an error, a divergence or another replica to ask there are no records.
        if result.size_bytes and not result.aborted_transactions:
            return encoded_records(context.version, session_id, key, result)
    leaders = CurrentLeaders(context, LED_DIFFERENTLY, NAMES_LEADERS_SINCE_VERSION)
    responses = yield from responses_of(results, leaders)
    return FetchResponse(session_id=session_id, responses=responses, node_endpoints=leaders.endpoints(NodeEndpoint))


def responses_of(results: Iterable[KeyedResult], leaders: CurrentLeaders) -> Steps[list[FetchableTopicResponse]]:
    """The results in their order, neighbours of one topic under it: a topic may come again, as in Kafka's answers."""
    topics: list[FetchableTopicResponse] = []
    topic: FetchableTopicResponse | None = None
    budget: YieldBudget | None = None
    for number, (key, result) in enumerate(results, 1):
        if topic is None or topic.topic != key.topic or topic.topic_id != key.topic_id:
            topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            topics.append(topic)
        data = partition_data(result)
        if result.error_code is not ErrorCode.NONE:
            leaders.name_in(data, key.topic, key.topic_id, key.partition)
        topic.partitions.append(data)
        if number % PARTITIONS_PER_LOOK == 0:
            budget = budget or YieldBudget()
            if budget.is_spent:
                yield budget.renewed
    return topics


def partition_data(result: FetchedPartition) -> PartitionData:
    """One partition's answer."""
    data = PartitionData(
        partition_index=result.index,
        error_code=result.error_code,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=NO_DIVERGENCE,
        current_leader=UNNAMED_LEADER,
        snapshot_id=NO_SNAPSHOT,
        aborted_transactions=[],
        preferred_read_replica=result.preferred_read_replica,
        records=result.records,
    )
    if result.aborted_transactions:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in result.aborted_transactions
        ]
    if result.diverging_epoch is not None:
        end = result.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    return data


def encoded_records(version: int, session_id: int, key: SessionKey, result: FetchedPartition) -> list[Chunk]:
    """The answer with the records of one partition, and nothing else to say."""
    before, between, after = around_records(version, key.topic, key.topic_id)
    numbers = OFFSETS.pack(
        result.index, ErrorCode.NONE, result.high_watermark, result.last_stable_offset, result.log_start_offset
    )
    head = HEAD.pack(0, ErrorCode.NONE, session_id)
    return [head + before + numbers + between + unsigned_varint(result.size_bytes + 1), result.records, after]


@functools.lru_cache(maxsize=TOPICS_REMEMBERED)
def around_records(version: int, topic: str, topic_id: bytes) -> tuple[bytes, bytes, bytes]:
    """What stands before the numbers of the one partition, between these and the size of its records, and after the
    records."""
    # Negative, so that no name of a topic has their bytes, nor has an id as many.
    marks = (-2, -3, -4, -5, -6)
    index, error_code, high_watermark, last_stable_offset, log_start_offset = marks
    partition = PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=[],
        records=b"-",
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[partition])])
    before, _, rest = encode_bytes(response, version)[HEAD.size :].partition(OFFSETS.pack(*marks))
    between, _, after = rest.partition(unsigned_varint(2) + b"-")
    return before, between, after
