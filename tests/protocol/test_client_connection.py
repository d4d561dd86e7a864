"""The client's half of a connection: several requests in flight, their answers in order, and what is no answer."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.client_connection import MAX_CORRELATION_ID, ApiNotServed, ClientConnection
from kafka_wire.codec import decode, encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.framing import SIZE_PREFIX
from kafka_wire.headers import read_request_header, response_header
from kafka_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

NEWEST_VERSION = ApiVersionsRequest.VERSIONS.high

SERVED = [
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4),
    ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=3),
    ApiVersion(api_key=ApiKey.LIST_GROUPS, min_version=0, max_version=99),
]


def agreed() -> ClientConnection:
    """A connection that has received which versions the broker has."""
    connection = ClientConnection("tests", "trio-broker", "1")
    connection.begin()
    answer = answer_to(1, ApiVersionsResponse(api_keys=SERVED), ApiKey.API_VERSIONS, NEWEST_VERSION)
    assert connection.receive_api_versions(answer) is None
    return connection


def answer_to(correlation_id: int, response: Any, api_key: int, version: int) -> bytes:
    return response_header(api_key, version, correlation_id) + encode_bytes(response, version)


def heartbeat(member: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=member)


def test_it_begins_with_its_name_and_version():
    [sent] = ClientConnection("tests", "trio-broker", "1").begin()
    assert SIZE_PREFIX.unpack_from(sent)[0] == len(sent) - SIZE_PREFIX.size
    header, position = read_request_header(memoryview(sent)[SIZE_PREFIX.size :])
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.API_VERSIONS, NEWEST_VERSION, "tests")
    request, _ = decode(ApiVersionsRequest, NEWEST_VERSION, sent, SIZE_PREFIX.size + position)
    assert (request.client_software_name, request.client_software_version) == ("trio-broker", "1")


def test_requests_in_flight_are_answered_in_their_order():
    connection = agreed()
    one, _ = connection.request(heartbeat(), connection.version_for(HeartbeatRequest))
    other, _ = connection.request(ListGroupsRequest(), 5)
    assert list(connection.in_flight) == [one, other]
    beat = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert connection.receive_response(answer_to(2, beat, ApiKey.HEARTBEAT, 3)) == (one, beat)
    groups = ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])
    assert connection.receive_response(answer_to(3, groups, ApiKey.LIST_GROUPS, 5)) == (other, groups)
    assert not connection.in_flight


def test_an_answer_out_of_order_is_refused():
    connection = agreed()
    connection.request(heartbeat(), 3)
    connection.request(heartbeat(), 3)
    with pytest.raises(WireError, match="answered request 3, not 2"):
        connection.receive_response(answer_to(3, HeartbeatResponse(), ApiKey.HEARTBEAT, 3))


def test_an_answer_to_no_request_is_refused():
    with pytest.raises(WireError, match="to no request"):
        agreed().receive_response(answer_to(2, HeartbeatResponse(), ApiKey.HEARTBEAT, 3))


def test_a_request_that_cannot_be_encoded_is_not_in_flight():
    connection = agreed()
    with pytest.raises(ValueError, match="HeartbeatRequest v3"):
        connection.request(heartbeat("x" * 40_000), 3)
    in_flight, _ = connection.request(heartbeat(), 3)
    assert list(connection.in_flight) == [in_flight]
    assert in_flight.correlation_id == 2


def test_a_request_without_an_answer_is_not_in_flight_and_uses_an_id():
    connection = agreed()
    assert connection.unanswered_request(heartbeat(), 3)
    assert not connection.in_flight
    assert connection.request(heartbeat(), 3)[0].correlation_id == 3


def test_correlation_ids_begin_anew_after_the_largest():
    connection = agreed()
    connection._correlation_id = MAX_CORRELATION_ID - 1
    assert [connection.request(heartbeat(), 3)[0].correlation_id for _ in range(3)] == [MAX_CORRELATION_ID, 0, 1]


def test_the_newest_version_of_both_sides_is_chosen():
    connection = agreed()
    assert connection.version_for(HeartbeatRequest) == 3
    assert connection.version_for(ListGroupsRequest) == ListGroupsRequest.VERSIONS.high
    with pytest.raises(ApiNotServed, match=r"serves Heartbeat in versions 0-3; versions 4 are needed"):
        connection.version_for(HeartbeatRequest, at_least=4)


def test_a_refusal_of_every_version_is_final():
    connection = ClientConnection("tests", "trio-broker", "1")
    connection.begin()
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=SERVED[:1])
    assert connection.receive_api_versions(answer_to(1, refusal, ApiKey.API_VERSIONS, 0))
    assert [each.version for each in connection.in_flight] == [4]
    with pytest.raises(KafkaError) as raised:
        connection.receive_api_versions(answer_to(2, refusal, ApiKey.API_VERSIONS, 0))
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_unknown_error_code_is_not_kafka():
    connection = ClientConnection("tests", "trio-broker", "1")
    connection.begin()
    strange = ApiVersionsResponse(error_code=9999, api_keys=[])
    with pytest.raises(WireError, match="error code 9999"):
        connection.receive_api_versions(answer_to(1, strange, ApiKey.API_VERSIONS, NEWEST_VERSION))
