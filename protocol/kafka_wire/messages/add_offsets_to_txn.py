"""AddOffsetsToTxn (api key 25): name a group before a transaction commits offsets for it.

With ``transaction.version`` 2 TxnOffsetCommit does the same (KIP-890).

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: PRODUCER_FENCED may be answered (KIP-588).
* 3: flexible versions.
* 4: TRANSACTION_ABORTABLE may be answered (KIP-890).

Source: Kafka's AddOffsetsToTxnRequest.json and AddOffsetsToTxnResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """Add the partition of ``__consumer_offsets`` that has ``group_id`` to the transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
