"""DescribeConfigs (api key 32): read the configs of topics and brokers, and where each value comes from.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
Config sources: 1 topic, 2 dynamic on one broker, 3 dynamic default of the cluster, 4 static on the broker, 5 built-in
default, 6 dynamic broker logger, 7 client metrics, 8 group.
Config types: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.

Version notes:

* 1: the oldest one served; sources and synonyms. librdkafka never goes higher.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: config types, and documentation on request.
* 4: flexible versions.

Source: Kafka's DescribeConfigsRequest.json and DescribeConfigsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """The resources to describe, and how much about each config to tell."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Boolean = field(default=False)
    include_documentation: Boolean = field("3+", default=False)


@struct
class DescribeConfigsResource:
    """One resource. Null ``configuration_keys`` means every key. A broker is named by its id in decimal; the empty
    broker name stands for the dynamic default of the cluster.
    """

    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """The configs of each resource."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult]


@struct
class DescribeConfigsResult:
    error_code: Int16 = field(default=0)
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


@struct
class DescribeConfigsResourceResult:
    """One config. A sensitive value is always null."""

    name: String
    value: String | None
    read_only: Boolean
    config_source: Int8 = field(default=-1)
    is_sensitive: Boolean
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: String | None = field("3+", default="", ignorable=True)


@struct
class DescribeConfigsSynonym:
    """A value that is, or would be, in effect from another source; the winner comes first."""

    name: String
    value: String | None
    source: Int8
