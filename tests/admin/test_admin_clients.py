"""The routes of clients and connections, over a real broker."""

from __future__ import annotations

import pytest

from broker_admin.client_advice import error_advice, producer_advice
from broker_admin.client_list import gather_clients
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.metadata import MetadataRequest
from tests.admin.live_admin import open_live_admin, pointers
from tests.admin.page_reading import HOSTILE, assert_shows, page_of
from tests.running_broker import connected, until
from trio_broker.network.statistics import ConnectionStage, ProducedBatches


async def own_connection(live):
    """The connection of the fixture's Kafka client."""
    local_port = live.kafka.stream.socket.getsockname()[1]
    page = await live.get("/api/v1/brokers/1/connections")
    [connection] = [each for each in page["items"] if each["peer_port"] == local_port]
    return connection


async def test_a_connection_is_listed_with_what_it_carried_and_the_versions_it_used(live):
    await live.kafka.ask(ApiVersionsRequest(client_software_name="kcat", client_software_version="1.7.1"), 3)
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one", b"two")
    connection = await own_connection(live)
    assert (connection["software_name"], connection["software_version"]) == ("kcat", "1.7.1")
    assert (connection["listener_name"], connection["peer_host"]) == ("PLAINTEXT", "127.0.0.1")
    assert connection["requests"] == sum(use["requests"] for use in connection["apis"]) >= 3
    assert {"api": "ApiVersions", "version": 3, "requests": 1} in connection["apis"]
    assert connection["bytes_in"] > 0
    assert connection["bytes_out"] > 0
    assert (connection["stage"], connection["muted_because"], connection["request"]) == ("idle", None, None)
    produced = connection["produced"]
    assert (produced["batches"], produced["records"], produced["batches_by_codec"]) == (1, 2, {"none": 1})
    assert produced["idempotent_batches"] == 0


async def test_the_errors_that_a_client_got_are_counted_by_api(live):
    assert await live.kafka.produce("nothing-of-the-kind", b"one") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    connection = await own_connection(live)
    assert connection["errors"] == 1
    assert connection["errors_by_api"] == [{"api": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION", "count": 1}]


async def test_a_batch_that_was_too_large_leads_to_the_settings_of_topic_and_client(live):
    hello = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.4.0")
    await live.kafka.ask(hello, 3)
    await live.kafka.create_topic("orders")
    assert await live.kafka.produce("orders", b"." * 1_100_000) == ErrorCode.MESSAGE_TOO_LARGE
    connection = await own_connection(live)
    page = await page_of(live.http, "/brokers/1/clients/client", client_id=connection["client_id"])
    assert_shows(page, error_advice("MESSAGE_TOO_LARGE", connection["software_name"]))


@pytest.mark.parametrize(
    ("software", "setting"),
    [
        ("apache-kafka-java", "max.request.size"),
        ("confluent-kafka-python", "message.max.bytes"),
        ("kafka-python", "max_request_size"),
        ("kgo", "ProducerBatchMaxBytes"),
        ("", "its own limit of a request"),
    ],
)
def test_each_client_has_its_own_name_for_the_setting(software, setting):
    advice = error_advice("MESSAGE_TOO_LARGE", software)
    assert "larger than max.message.bytes of its topic" in advice
    assert f"Raise that, and {setting} of this client" in advice
    assert error_advice("UNKNOWN_TOPIC_OR_PARTITION", software) == ""


async def test_a_client_that_has_left_is_reported_for_an_hour_with_its_errors(live):
    async with connected(live.broker, "billing") as gone:
        await gone.ask(ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2"), 3)
        assert await gone.produce("nothing-of-the-kind", b"one") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await until(live.view.node.clients.departed_connections)
    [left] = (await live.get("/api/v1/brokers/1/clients", left="true"))["items"]
    assert (left["client_id"], left["errors"], left["left_because"]) == ("billing", 1, "closed by the client")
    assert (await live.get("/api/v1/brokers/1/clients", search="billing"))["items"] == []
    [described] = (await live.get("/api/v1/brokers/1/clients/describe", client_id="billing"))["clients"]
    assert described["left_at_ms"] == left["left_at_ms"]
    page = await page_of(live.http, "/brokers/1/clients/client", client_id="billing")
    assert_shows(page, "rdkafka 2 left at", "UNKNOWN_TOPIC_OR_PARTITION")
    assert_shows(await page_of(live.http, "/brokers/1/clients", left="true"), "left at")


async def test_a_client_that_is_back_has_not_left(live):
    async with connected(live.broker, "billing") as gone:
        await gone.ask(MetadataRequest(topics=[]), 9)
    await until(live.view.node.clients.departed_connections)
    async with connected(live.broker, "billing") as back:
        await back.ask(MetadataRequest(topics=[]), 9)
        assert (await live.get("/api/v1/brokers/1/clients", left="true"))["items"] == []
        [described] = (await live.get("/api/v1/brokers/1/clients/describe", client_id="billing"))["clients"]
        assert (described["left_at_ms"], described["connections"]) == (None, 1)


async def test_an_api_versions_of_a_version_to_come_is_answered_and_not_counted(live):
    with pytest.raises(Exception):  # noqa: B017, PT011 (the client cannot read the answer, which has version 0)
        await live.kafka.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 99)
    assert (await own_connection(live))["apis"] == []


async def test_connections_are_gathered_by_client_id_and_software(live):
    async with connected(live.broker) as other:
        await other.ask(ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2"), 3)
        await live.kafka.ask(MetadataRequest(topics=[]), 9)
        page = await live.get("/api/v1/brokers/1/clients", order="-connections")
        assert {(each["software_name"], each["connections"]) for each in page["items"]} == {("rdkafka", 1), ("", 1)}
        found = await live.get("/api/v1/brokers/1/clients", search="RDKAFKA")
        assert [each["software_name"] for each in found["items"]] == ["rdkafka"]


async def test_the_connections_of_one_client_can_be_asked_for_in_parts(live):
    await live.kafka.ask(MetadataRequest(topics=[]), 9)
    client_id = (await own_connection(live))["client_id"]
    async with connected(live.broker) as other:
        await other.ask(MetadataRequest(topics=[]), 9)
        first = await live.get("/api/v1/brokers/1/connections", client_id=client_id, limit=1)
        assert (len(first["items"]), first["matching"]) == (1, 2)
        second = await live.get(
            "/api/v1/brokers/1/connections", client_id=client_id, limit=1, cursor=first["next_cursor"]
        )
        assert second["next_cursor"] is None
        assert second["items"][0]["connection_id"] > first["items"][0]["connection_id"]
    assert (await live.get("/api/v1/brokers/1/connections", muted="true"))["items"] == []
    assert (await live.get("/api/v1/brokers/1/connections", stage="delayed"))["items"] == []


async def test_a_client_is_described_with_what_it_received_and_what_it_sends(live):
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one", b"two")
    client_id = (await own_connection(live))["client_id"]
    described = await live.get("/api/v1/brokers/1/clients/describe", client_id=client_id)
    port = live.broker.bound_endpoints[0].port
    assert described["advertised_addresses"] == [
        {"listener_name": "PLAINTEXT", "host": "127.0.0.1", "port": port, "connections": 1}
    ]
    [produce] = [each for each in described["apis"] if each["api"] == "Produce"]
    assert produce["min_version"] == 0
    assert produce["min_version"] <= produce["used_versions"][0] <= produce["max_version"]
    assert described["average_batch_records"] == 2.0
    assert described["average_batch_bytes"] > 61
    assert described["advice"] == []


async def test_on_a_listener_of_all_interfaces_the_address_that_was_dialled_is_reported(tmp_path):
    async with open_live_admin(tmp_path, listeners="PLAINTEXT://0.0.0.0:0") as live:
        await live.kafka.ask(MetadataRequest(topics=[]), 9)
        client_id = (await own_connection(live))["client_id"]
        described = await live.get("/api/v1/brokers/1/clients/describe", client_id=client_id)
        assert [each["host"] for each in described["advertised_addresses"]] == ["127.0.0.1"]


async def test_a_client_without_a_connection_is_a_problem(live):
    answer = await live.http.get("/api/v1/brokers/1/clients/describe", params={"client_id": HOSTILE})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/problem+json")


@pytest.mark.parametrize(
    ("address", "query", "pointer"),
    [
        ("/api/v1/brokers/1/connections", {"stage": "nowhere"}, "?stage"),
        ("/api/v1/brokers/1/connections", {"order": "colour"}, "?order"),
        ("/api/v1/brokers/1/connections", {"limit": "0"}, "?limit"),
        ("/api/v1/brokers/1/clients", {"cursor": "x"}, "?cursor"),
        ("/api/v1/brokers/1/clients/describe", {}, "?client_id"),
    ],
)
async def test_a_wrong_query_is_pointed_at(live, address, query, pointer):
    assert pointers(await live.http.get(address, params=query), 400) == [pointer]


async def test_the_map_counts_every_connection_once_and_names_the_limits(live):
    await live.kafka.ask(MetadataRequest(topics=[]), 9)
    backpressure = await live.get("/api/v1/brokers/1/backpressure")
    assert [each["stage"] for each in backpressure["stages"]] == [stage.value for stage in ConnectionStage]
    assert {each["stage"]: each["connections"] for each in backpressure["stages"]}["idle"] == 1
    limits = backpressure["limits"]
    assert (limits["queue_depth"], limits["queue_capacity"], limits["request_bytes_limit"]) == (0, 500, None)


# --- gathering and advice ---


def test_no_connection_is_no_client():
    assert gather_clients([]) == []


def sent(**changed):
    values = {
        "acks": -1, "batches": 1000, "idempotent_batches": 1000, "records": 1000, "bytes": 210_000,
        "batches_by_codec": {"none": 1000},
    }  # fmt: skip
    return ProducedBatches(**{**values, **changed})


def settings(produced, seconds=1.0, backlog_bytes=0):
    return [advice.setting for advice in producer_advice(produced, seconds, backlog_bytes)]


def test_a_producer_that_sends_records_one_by_one_is_advised_to_linger():
    [advice] = producer_advice(sent(), 1.0)
    assert advice.setting == "linger.ms=5"
    assert "1.0 records and 210 bytes" in advice.reason


MANY = {"records": 100_000}
UNCOMPRESSED = MANY | {"bytes": 64 * 2**20}
COMPRESSED = MANY | {"bytes": 64_000_000, "batches_by_codec": {"lz4": 1000}}


@pytest.mark.parametrize(
    ("changed", "others", "advised"),
    [
        pytest.param({}, {"seconds": 10.0}, ["linger.ms=50"], id="a slow producer lingers longer"),
        pytest.param({}, {"seconds": 100.0}, [], id="a very slow one does not"),
        pytest.param(COMPRESSED | {"bytes": 16_200_000}, {}, ["batch.size=65536"], id="full batches may be larger"),
        pytest.param(UNCOMPRESSED, {}, ["compression.type=lz4"], id="much is not compressed"),
        pytest.param(UNCOMPRESSED | {"batches_by_codec": {"zstd": 1000}}, {}, [], id="it is compressed"),
        pytest.param(MANY | {"idempotent_batches": 0}, {}, ["enable.idempotence=true"], id="may be written twice"),
        pytest.param(MANY | {"idempotent_batches": 0, "acks": 1}, {}, [], id="acks of one"),
        pytest.param({"batches": 10, "records": 10}, {}, [], id="a few batches are no ground"),
        pytest.param(COMPRESSED, {"backlog_bytes": 1_500_000}, [], id="full batches need not linger"),
    ],
)
def test_a_producer_is_advised_by_what_it_sends(changed, others, advised):
    assert settings(sent(**changed), **others) == advised


@pytest.mark.parametrize(("batches", "setting"), [(1000, "linger.ms=5"), (30, "linger.ms=50"), (3, "linger.ms=100")])
def test_a_producer_whose_requests_wait_is_advised_to_linger_for_as_long_as_a_request_takes(batches, setting):
    produced = sent(batches=batches, records=batches, bytes=210 * batches, batches_by_codec={"none": batches})
    [advice] = producer_advice(produced, 1.0, backlog_bytes=1_500_000)
    assert advice.setting == setting
    assert "1.4 MiB of its requests wait unread" in advice.reason
