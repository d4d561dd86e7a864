"""IncrementalAlterConfigs (api key 44): change single configs of topics and brokers (KIP-339).

Operations: 0 set, 1 delete, 2 append to a list, 3 subtract from a list. Resource types are those of DescribeConfigs.

Version notes:

* 1: flexible versions.

Source: Kafka's IncrementalAlterConfigsRequest.json and IncrementalAlterConfigsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """The changes by resource; with ``validate_only`` nothing happens but the checks."""

    resources: list[AlterConfigsResource]
    validate_only: Boolean


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@struct
class AlterableConfig:
    """One change; ``value`` is null when the operation needs none."""

    name: String
    config_operation: Int8
    value: String | None = field(secret=True)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """How each resource fared: all of its changes are made, or none."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None
    resource_type: Int8
    resource_name: String
