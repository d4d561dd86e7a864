"""AlterClientQuotas (api key 49): set and remove quotas of users, clients and addresses (KIP-546).

Version notes:

* 1: flexible versions.

Source: Kafka's AlterClientQuotasRequest.json and AlterClientQuotasResponse.json.
"""

from __future__ import annotations

from kafka_wire.messages.describe_client_quotas import EntityData
from kafka_wire.primitives import Boolean, Float64, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    """The entities whose quotas to alter; with ``validate_only`` nothing happens but the checks."""

    @struct
    class EntryData:
        """Inside the class, because Kafka gives the struct of the response the same name."""

        entity: list[EntityData]
        ops: list[OpData]

    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: Boolean


@struct
class OpData:
    """One quota: its new value, or its removal, beside which the value says nothing."""

    key: String
    value: Float64 = field(default=0.0)
    remove: Boolean


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """Each entity with its result; there is no error for the whole."""

    throttle_time_ms: Int32 = field(default=0)
    entries: list[EntryData]


@struct
class EntryData:
    error_code: Int16 = field(default=0)
    error_message: String | None
    entity: list[EntityData]
