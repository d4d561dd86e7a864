"""What one connection is, has carried and waits for, as a value of one moment.

A connection that the broker does not read on is *muted*, as Kafka calls it. One with a request in flight nearly always
is; ``muted_because`` says which one is muted by the lack of something: memory, room in the request queue, a client that
reads; or by its own requests ahead, when its client does not wait for the answers and the next ones pile up.
"""

from __future__ import annotations

from collections import Counter

from kafka_wire.apis import api_name
from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.batch import CODEC_MASK
from kafka_wire.records.compression import Codec
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.client_activity import NOT_IDEMPOTENT, VERSION_BITS, VERSION_MASK, ProducerActivity
from trio_broker.network.connection import SENDING_STATES, Connection, ConnectionState
from trio_broker.network.request_channel import QueuedRequest
from trio_broker.network.statistics import ApiErrors, ApiUse, ConnectionStage, ConnectionStatistics, ProducedBatches
from trio_broker.runtime.measurement import perf_counter_ns

MUTED_BECAUSE = {
    ConnectionStage.UNREAD: "its own requests ahead",
    ConnectionStage.WAITING_FOR_MEMORY: "memory pool",
    ConnectionStage.WAITING_FOR_QUEUE: "request queue full",
    ConnectionStage.WAITING_FOR_READER: "response not read",
    ConnectionStage.THROTTLED: "quota",
}

STAGES = {
    ConnectionState.HANDSHAKING: ConnectionStage.HANDSHAKING,
    ConnectionState.IDLE: ConnectionStage.IDLE,
    ConnectionState.RECEIVING: ConnectionStage.RECEIVING,
    ConnectionState.WAITING_FOR_MEMORY: ConnectionStage.WAITING_FOR_MEMORY,
    ConnectionState.SENDING: ConnectionStage.SENDING,
    ConnectionState.WAITING_FOR_READER: ConnectionStage.WAITING_FOR_READER,
    ConnectionState.THROTTLED: ConnectionStage.THROTTLED,
    ConnectionState.CLOSED: ConnectionStage.IDLE,
}
"""Of a connection without a request in flight, or with a response under way."""

PHASE_STAGES = {RequestPhase.DISK: ConnectionStage.SYNCING, RequestPhase.PURGATORY: ConnectionStage.DELAYED}


def stage_of(connection: Connection) -> ConnectionStage:
    """Where ``connection`` stands."""
    if connection.unread.is_backlog:
        return ConnectionStage.UNREAD
    if not connection.requests or connection.state in SENDING_STATES or connection.state is ConnectionState.THROTTLED:
        return STAGES[connection.state]
    request = connection.requests[0]
    if not request.began_ns:
        return ConnectionStage.WAITING_FOR_QUEUE if request.is_blocked else ConnectionStage.QUEUED
    return ConnectionStage.HANDLED if request.waits is None else PHASE_STAGES[request.waits.phase]


def connection_statistics(connection: Connection, *, now: float, now_ms: int) -> ConnectionStatistics:
    """What ``connection`` is at ``now`` of the monotonic clock, which is ``now_ms`` of the other one."""
    info, client, requests = connection.info, connection.client, connection.requests
    stage = stage_of(connection)
    return ConnectionStatistics(
        connection_id=info.connection_id,
        client_id=connection.client_id,
        software_name=client.software.name,
        software_version=client.software.version,
        listener_name=info.listener_name,
        peer_host=info.peer_host,
        peer_port=info.peer_port,
        local_host=info.local_host,
        local_port=info.local_port,
        connected_at_ms=now_ms - round((now - connection.connected_at) * 1000),
        idle_seconds=max(0.0, now - connection.last_active),
        stage=stage,
        muted_because=MUTED_BECAUSE.get(stage),
        bytes_in=connection.bytes_in,
        bytes_out=connection.bytes_out,
        requests=client.requests,
        requests_per_second=connection.recent_requests,
        unread_bytes=connection.unread.count,
        unread_wait_seconds=connection.unread.wait_seconds,
        apis=tuple(
            ApiUse(api_name(key >> VERSION_BITS), key & VERSION_MASK, count)
            for key, count in client.requests_by_version.items()
        ),
        request=api_name(requests[0].header.api_key) if requests else None,
        request_seconds=seconds_under_way(requests[0]) if requests else None,
        errors=client.errors.total(),
        errors_by_api=tuple(
            ApiErrors(api_name(api_key), ErrorCode(code).name, count)
            for (api_key, code), count in client.errors.items()
        ),
        produced=None if client.producer is None else produced_batches(client.producer),
    )


def seconds_under_way(request: QueuedRequest) -> float:
    return (perf_counter_ns() - request.queued_ns) / 1e9


def produced_batches(producer: ProducerActivity) -> ProducedBatches:
    by_codec: Counter[str] = Counter()
    for kind, count in producer.batches_by_kind.items():
        by_codec[Codec(kind & CODEC_MASK).name.lower()] += count
    return ProducedBatches(
        acks=producer.acks,
        batches=by_codec.total(),
        idempotent_batches=sum(count for kind, count in producer.batches_by_kind.items() if not kind & NOT_IDEMPOTENT),
        records=producer.records,
        bytes=producer.bytes,
        batches_by_codec=dict(by_codec),
    )
