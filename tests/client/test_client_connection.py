"""One connection: versions, correlation ids, and what another server may send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode_bytes
from kafka_wire.framing import MAX_RESPONSE_BYTES
from kafka_wire.headers import response_header
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.client.scripted_client import CLIENT_ID, WAIT_SECONDS
from tests.fakes.scripted_kafka import (
    CLOSED,
    HOST,
    SILENCE,
    Misnumbered,
    Raw,
    ScriptedKafka,
    api_versions,
    served_up_to,
)
from tests.waits import scaled
from trio_broker import __version__
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ConnectFailed, ConnectionLost, NotKafka, Refused, TimedOut, VersionNotServed
from trio_broker.client.receive_buffer import ReceiveBuffer
from trio_broker.client.security import ClientSecurity

SETTINGS = ConnectionSettings((), CLIENT_ID)
UNSUPPORTED_VERSION = 35
GROUPS = ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])


@contextmanager
def connected(server: ScriptedKafka, seconds: float = WAIT_SECONDS) -> Iterator[BrokerConnection]:
    with server:
        [address] = parse_addresses(server.address)
        connection = BrokerConnection.open(address, SETTINGS, Deadline(seconds))
        try:
            yield connection
        finally:
            connection.close()


def ask(connection: BrokerConnection, version: int | None = None, seconds: float = WAIT_SECONDS) -> ListGroupsResponse:
    return connection.ask(ListGroupsRequest(), Deadline(seconds), version)


def test_correlation_ids_begin_anew_after_the_largest():
    with connected(ScriptedKafka({ListGroupsRequest: GROUPS})) as connection:
        connection._protocol._correlation_id = 2**31 - 2
        for following in (2**31 - 1, 0, 1):
            assert ask(connection).groups[0].group_id == "g"
            assert connection._protocol._correlation_id == following


# Versions


def test_the_newest_version_that_both_know_is_used():
    server = ScriptedKafka({ListGroupsRequest: GROUPS}, served=served_up_to(ApiKey.LIST_GROUPS, 3))
    with connected(server) as connection:
        assert ask(connection).groups[0].group_id == "g"
    assert server.versions(ListGroupsRequest) == [3]


def test_ours_is_used_where_the_broker_knows_newer_ones():
    server = ScriptedKafka({ListGroupsRequest: GROUPS}, served=served_up_to(ApiKey.LIST_GROUPS, 99))
    with connected(server) as connection:
        ask(connection)
        assert server.versions(ListGroupsRequest) == [ListGroupsRequest.VERSIONS.high]
        assert connection.version_for(ListGroupsRequest, at_most=2) == 2


@pytest.mark.parametrize(("low", "high"), [(90, 99), (0, 2)])
def test_without_a_common_version_the_error_tells_both_ranges(low: int, high: int):
    server = ScriptedKafka(served=served_up_to(ApiKey.LIST_GROUPS, high, low))
    with connected(server) as connection:
        with pytest.raises(VersionNotServed, match=rf"ListGroups in versions {low}-{high}; versions 4-5 are needed"):
            connection.version_for(ListGroupsRequest, at_least=4)
        assert connection.serves(ListGroupsRequest) == (low == 0)


def test_an_api_that_is_not_served_is_named():
    server = ScriptedKafka()
    del server.served[ApiKey.LIST_GROUPS]
    with connected(server) as connection:
        assert not connection.serves(ListGroupsRequest)
        with pytest.raises(VersionNotServed, match=r"does not serve ListGroups$"):
            ask(connection)


@pytest.mark.parametrize(("advertised", "version"), [(served_up_to(ApiKey.API_VERSIONS, 2), 2), ({}, 0)])
def test_an_older_broker_is_asked_again_in_the_version_that_it_tells(
    advertised: dict[int, tuple[int, int]], version: int
):
    """KIP-511; and brokers before it tell nothing beside the error."""
    server = ScriptedKafka()
    server.answers[ApiVersionsRequest] = [api_versions(advertised, UNSUPPORTED_VERSION), api_versions(server.served)]
    with connected(server) as connection:
        assert connection.served[ApiKey.LIST_GROUPS] == (0, 5)
    assert server.versions(ApiVersionsRequest) == [ApiVersionsRequest.VERSIONS.high, version]


def test_a_broker_that_refuses_every_version_is_not_asked_for_ever():
    server = ScriptedKafka({ApiVersionsRequest: api_versions({}, UNSUPPORTED_VERSION)})
    with pytest.raises(Refused, match="UNSUPPORTED_VERSION"), connected(server):
        pass
    assert len(server.asked) == 2


def test_the_broker_receives_the_name_of_the_client():
    with connected(server := ScriptedKafka()):
        pass
    [request] = server.requests(ApiVersionsRequest)
    assert (request.client_software_name, request.client_software_version) == ("trio-broker", __version__)


# What goes wrong


def test_an_answer_in_pieces_is_put_together():
    body = response_header(ApiKey.LIST_GROUPS, 0, 2) + encode_bytes(GROUPS, 0)
    framed = len(body).to_bytes(4, "big") + body
    server = ScriptedKafka({ListGroupsRequest: Raw(tuple(bytes([byte]) for byte in framed))})
    with connected(server) as connection:
        assert ask(connection, 0).groups[0].group_id == "g"


def test_nobody_listening_is_reported_with_the_address():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    [address] = parse_addresses(f"127.0.0.1:{port}")
    with pytest.raises(ConnectFailed, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        BrokerConnection.open(address, SETTINGS, Deadline(scaled(WAIT_SECONDS)))


def test_a_host_name_that_cannot_be_one_is_reported():
    [address] = parse_addresses("a..b:1")
    with pytest.raises(ConnectFailed, match=r"cannot connect to a\.\.b:1"):
        BrokerConnection.open(address, SETTINGS, Deadline(scaled(WAIT_SECONDS)))


def test_no_connection_is_tried_when_the_time_is_over():
    [address] = parse_addresses("127.0.0.1:1")
    with pytest.raises(ConnectFailed, match="no answer"):
        BrokerConnection.open(address, SETTINGS, Deadline(0))


@pytest.mark.parametrize(
    "first_bytes",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x28",
        (MAX_RESPONSE_BYTES + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\3abc",
    ],
    ids=["http", "tls", "too large", "negative", "too small"],
)
def test_another_protocol_is_recognised_by_the_size(first_bytes: bytes):
    server = ScriptedKafka({ApiVersionsRequest: Raw((first_bytes,))})
    with pytest.raises(NotKafka, match="a listener that wants TLS"), connected(server):
        pass


@pytest.mark.parametrize("cut", [0, 2, 4, 7])
def test_a_connection_that_ends_early_is_lost(cut: int):
    body = response_header(ApiKey.LIST_GROUPS, 5, 2) + encode_bytes(GROUPS, 5)
    server = ScriptedKafka({ListGroupsRequest: Raw(((len(body).to_bytes(4, "big") + body)[:cut],))})
    with connected(server) as connection, pytest.raises(ConnectionLost, match=f"{server.address}.*ListGroups"):
        ask(connection)
    assert not connection.is_usable


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Misnumbered(GROUPS), "answered request 3, not 2"),
        (Raw((b"\0\0\0\x08\0\0\0\2\0\0\0\0",)), "ListGroupsResponse v5"),
        (Raw((b"\0\0\0\4\0\0\0\2",)), "ListGroups"),
    ],
    ids=["another request's", "cut body", "cut header"],
)
def test_garbage_ends_the_connection(answer: Any, reason: str):
    server = ScriptedKafka({ListGroupsRequest: answer})
    with connected(server) as connection, pytest.raises(NotKafka, match=reason):
        ask(connection)
    assert not connection.is_usable


def test_a_connection_that_closes_on_the_first_request_is_lost():
    with pytest.raises(ConnectFailed, match="ApiVersions"), connected(ScriptedKafka({ApiVersionsRequest: CLOSED})):
        pass


def test_silence_ends_with_the_deadline():
    server = ScriptedKafka({ListGroupsRequest: SILENCE})
    with connected(server) as connection, pytest.raises(TimedOut, match=r"did not answer ListGroups within 0\.05 s"):
        ask(connection, seconds=0.05)
    assert not connection.is_usable


# The two halves of a question


def test_a_request_may_be_sent_long_before_its_answer_is_wanted():
    with connected(ScriptedKafka({ListGroupsRequest: GROUPS})) as connection:
        pending = connection.begin(ListGroupsRequest(), Deadline(scaled(WAIT_SECONDS)))
        assert pending.version == ListGroupsRequest.VERSIONS.high
        assert connection.finish(pending, Deadline(scaled(WAIT_SECONDS))).groups[0].group_id == "g"
        assert ask(connection).groups[0].group_id == "g"


def test_no_second_request_is_sent_before_the_first_is_answered():
    with connected(ScriptedKafka({ListGroupsRequest: GROUPS})) as connection:
        connection.begin(ListGroupsRequest(), Deadline(scaled(WAIT_SECONDS)))
        with pytest.raises(AssertionError, match="was not finished"):
            ask(connection)


def test_answers_share_a_buffer():
    with connected(ScriptedKafka({ListGroupsRequest: GROUPS})) as connection:
        buffer = ReceiveBuffer()
        for _ in range(2):
            pending = connection.begin(ListGroupsRequest(), Deadline(scaled(WAIT_SECONDS)))
            assert connection.finish(pending, Deadline(scaled(WAIT_SECONDS)), buffer=buffer) == GROUPS


@pytest.mark.parametrize("enough", [True, False])
def test_an_answer_may_be_as_large_as_the_one_who_asks_says(enough: bool):
    size = len(response_header(ApiKey.LIST_GROUPS, 5, 2) + encode_bytes(GROUPS, 5))
    with connected(ScriptedKafka({ListGroupsRequest: GROUPS})) as connection:
        pending = connection.begin(ListGroupsRequest(), Deadline(scaled(WAIT_SECONDS)))
        if enough:
            assert connection.finish(pending, Deadline(scaled(WAIT_SECONDS)), max_bytes=size) == GROUPS
        else:
            with pytest.raises(NotKafka, match=f"a frame of {size} bytes; allowed are 4 to {size - 1}"):
                connection.finish(pending, Deadline(scaled(WAIT_SECONDS)), max_bytes=size - 1)


def test_requests_go_over_the_socket_that_the_security_makes():
    class Secured(ClientSecurity):
        def secured(self, sock: socket.socket, host: str) -> socket.socket:
            assert host == HOST
            return socket.socket(fileno=sock.detach())

    with ScriptedKafka() as server:
        [address] = parse_addresses(server.address)
        settings = attrs.evolve(SETTINGS, security=Secured())
        connection = BrokerConnection.open(address, settings, Deadline(scaled(WAIT_SECONDS)))
        assert connection.served
        connection.close()


def test_the_sockets_buffer_is_set_where_a_size_is_given():
    with ScriptedKafka() as server:
        [address] = parse_addresses(server.address)
        settings = attrs.evolve(SETTINGS, receive_buffer_bytes=20_000)
        connection = BrokerConnection.open(address, settings, Deadline(scaled(WAIT_SECONDS)))
        size = connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        connection.close()
    assert size in (20_000, 40_000), "Linux doubles it for its own needs"
