"""DescribeClientQuotas (api key 48): the quotas of the users, client ids and addresses that a filter matches (KIP-546).

Version notes:

* 1: flexible versions.

Source: Kafka's DescribeClientQuotasRequest.json and DescribeClientQuotasResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Float64, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """A filter, with one component for each type of entity; ``strict`` leaves out entities with further types."""

    components: list[ComponentData]
    strict: Boolean


@struct
class ComponentData:
    """What one type of entity must look like.

    ``match_type`` is 0 for the name in ``match``, 1 for the default of the type, 2 for any name.
    """

    entity_type: String
    match_type: Int8
    match: String | None


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas; ``entries`` is null beside an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None
    entries: list[EntryData] | None


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@struct
class EntityData:
    """A null name is the default of its type."""

    entity_type: String
    entity_name: String | None


@struct
class ValueData:
    key: String
    value: Float64
