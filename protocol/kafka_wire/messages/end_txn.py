"""EndTxn (api key 26): commit or abort the transaction of a producer.

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: PRODUCER_FENCED may be answered (KIP-588).
* 3: flexible versions.
* 4: TRANSACTION_ABORTABLE may be answered (KIP-890).
* 5: every transaction ends with a raised epoch, which the response has; the second transaction protocol (KIP-890).

Source: Kafka's EndTxnRequest.json and EndTxnResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.primitives import Boolean, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message

EPOCH_BUMP_SINCE_VERSION: Final = 5
"""From it on the end of a transaction raises the producer's epoch (KIP-890)."""


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    """Commit the transaction if ``committed``, abort it otherwise."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """The id and epoch for the next transaction, from version 5 on; the id changes when its epochs are used up."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
