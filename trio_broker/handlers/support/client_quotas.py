"""What a client has had is measured, and its answer says how long the broker will not read its connection.

Requests between brokers are not throttled. A handler that knows more of a request than its size, Fetch and those which
create and delete partitions, has its own quota measured before its answer comes here.

Source: Kafka's RequestHandlerHelper and KafkaApis; KIP-219.
"""

from __future__ import annotations

from typing import Any

import attrs

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.replication_control import PartitionChangeQuota, unbounded
from trio_broker.handlers.support.context import Context


def throttle_seconds(response: Any, context: Context) -> float:
    """How long the client must wait after ``response``, which may have a time already; notes what its request had."""
    quotas, request = context.services.quotas, context.request
    who = request.quota_client
    seconds = max(request.throttle_seconds, getattr(response, "throttle_time_ms", 0) / 1000)
    if request.header.api_key == ApiKey.PRODUCE:
        quotas.produce.record(*who, len(request.body))
        seconds = max(seconds, quotas.produce.throttle_seconds(*who))
    request.is_measured = True
    if response is not None:  # a Produce with acks=0 is not bounded by its time, as in Kafka
        seconds = max(seconds, quotas.request_throttle_seconds(*who))
    request.throttle_seconds = seconds
    if seconds:
        quotas.note_throttled(seconds)
    return seconds


def with_throttle_time(response: Any, seconds: float) -> Any:
    """``response``, which may be kept for others, with that time; as it is where its API has no room for one."""
    if not seconds or not hasattr(response, "throttle_time_ms"):
        return response
    return attrs.evolve(response, throttle_time_ms=milliseconds(seconds))


def milliseconds(seconds: float) -> int:
    """At least one: a client that waits for nothing would come at once."""
    return max(1, round(1000 * seconds))


def fetch_is_throttled(size: int, context: Context) -> bool:
    """Whether a client that would get ``size`` bytes of records must wait for them; else they are noted as sent."""
    quotas, request = context.services.quotas, context.request
    who = request.quota_client
    quotas.fetch.record(*who, size)
    seconds = max(quotas.fetch.throttle_seconds(*who), quotas.request_throttle_seconds(*who))
    if not seconds:
        return False
    quotas.fetch.record(*who, -size)
    request.throttle_seconds = seconds
    return True


def partition_change_quota(context: Context, *, strict_since: int) -> PartitionChangeQuota:
    """What a request that creates or deletes partitions asks before each change (KIP-599): in versions before
    ``strict_since`` the change is made, and the client waits afterwards."""
    quotas, request = context.services.quotas, context.request
    if not quotas.is_bounding:
        return unbounded
    mutations, who = quotas.controller_mutation, request.quota_client

    def apply(partitions: int) -> None:
        is_strict = context.version >= strict_since
        if is_strict and (seconds := mutations.throttle_seconds(*who)):
            request.throttle_seconds = seconds
            raise KafkaError("The throttling quota has been exceeded.", code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        mutations.record(*who, partitions)
        if not is_strict:
            request.throttle_seconds = mutations.throttle_seconds(*who)

    return apply
