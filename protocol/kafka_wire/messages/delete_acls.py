"""DeleteAcls (api key 31): remove the access control entries that filters match (KIP-140).

Version notes (0 was removed in Kafka 4.0):

* 1: pattern types (KIP-290).
* 2: flexible versions.
* 3: users as resources (KIP-373).

Source: Kafka's DeleteAclsRequest.json and DeleteAclsResponse.json.
"""

from __future__ import annotations

from kafka_wire.messages.describe_acls import LITERAL
from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsFilter:
    """A filter in the numbers of ``describe_acls``; null names, principals and hosts match any."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=LITERAL)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """What each filter removed, in the order of the request."""

    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsFilterResult]


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = field(default=0)
    error_message: String | None
    matching_acls: list[DeleteAclsMatchingAcl]


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = field(default=0)
    error_message: String | None
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=LITERAL)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8
