"""The headers before every request and every response.

A request's header is read before anything is known about the request, so it is read by hand and tolerantly: of an
unknown API, or of a version above ours, the fixed part and the client id still come out. They are needed for the
answer to a too new ApiVersions (KIP-511) and for the log line before a connection is closed.

Two oddities. The client id keeps its int16 length also in the flexible header 2. The response to ApiVersions always has
header 0, because its reader cannot know yet what the broker speaks.

Source: Kafka's RequestHeader.json, ResponseHeader.json, ApiVersionsResponse.json; ApiKeys.requestHeaderVersion.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from kafka_wire.apis import FLEXIBLE_FROM, ApiKey
from kafka_wire.errors import WireError
from kafka_wire.limits import MAX_STRING_BYTES
from kafka_wire.primitives import NO_TAGS, ReadableBuffer, read_tag_count, skip_tags

_FIXED_PART: Final = struct.Struct(">hhih")
"""API key, version, correlation id, and the length of the client id."""

_CORRELATION_ID: Final = struct.Struct(">i")

_NEVER_FLEXIBLE: Final = 1 << 15
"""No API version is as high."""

_FLEXIBLE_FROM: Final = {
    api_key: _NEVER_FLEXIBLE if version is None else version for api_key, version in FLEXIBLE_FROM.items()
}

_TAGGED_RESPONSE_FROM: Final = {**_FLEXIBLE_FROM, ApiKey.API_VERSIONS: _NEVER_FLEXIBLE}
"""ApiVersions has header 0 in every version: its reader does not know yet what the broker speaks (KIP-511)."""


@attrs.define
class RequestHeader:
    """The header of a request; ``client_id`` is the name that the client gives itself."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether a request and its response have flexible headers (2 and 1); False for unknown APIs."""
    return api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER_FLEXIBLE)


def read_request_header(frame: ReadableBuffer) -> tuple[RequestHeader, int]:
    """Read the header at the beginning of a frame; return it and the position of the body.

    Of an unknown API the position is only that after the client id.

    Raises:
        WireError: the frame ends too early, the client id is not UTF-8, or there are more tags than ``MAX_TAGS``.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED_PART.unpack_from(frame)
    except struct.error:
        raise WireError(f"a frame of {len(frame)} bytes is too short for a request header") from None
    client_id, position = None, _FIXED_PART.size
    if length >= 0:
        begin, position = position, position + length
        if position > len(frame):
            raise WireError("the client id reaches past the end")
        try:
            client_id = str(frame[begin:position], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"the client id is not UTF-8: {error.reason}") from None
    elif length != -1:  # which is null
        raise WireError(f"the client id has the length {length}")
    if api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER_FLEXIBLE):
        # Fast path: clients send none.
        if frame[position : position + 1] == NO_TAGS:
            position += 1
        else:
            tags, position = read_tag_count(frame, position)
            position = skip_tags(frame, position, tags)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def request_header(header: RequestHeader) -> bytes:
    """Write a request's header.

    Raises:
        ValueError: a number or the client id does not fit.
    """
    client_id = None if header.client_id is None else header.client_id.encode()
    length = -1 if client_id is None else len(client_id)
    if length > MAX_STRING_BYTES:
        raise ValueError(f"a client id of {length} bytes is longer than {MAX_STRING_BYTES}")
    try:
        fixed = _FIXED_PART.pack(header.api_key, header.api_version, header.correlation_id, length)
    except struct.error as error:
        raise ValueError(f"{header}: {error}") from None
    # The tags come last, although the client id before them keeps its int16 length in header 2 (KIP-482).
    return fixed + (client_id or b"") + (NO_TAGS if is_flexible(header.api_key, header.api_version) else b"")


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Write the header of the response to a request of this API and version."""
    if api_version >= _TAGGED_RESPONSE_FROM.get(api_key, _NEVER_FLEXIBLE):
        return _CORRELATION_ID.pack(correlation_id) + NO_TAGS
    return _CORRELATION_ID.pack(correlation_id)


def read_response_header(api_key: int, api_version: int, frame: ReadableBuffer) -> tuple[int, int]:
    """Read a response's header; return its correlation id and the position of the body.

    Raises:
        WireError: the frame ends too early.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    except struct.error:
        raise WireError(f"a frame of {len(frame)} bytes is too short for a response header") from None
    position = _CORRELATION_ID.size
    if api_version >= _TAGGED_RESPONSE_FROM.get(api_key, _NEVER_FLEXIBLE):
        tags, position = read_tag_count(frame, position)
        position = skip_tags(frame, position, tags)
    return correlation_id, position
