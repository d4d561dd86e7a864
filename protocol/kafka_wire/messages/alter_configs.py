"""AlterConfigs (api key 33): replace all configs of topics and brokers.

What is not named goes back to its default, which surprised so many that IncrementalAlterConfigs came after it; several
clients still have nothing else. Resource types are those of DescribeConfigs.

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.

Source: Kafka's AlterConfigsRequest.json and AlterConfigsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """The complete configs by resource; with ``validate_only`` nothing happens but the checks."""

    resources: list[AlterConfigsResource]
    validate_only: Boolean


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@struct
class AlterableConfig:
    """One config; a null value means the default."""

    name: String
    value: String | None = field(secret=True)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """How each resource fared."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None
    resource_type: Int8
    resource_name: String
