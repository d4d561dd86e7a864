"""BrokerHeartbeat (api key 63): a registered broker is alive, and says how far it has read the metadata (KIP-631).

Version notes:

* 1: log directories that failed (KIP-858).
* 2: log directories that take no new replicas (KIP-1066).

Source: Kafka's BrokerHeartbeatRequest.json and BrokerHeartbeatResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int16, Int32, Int64, Uuid
from kafka_wire.schema import Request, field, message


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"]):
    """How far the broker is, and whether it wants to be fenced, or to shut down under control."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: Boolean
    want_shut_down: Boolean
    offline_log_dirs: list[Uuid] = field("1+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("2+", default=None, tag=1)


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    """What the broker is to do: serve, wait while it is fenced, or end."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    is_caught_up: Boolean = field(default=False)
    is_fenced: Boolean = field(default=True)
    should_shut_down: Boolean = field(default=False)
