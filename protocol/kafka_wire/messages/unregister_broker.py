"""UnregisterBroker (api key 64): take a broker that is gone for good out of the cluster (KIP-500).

Source: Kafka's UnregisterBrokerRequest.json and UnregisterBrokerResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    """The broker, by its id."""

    broker_id: Int32


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """How the request fared."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None
