"""DescribeCluster (api key 60): the cluster's id, its brokers, and what the client may do to it (KIP-700).

Version notes:

* 0: flexible from the start.
* 1: asks for brokers or for controllers (KIP-919); MISMATCHED_ENDPOINT_TYPE and UNSUPPORTED_ENDPOINT_TYPE may be
  answered.
* 2: fenced brokers on request (KIP-1073).

Source: Kafka's DescribeClusterRequest.json and DescribeClusterResponse.json.
"""

from __future__ import annotations

from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from kafka_wire.primitives import Boolean, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """``endpoint_type`` is 1 for brokers, 2 for controllers."""

    include_cluster_authorized_operations: Boolean
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Boolean = field("2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster. ``controller_id`` names a live broker that takes admin requests.

    ``cluster_authorized_operations`` is a bit field, or ``OPERATIONS_NOT_REQUESTED``.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=OPERATIONS_NOT_REQUESTED)


@struct
class DescribeClusterBroker:
    """A broker and its address on the listener through which the client asked."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
    is_fenced: Boolean = field("2+", default=False)
