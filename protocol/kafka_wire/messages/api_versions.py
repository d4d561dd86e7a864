"""ApiVersions (api key 18): which requests, in which versions, this broker understands.

The first request on almost every connection. Its response header never has tagged fields, so that a client can read
the answer before it knows what the broker speaks. To a version it does not know the broker answers with version 0,
UNSUPPORTED_VERSION, and its own range for this one API (KIP-511).

Version notes:

* 1: throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: flexible versions in the body; the client's software name and version; the cluster's features (KIP-584).
* 4: a supported feature may start at level 0 (KAFKA-17011); below it those features are left out of the answer.
* 5: the cluster and the node that the client means to reach; REBOOTSTRAP_REQUIRED may be answered (KIP-1242).

Source: Kafka's ApiVersionsRequest.json and ApiVersionsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """What the client is, in letters, digits, dots and dashes; empty before version 3. And which broker it means to
    reach: ``cluster_id`` is None and ``node_id`` -1 where it does not know.
    """

    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)
    cluster_id: String | None = field("5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """The APIs served, and the features of the cluster.

    ``finalized_features_epoch`` must be 0 or more for clients to look at ``finalized_features``.
    """

    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", factory=list, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", factory=list, tag=2, ignorable=True)
    zk_migration_ready: Boolean = field("3+", default=False, tag=3, ignorable=True)


@struct
class ApiVersion:
    """One API and the versions of it that are served, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    """A feature this broker could run, and the levels it knows."""

    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    """A feature the whole cluster runs, and its level."""

    name: String
    max_version_level: Int16
    min_version_level: Int16
