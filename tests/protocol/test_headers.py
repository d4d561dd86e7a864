"""kafka_wire.headers."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.dense_messages import dense_tags
from kafka_wire.apis import ApiKey
from kafka_wire.errors import WireError
from kafka_wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)
from kafka_wire.primitives import MAX_TAGS


@given(st.sampled_from(ApiKey), st.integers(0, 30), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=50))
def test_a_request_header_reads_as_it_was_written(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    header = RequestHeader(api_key, api_version, correlation_id, client_id)
    encoded = request_header(header)
    assert read_request_header(memoryview(encoded + b"body")) == (header, len(encoded))


def test_the_client_id_keeps_its_old_length_in_flexible_headers() -> None:
    old = request_header(RequestHeader(ApiKey.PRODUCE, 8, 7, "me"))
    flexible = request_header(RequestHeader(ApiKey.PRODUCE, 9, 7, "me"))
    assert old == b"\0\0\0\x08\0\0\0\x07\0\x02me"
    assert flexible == b"\0\0\0\x09\0\0\0\x07\0\x02me\0"


def test_unknown_tags_in_a_header_are_skipped() -> None:
    frame = b"\0\0\0\x09\0\0\0\x07\xff\xff" + b"\x01\x05\x02ab" + b"body"
    header, position = read_request_header(frame)
    assert header.client_id is None
    assert frame[position:] == b"body"


def test_a_header_may_have_as_many_tags_as_any_struct() -> None:
    request = request_header(RequestHeader(ApiKey.API_VERSIONS, 3, 5, "me"))[:-1]
    response = response_header(ApiKey.FETCH, 12, 5)[:-1]
    read_request_header(request + dense_tags(MAX_TAGS))
    read_response_header(ApiKey.FETCH, 12, response + dense_tags(MAX_TAGS))
    with pytest.raises(WireError, match="300000 tagged fields"):
        read_request_header(request + dense_tags(300_000))
    with pytest.raises(WireError, match="101 tagged fields"):
        read_response_header(ApiKey.FETCH, 12, response + dense_tags(MAX_TAGS + 1))


def test_a_too_new_api_versions_request_still_tells_who_asks() -> None:
    encoded = request_header(RequestHeader(ApiKey.API_VERSIONS, 99, 5, "future"))
    header, _ = read_request_header(encoded + b"\xff\xff\xff")
    assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 5, "future")


def test_an_unknown_api_still_tells_who_asks() -> None:
    encoded = request_header(RequestHeader(4711, 3, 5, "client"))
    assert read_request_header(encoded + b"\xff\xff") == (RequestHeader(4711, 3, 5, "client"), len(encoded))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "too short"),
        (b"\0\0\0\x03\0\0\0\x07\0", "too short"),
        (b"\0\0\0\x03\0\0\0\x07\0\x05me", "past the end"),
        (b"\0\0\0\x03\0\0\0\x07\xff\xfe", "length -2"),
        (b"\0\0\0\x03\0\0\0\x07\0\x01\xff", "UTF-8"),
        (b"\0\0\0\x09\0\0\0\x07\0\x01a", "past the end"),
        (b"\0\0\0\x09\0\0\0\x07\0\x01a\x01\x00\x09", "past the end"),
    ],
)
def test_a_broken_request_header_is_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_request_header(memoryview(frame))


@given(st.binary(max_size=40))
def test_nothing_but_wire_errors_comes_from_reading_a_header(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        read_request_header(memoryview(frame))


def test_a_header_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(ValueError, match="client id"):
        request_header(RequestHeader(0, 9, 1, "x" * 40_000))
    with pytest.raises(ValueError, match="correlation_id"):
        request_header(RequestHeader(0, 9, 2**31, "x"))


def test_a_flexible_response_has_tags_in_its_header() -> None:
    assert response_header(ApiKey.PRODUCE, 8, 258) == b"\0\0\1\2"
    assert response_header(ApiKey.PRODUCE, 9, 258) == b"\0\0\1\2\0"


def test_the_api_versions_response_never_has_tags_in_its_header() -> None:
    assert response_header(ApiKey.API_VERSIONS, 4, 258) == b"\0\0\1\2"


@given(st.sampled_from(ApiKey), st.integers(0, 30), st.integers(-(2**31), 2**31 - 1))
def test_a_response_header_reads_as_it_was_written(api_key: int, api_version: int, correlation_id: int) -> None:
    encoded = response_header(api_key, api_version, correlation_id)
    assert read_response_header(api_key, api_version, encoded + b"body") == (correlation_id, len(encoded))


def test_a_response_header_that_is_cut_off_is_refused() -> None:
    with pytest.raises(WireError, match="too short"):
        read_response_header(ApiKey.FETCH, 12, b"\0\0")
