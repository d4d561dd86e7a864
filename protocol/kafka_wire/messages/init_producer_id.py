"""InitProducerId (api key 22): obtain a producer id and epoch, for idempotence or for transactions.

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.
* 3: a producer may offer its id and epoch to have the epoch raised (KIP-360).
* 4: PRODUCER_FENCED may be answered (KIP-588).
* 5: TRANSACTION_ABORTABLE may be answered (KIP-890).

Kafka's schema has a version 6 (two-phase commit, KIP-939) that is marked unstable and not offered; it is not here.

Source: Kafka's InitProducerIdRequest.json and InitProducerIdResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Ask for a producer id. ``transactional_id`` is None for a producer that is idempotent only.

    Without a transactional id the other fields are noise: clients send -1, 0, 5000, 60000 or 2^31 - 1 milliseconds, and
    some send id 0 and epoch 0 where -1 and -1 mean "none yet".
    """

    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The id and epoch to produce with; id -1 beside an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
