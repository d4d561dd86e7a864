"""The versions of each API as ApiVersions lists them.

Apart from the handler because ``dispatch`` answers an ApiVersions newer than ours without one: in version 0, with the
single entry that has our range, and without parsing the body, whose format is unknown (KIP-511).

Source: Kafka's ApiVersionsResponse and RequestContext.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, response_header
from kafka_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafka_wire.primitives import Chunk
from trio_broker.handlers.support.registry import ServedApi, served_apis


def advertised_versions(apis: Iterable[ServedApi]) -> list[ApiVersion]:
    """One entry per API, in the order of their keys."""
    return [
        ApiVersion(api_key=api.api_key, min_version=api.advertised.low, max_version=api.advertised.high)
        for api in sorted(apis, key=lambda api: api.api_key)
    ]


def unsupported_version_answer(header: RequestHeader) -> list[Chunk]:
    """The answer to an ApiVersions newer than ours: version 0, error 35, our range of this very API."""
    own = served_apis()[ApiKey.API_VERSIONS]
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised_versions([own]), throttle_time_ms=0
    )
    return [response_header(ApiKey.API_VERSIONS, 0, header.correlation_id), *encode(response, 0)]
