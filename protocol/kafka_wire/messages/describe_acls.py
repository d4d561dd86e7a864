"""DescribeAcls (api key 29): the access control entries that a filter matches (KIP-140).

Resource types, pattern types, operations and permissions are numbers of Kafka's enums; 1 stands for any in each.

Version notes (0 was removed in Kafka 4.0):

* 1: pattern types (KIP-290).
* 2: flexible versions.
* 3: users as resources (KIP-373).

Source: Kafka's DescribeAclsRequest.json and DescribeAclsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct

LITERAL = 3
"""The pattern type that is one resource's very name."""


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """A filter; null names, principals and hosts match any."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=LITERAL)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The entries, by the resource that they are about."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None
    resources: list[DescribeAclsResource]


@struct
class DescribeAclsResource:
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=LITERAL)
    acls: list[AclDescription]


@struct
class AclDescription:
    principal: String
    host: String
    operation: Int8
    permission_type: Int8
