"""CreateAcls (api key 30): add access control entries (KIP-140).

Version notes (0 was removed in Kafka 4.0):

* 1: pattern types (KIP-290).
* 2: flexible versions.
* 3: users as resources (KIP-373).

Source: Kafka's CreateAclsRequest.json and CreateAclsResponse.json.
"""

from __future__ import annotations

from kafka_wire.messages.describe_acls import LITERAL
from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    creations: list[AclCreation]


@struct
class AclCreation:
    """One entry, in the numbers of ``describe_acls``."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=LITERAL)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """How each entry fared, in the order of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult]


@struct
class AclCreationResult:
    error_code: Int16 = field(default=0)
    error_message: String | None
