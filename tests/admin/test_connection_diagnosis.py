"""The diagnosis of connections: real clients that cannot connect or cannot come back, and what it finds."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from functools import partial

import pytest
import trio

from broker_admin.connection_diagnosis import Severity, diagnose_listener
from broker_admin.views.node.connection_diagnosis import ListenerFacts, ProbeResult
from kafka_wire.apis import ApiKey
from kafka_wire.headers import RequestHeader, request_header
from kafka_wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.admin.live_admin import open_live_admin, pointers
from tests.running_broker import WAIT_SECONDS
from tests.waits import fail_after

REMOTE = "192.0.2.7"


def address_of(live):
    return live.kafka.stream.socket.getpeername()[:2]


async def failures(live, cause):
    """The failed handshakes with ``cause``, once there is one."""
    with fail_after(WAIT_SECONDS):
        while True:
            found = (await live.get("/api/v1/brokers/1/connection-diagnosis"))["failed_handshakes"]
            if matching := [each for each in found if each["handshake"]["cause"] == cause]:
                return matching


# --- who failed to connect ---


async def test_a_tls_client_at_a_plaintext_listener_is_named(live):
    stream = await trio.open_tcp_stream(*address_of(live))
    context = ssl.create_default_context()
    with pytest.raises(trio.BrokenResourceError):
        await trio.SSLStream(stream, context, server_hostname="localhost").do_handshake()
    await stream.aclose()
    [failure] = await failures(live, "TLS")
    assert "security.protocol=PLAINTEXT" in failure["meaning"]
    assert failure["handshake"]["peer_host"] == "127.0.0.1"


async def test_an_http_client_at_the_kafka_port_is_named(live):
    stream = await trio.open_tcp_stream(*address_of(live))
    await stream.send_all(b"GET /topics HTTP/1.1\r\nHost: broker\r\n\r\n")
    assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 400")
    await stream.aclose()
    [failure] = await failures(live, "HTTP")
    assert "admin page" in failure["meaning"]


async def test_a_client_of_an_unsupported_version_is_named_with_its_id(live):
    stream = await trio.open_tcp_stream(*address_of(live))
    content = request_header(RequestHeader(ApiKey.FETCH, 99, 1, "<b>evil</b>"))
    await stream.send_all(struct.pack(">i", len(content)) + content)
    assert await stream.receive_some(1) == b""
    await stream.aclose()
    [failure] = await failures(live, "unsupported version")
    assert failure["handshake"]["client_id"] == "<b>evil</b>"
    assert failure["handshake"]["reason"] == "Fetch version 99 is not served here"


# --- whether clients can come back ---


async def test_a_listener_that_advertises_where_it_listens_is_fine_for_a_client_of_this_machine(live):
    diagnosis = await live.get("/api/v1/brokers/1/connection-diagnosis", address="127.0.0.1")
    [listener] = diagnosis["listeners"]
    assert listener["severity"] == "fine"
    assert listener["facts"]["probe"] == "this broker"
    assert listener["answer"] == f"127.0.0.1, port {live.broker.bound_endpoints[0].port}"


async def test_a_client_of_another_machine_is_sent_to_itself_by_a_loopback_address(tmp_path):
    settings = {"listeners": "PLAINTEXT://0.0.0.0:0", "advertised_listeners": "PLAINTEXT://localhost:0"}
    async with open_live_admin(tmp_path, **settings) as live:
        [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address=REMOTE))["listeners"]
        assert listener["severity"] == "broken"
        [finding] = [each for each in listener["findings"] if each["severity"] == "broken"]
        assert (
            finding["detail"] == f"a client at {REMOTE} is sent to localhost, which is the client's own machine there"
        )
        assert "advertised.listeners" in finding["advice"]
        [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address="::1"))["listeners"]
        assert listener["severity"] == "fine"


async def test_an_advertised_port_at_which_nothing_listens_is_found(tmp_path):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but it does not listen: connections are refused
        port = taken.getsockname()[1]
        async with open_live_admin(tmp_path, advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}") as live:
            [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address="127.0.0.1"))["listeners"]
    assert (listener["severity"], listener["facts"]["probe"]) == ("broken", "refused")
    assert f"nothing listens at 127.0.0.1:{port}" in [each["detail"] for each in listener["findings"]]


async def test_an_advertised_name_without_an_address_is_found(tmp_path):
    async with open_live_admin(tmp_path, advertised_listeners="PLAINTEXT://no-such-host.invalid:9092") as live:
        [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address="127.0.0.1"))["listeners"]
    assert (listener["severity"], listener["facts"]["probe"]) == ("broken", "unresolved")
    assert listener["facts"]["resolved_addresses"] == []


async def test_an_advertised_port_of_something_else_is_found(tmp_path, nursery):
    async def greet(stream):
        await stream.send_all(b"220 mail.example ESMTP\r\n" * 10)
        await stream.aclose()

    [other] = await nursery.start(partial(trio.serve_tcp, greet, 0, host="127.0.0.1"))
    port = other.socket.getsockname()[1]
    async with open_live_admin(tmp_path, advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}") as live:
        [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address="127.0.0.1"))["listeners"]
    assert listener["facts"]["probe"] == "not Kafka"


async def test_an_advertised_address_of_another_cluster_is_found(tmp_path):
    async with open_live_admin(tmp_path / "other") as other:
        advertised = f"PLAINTEXT://127.0.0.1:{other.broker.bound_endpoints[0].port}"
        async with open_live_admin(tmp_path / "this", advertised_listeners=advertised) as live:
            [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address="127.0.0.1"))["listeners"]
    assert listener["facts"]["probe"] == "another broker"


async def test_an_advertised_address_of_another_broker_of_the_cluster_is_found(tmp_path, monkeypatch):
    async with open_live_admin(tmp_path, advertised_listeners="PLAINTEXT://127.0.0.1:9092") as live:

        async def answer(host, port):
            brokers = [MetadataResponseBroker(node_id=number, host="127.0.0.1", port=9092) for number in (1, 2)]
            return MetadataResponse(cluster_id=live.broker.services.node.cluster_id, brokers=brokers, topics=[])

        monkeypatch.setattr("trio_broker.broker_view.node.connection_diagnosis.ask_for_metadata", answer)
        [listener] = (await live.get("/api/v1/brokers/1/connection-diagnosis", address="127.0.0.1"))["listeners"]
    assert listener["facts"]["probe"] == "another broker"


@pytest.mark.parametrize("address", ["localhost", "192.0.2.7; rm", "<script>", "1.2.3"])
async def test_what_is_no_address_is_pointed_at(live, address):
    answer = await live.http.get("/api/v1/brokers/1/connection-diagnosis", params={"address": address})
    assert pointers(answer, 400) == ["?address"]


# --- findings from facts ---


def listener_facts(**changed):
    values = {
        "listener_name": "PLAINTEXT", "bound_host": "0.0.0.0", "bound_port": 9092, "advertised_host": "broker.example",
        "advertised_port": 9092, "resolved_addresses": ("192.0.2.1",), "probe": ProbeResult.THIS_BROKER,
        "remote_peers": (), "remote_peer_count": 0,
    }  # fmt: skip
    return ListenerFacts(**{**values, **changed})


def test_clients_that_are_connected_from_elsewhere_and_sent_to_loopback_are_named():
    facts = listener_facts(
        advertised_host="localhost",
        resolved_addresses=("127.0.0.1", "::1"),
        remote_peers=(REMOTE,),
        remote_peer_count=3,
    )
    found = diagnose_listener("127.0.0.1", facts)
    assert found.severity is Severity.BROKEN
    assert any(f"({REMOTE} and 2 more)" in finding.detail for finding in found.findings)


def test_a_name_of_loopback_addresses_is_loopback_by_any_name():
    facts = listener_facts(advertised_host="ip6-localhost", resolved_addresses=("::1",))
    assert diagnose_listener(REMOTE, facts).severity is Severity.BROKEN


def test_a_listener_of_loopback_is_out_of_reach_for_others():
    facts = listener_facts(bound_host="127.0.0.1", advertised_host="192.0.2.1")
    found = diagnose_listener(REMOTE, facts)
    assert found.severity is Severity.BROKEN
    assert found.findings[0].advice == "listeners=PLAINTEXT://0.0.0.0:9092"


def test_the_dialled_address_always_leads_back():
    facts = listener_facts(advertised_host="", resolved_addresses=("127.0.0.1",))
    found = diagnose_listener(REMOTE, facts)
    assert (found.severity, found.answer) == (Severity.FINE, "the address that it dialled, port 9092")


def test_no_answer_is_doubtful_since_the_way_of_clients_may_be_another():
    assert diagnose_listener(REMOTE, listener_facts(probe=ProbeResult.UNREACHABLE)).severity is Severity.DOUBTFUL
