"""Metadata (api key 3): the brokers, the topics, and who leads which partition.

The map every client draws first and refreshes whenever a broker says that it leads something no longer.

Version notes:

* 0: an empty list asks for every topic.
* 1: null asks for every topic, an empty list for the brokers alone; racks, the controller, internal topics marked.
* 2: the cluster id.
* 3: throttle time.
* 4: the client says whether a missing topic may be created.
* 5: offline replicas.
* 6: a throttled broker answers first and then pauses (KIP-219).
* 7: leader epochs (KIP-320).
* 8: authorized operations on request (KIP-430).
* 9: flexible versions. librdkafka's request for every topic is three bytes longer than its content.
* 10: topic ids in the answer (KIP-516); requests by id are not meant before 12.
* 11: the cluster's authorized operations moved to DescribeCluster (KIP-700).
* 12: topics may be asked for by id, with a null name.
* 13: an error code for the whole answer (KIP-1102).

Source: Kafka's MetadataRequest.json and MetadataResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from kafka_wire.primitives import NO_UUID, Boolean, Int16, Int32, String, Uuid
from kafka_wire.schema import Request, field, message, struct

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

AUTO_CREATION_SINCE_VERSION: Final = 4
"""From it on a request says whether a missing topic may be created; before, it always may."""


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    """The topics to describe: null for all of them, empty for none.

    ``allow_auto_topic_creation`` permits, not commands: the broker's own setting must agree. It reads as True before
    version 4, where clients could not say.
    """

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Boolean = field("4+", default=True)
    include_cluster_authorized_operations: Boolean = field("8-10", default=False)
    include_topic_authorized_operations: Boolean = field("8+", default=False)


@struct
class MetadataRequestTopic:
    """One topic, by name, or from version 12 on by id with a null name."""

    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    name: String | None = field(nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker knows it.

    ``controller_id`` names a live broker that takes admin requests, not a controller proper.
    ``cluster_authorized_operations`` is a bit field, or ``OPERATIONS_NOT_REQUESTED``.
    """

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=OPERATIONS_NOT_REQUESTED)
    error_code: Int16 = field("13+", default=0, ignorable=True)


@struct
class MetadataResponseBroker:
    """A broker and its address on the listener through which the client asked."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field("1+", default=None, ignorable=True)


@struct
class MetadataResponseTopic:
    """One topic. A topic that was asked for by id and does not exist has a null name.

    ``topic_authorized_operations`` is a bit field, or ``OPERATIONS_NOT_REQUESTED``.
    """

    error_code: Int16 = field(default=0)
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    is_internal: Boolean = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=OPERATIONS_NOT_REQUESTED)


@struct
class MetadataResponsePartition:
    """One partition; ``leader_id`` is -1 while it has no leader."""

    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field("5+", factory=list, ignorable=True)
