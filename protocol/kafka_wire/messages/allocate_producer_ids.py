"""AllocateProducerIds (api key 67): a broker asks the controller for producer ids to hand out (KIP-730).

Source: Kafka's AllocateProducerIdsRequest.json and AllocateProducerIdsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64
from kafka_wire.schema import Request, field, message


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    """The broker, in the epoch of its registration."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    """``producer_id_len`` ids from ``producer_id_start`` on, which are the broker's alone."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id_start: Int64 = field(default=0)
    producer_id_len: Int32 = field(default=0)
