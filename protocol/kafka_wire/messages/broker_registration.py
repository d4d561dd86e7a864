"""BrokerRegistration (api key 62): a broker that starts becomes part of the cluster, fenced at first (KIP-631).

Version notes:

* 1: a broker on its way out of ZooKeeper says so (KIP-866); none is any more.
* 2: the broker's log directories (KIP-858).
* 3: the epoch that the broker had when it was stopped cleanly (KIP-966).
* 4: features that may be off (a lowest level of 0) are named as well.

Source: Kafka's BrokerRegistrationRequest.json and BrokerRegistrationResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int16, Int32, Int64, String, UInt16, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"]):
    """Who the broker is, where it is reached, and what it knows; ``incarnation_id`` tells its process from others."""

    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: String | None
    is_migrating_zk_broker: Boolean = field("1+", default=False)
    log_dirs: list[Uuid] = field("2+", factory=list, ignorable=True)
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


@struct
class Listener:
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@struct
class Feature:
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    """The epoch of the registration, which later requests of the broker name."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    broker_epoch: Int64 = field(default=-1)
