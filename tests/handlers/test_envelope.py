"""Envelope: what the controller opens, and what it refuses of it."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafka_wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kafka_wire.messages.metadata import MetadataRequest
from tests.handlers.handler_client import CONNECTION, joined
from tests.handlers.two_brokers import FROM_BROKER, HERE, NOWHERE, Locator, Peers, in_cluster
from tests.handlers.wire_client import WireClient
from trio_broker.network.errors import CloseConnection

ADDRESS = bytes((10, 0, 0, 77))

CREATE = CreateTopicsRequest(
    topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
)


def request_data(body: bytes, *, api_key: int = ApiKey.CREATE_TOPICS, version: int = 7) -> bytes:
    return request_header(RequestHeader(api_key, version, 5, "client")) + body


ALICE = b"\0\0" + b"\x05User" + b"\x06alice" + b"\0" + b"\0"
"""``User:alice`` as Kafka's DefaultKafkaPrincipalBuilder writes it."""

CREATE_DATA = request_data(joined(encode(CREATE, 7)))


@pytest.fixture
def locator() -> Locator:
    return Locator(HERE)


@pytest.fixture
def controller(wire, locator) -> WireClient:
    return in_cluster(wire, locator, Peers(), FROM_BROKER)


async def answered(
    controller: WireClient, data: bytes, address: bytes = ADDRESS, principal: bytes | None = None
) -> EnvelopeResponse:
    request = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)
    response: EnvelopeResponse = await controller.ask(request, 0)
    return response


@pytest.mark.parametrize("address", [ADDRESS, bytes(15) + b"\1"])
async def test_the_answer_has_the_header_and_the_version_of_the_request_in_it(controller, address):
    response = await answered(controller, CREATE_DATA, address)
    assert response.error_code == 0
    assert response.response_data is not None
    correlation_id, position = read_response_header(ApiKey.CREATE_TOPICS, 7, response.response_data)
    created, end = decode(CreateTopicsResponse, 7, response.response_data, position)
    assert (correlation_id, created.topics[0].error_code, end) == (5, 0, len(response.response_data))
    assert "orders" in controller.services.metadata_cache.image.topics


@pytest.mark.parametrize("where", [NOWHERE, "another"])
async def test_a_broker_that_is_not_the_controller_says_so_about_the_envelope(controller, locator, where):
    locator.controller_name = where
    response = await answered(controller, CREATE_DATA)
    assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)
    assert "orders" not in controller.services.metadata_cache.image.topics


@pytest.mark.parametrize(
    ("data", "address", "code"),
    [
        (CREATE_DATA, b"", ErrorCode.INVALID_REQUEST),
        (CREATE_DATA, b"12345", ErrorCode.INVALID_REQUEST),
        (request_data(joined(encode(MetadataRequest(topics=[]), 12)), api_key=3, version=12), ADDRESS, 42),
        (request_data(b"", api_key=ApiKey.ENVELOPE, version=0), ADDRESS, ErrorCode.INVALID_REQUEST),
        (request_data(b"", api_key=30_000), ADDRESS, ErrorCode.INVALID_REQUEST),
        (request_data(b"", version=99), ADDRESS, ErrorCode.UNSUPPORTED_VERSION),
        (b"\0\x13", ADDRESS, ErrorCode.UNSUPPORTED_VERSION),
        (CREATE_DATA[:-8], ADDRESS, ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=["no address", "no such address", "Metadata", "Envelope", "unknown", "version", "header", "body"],
)
async def test_what_is_no_request_of_the_controller_is_the_error_of_the_envelope(controller, data, address, code):
    assert (await answered(controller, data, address)).error_code == code


@pytest.mark.parametrize("principal", [b"", b"\0", b"\0\1" + ALICE[2:], ALICE[:-1], ALICE + b"\0"])
async def test_a_principal_that_cannot_be_read_is_the_error_of_the_envelope(controller, principal):
    response = await answered(controller, CREATE_DATA, principal=principal)
    assert response.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


async def test_the_principal_in_it_is_the_one_that_changes_something(controller):
    await answered(controller, CREATE_DATA, principal=ALICE)
    [change] = [each for each in controller.services.changes.changes if each.resource == "orders"]
    assert change.origin.principal == "User:alice"


async def test_other_listeners_let_no_envelope_in(wire, locator):
    client = in_cluster(wire, locator, Peers(), CONNECTION)
    with pytest.raises(CloseConnection, match="ENVELOPE is between brokers"):
        await answered(client, CREATE_DATA)


async def test_a_broker_alone_lets_no_envelope_in(wire):
    for connection in (CONNECTION, FROM_BROKER):
        with pytest.raises(CloseConnection, match="ENVELOPE is between brokers"):
            await answered(attrs.evolve(wire, connection=connection), CREATE_DATA)


async def test_it_is_advertised_on_the_listener_of_brokers_alone(wire, locator):
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    cluster = in_cluster(wire, locator, Peers(), FROM_BROKER)
    clients = (cluster, attrs.evolve(cluster, connection=CONNECTION), wire)
    listed = [{each.api_key for each in (await client.ask(request, 4)).api_keys} for client in clients]
    assert [ApiKey.ENVELOPE in keys for keys in listed] == [True, False, False]
