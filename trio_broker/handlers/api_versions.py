"""ApiVersions: the APIs and versions that this broker serves, the first request of every client.

The features of the cluster come with it, by which clients know that they may use the consumer protocol. A version above
ours does not come here: ``dispatch`` answers it with ``unsupported_version_answer``.

Source: Kafka's RequestContext, ApiVersionsRequest and ApiVersionsResponse; KIP-511 for the software's name, KIP-584 for
features, KIP-1242 for the cluster and the node that are meant.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from trio_broker.cluster.features import FIXED, FeatureLevels, supported_features
from trio_broker.handlers.support.advertised_versions import advertised_versions
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import advertised_apis, handles
from trio_broker.handlers.support.rights import NoRight
from trio_broker.handlers.support.services import NodeInfo

SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]{0,298}[a-zA-Z0-9])?")
"""KIP-511: the form of a client's software name and version, which appear in logs and metrics. Of 300 characters at
most, though Kafka has no limit: they are logged and kept, and anybody may send 32 KiB before a login."""

SOFTWARE_SINCE_VERSION = 3

LEVEL_0_SINCE_VERSION = 4
"""Before it a supported feature may not begin at level 0, and clients refuse the whole answer; so it is left out
(KAFKA-17492)."""

NO_NODE_ID = -1
"""Of a client that does not know which node it reaches, as by a bootstrap address."""

ANSWERS_KEPT = 16
"""Encoded answers that are kept: one for each version that clients ask in, and those of several brokers in one
process."""


def error_response(request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code, api_keys=[], throttle_time_ms=0)


@handles(ApiVersionsRequest, error_response=error_response, requires=[NoRight("every client has to know it first")])
def api_versions(request: ApiVersionsRequest, context: Context) -> bytes:
    """List every API that has a handler, with the versions advertised for it."""
    version = context.request.header.api_version
    require_meant(request, context.services.node)
    if version >= SOFTWARE_SINCE_VERSION:
        name, software_version = request.client_software_name, request.client_software_version
        software = context.request.client.software
        # What the connection has said before was found to be in order then. Empty until it says something.
        if not name or name != software.name or software_version != software.version:
            require_software_name(request)
            # The object is the connection's: its later requests, and the line that logs its end, show the software too.
            software.name, software.version = name, software_version
    image = context.services.metadata_cache.image
    is_broker = context.connection.listener_name == context.services.node.inter_broker_listener
    return encoded_answer(version, image.offset, tuple(image.features.items()), is_broker)


@functools.lru_cache(maxsize=ANSWERS_KEPT)
def encoded_answer(
    version: int, metadata_offset: int, features: tuple[tuple[str, int], ...], is_broker: bool = False
) -> bytes:
    """The answer in ``version`` of a cluster with these features, to a client or to another broker.

    Kept, since every connection begins with this request, and to encode the answer takes longer than all else that it
    costs.
    """
    supported = supported_features(dict(features))
    response = ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=advertised_versions(advertised_apis(to_brokers=is_broker)),
        throttle_time_ms=0,
        supported_features=supported_keys(version, supported),
        # Clients keep the answer with the largest epoch they have seen (KIP-584), so it must never fall, over restarts
        # either.
        finalized_features_epoch=metadata_offset,
        finalized_features=finalized_keys(features, supported),
    )
    return encode_bytes(response, version)


def supported_keys(version: int, supported: Mapping[str, FeatureLevels]) -> list[SupportedFeatureKey]:
    """The features this broker supports, as far as ``version`` can express their levels."""
    return [
        SupportedFeatureKey(name=name, min_version=levels.low, max_version=levels.high)
        for name, levels in (
            *supported.items(),
            *((name, FeatureLevels(level, level)) for name, level in FIXED.items()),
        )
        # KAFKA-17492: see ``LEVEL_0_SINCE_VERSION``. Clients of version 3 would refuse this whole answer, and so not
        # connect.
        if levels.low > 0 or version >= LEVEL_0_SINCE_VERSION
    ]


def finalized_keys(
    features: Iterable[tuple[str, int]], supported: Mapping[str, FeatureLevels]
) -> list[FinalizedFeatureKey]:
    """The features that are switched on, each at one level for all brokers."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in (*FIXED.items(), *((name, level) for name, level in features if name in supported))
        # Level 0 stands for a feature that is switched off (KIP-584); clients take a listed one for switched on.
        if level > 0
    ]


def require_meant(request: ApiVersionsRequest, node: NodeInfo) -> None:
    """Refuse a client that means to reach another cluster, or another node of this one: its addresses are outdated, or
    a proxy or a port map leads it astray. What it does not know is not compared.

    Raises:
        KafkaError: ``REBOOTSTRAP_REQUIRED``.
    """
    if request.cluster_id is None:
        return
    if request.cluster_id != node.cluster_id or request.node_id not in (NO_NODE_ID, node.node_id):
        text = (
            f"node {request.node_id} of cluster {request.cluster_id!r:.100} is meant; this is node {node.node_id} of"
            f" cluster {node.cluster_id!r}"
        )
        raise KafkaError(text, code=ErrorCode.REBOOTSTRAP_REQUIRED)


def require_software_name(request: ApiVersionsRequest) -> None:
    """Refuse a client software name or version that does not look like one.

    Raises:
        KafkaError: ``INVALID_REQUEST``; librdkafka then asks again in version 0.
    """
    for name in (request.client_software_name, request.client_software_version):
        if not SOFTWARE_PATTERN.fullmatch(name):
            raise KafkaError(f"{name!r} is no name or version of a client software", code=ErrorCode.INVALID_REQUEST)
