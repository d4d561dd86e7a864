"""WriteTxnMarkers (api key 27): end transactions in partitions, by a control record in each.

A coordinator sends it to the leaders of the partitions; administrators send it to abort a transaction whose coordinator
has forgotten it.

Version notes:

* 1: flexible versions; the oldest one served.
* 2: the version of the transaction, which decides how epochs are checked (KIP-1228).

Source: Kafka's WriteTxnMarkersRequest.json and WriteTxnMarkersResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int8, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarker:
    """The end of one producer's transaction; ``transaction_result`` is true for a commit.

    ``coordinator_epoch`` is the leader epoch of the coordinator's partition, -1 from an administrator.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


@struct
class WritableTxnMarkerTopic:
    name: String
    partition_indexes: list[Int32]


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@struct
class WritableTxnMarkerTopicResult:
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16 = field(default=0)
