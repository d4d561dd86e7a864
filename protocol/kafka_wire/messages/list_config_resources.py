"""ListConfigResources (api key 74): what has settings that DescribeConfigs could be asked for.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.

Version notes:

* 0: named ListClientMetricsResources; flexible from the start, and about client metrics alone (KIP-714).
* 1: every type of resource (KIP-1142).

Source: Kafka's ListConfigResourcesRequest.json and ListConfigResourcesResponse.json.
"""

from __future__ import annotations

from kafka_wire.config_resources import ConfigResourceType
from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """The types of resources to list; from version 1 on an empty list means all."""

    resource_types: list[Int8] = field("1+", factory=list)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    config_resources: list[ConfigResource]


@struct
class ConfigResource:
    resource_name: String
    resource_type: Int8 = field("1+", default=ConfigResourceType.CLIENT_METRICS, ignorable=True)
