"""Claims about ``/topics/{topic}/manifest`` of a broker."""

from __future__ import annotations

import httpx
import pytest

MANIFEST = "/api/v1/brokers/1/topics/orders/manifest"


async def test_a_manifest_shows_everything_that_a_reader_of_the_files_needs(client: httpx.AsyncClient) -> None:
    body = (await client.get(MANIFEST)).json()
    assert {key: value for key, value in body.items() if key != "partitions"} == {
        "version": 1,
        "cluster_id": "Vt3kq0ZcQ3y8dW1nQeN5Aw",
        "node_id": 1,
        "topic": "orders",
        "topic_id": "ordeAAAAAAAAAAAAAAAAAA",
    }
    assert [each["partition"] for each in body["partitions"]] == [0, 1, 2]
    assert body["partitions"][1] == {
        "partition": 1,
        "error": None,
        "log": {
            "log_directory": "/var/lib/trio-broker",
            "directory_name": "orders-1",
            "leader_epoch": 2,
            "log_start_offset": 5200,
            "last_stable_offset": 52_097,
            "high_watermark": 52_097,
            "segments": [
                {"base_offset": 5200, "next_offset": 28_648, "size_bytes": 9_439_232, "inode": None},
                {"base_offset": 28_648, "next_offset": 52_097, "size_bytes": 9_439_232, "inode": None},
            ],
            "active_positions": [{"offset": 28_688, "position": 4200}],
            "aborted_transactions": [{"producer_id": 4000, "first_offset": 5203, "last_offset": 5209}],
        },
    }


async def test_partitions_can_be_named(client: httpx.AsyncClient) -> None:
    body = (await client.get(f"{MANIFEST}?partition=2&partition=0&partition=2")).json()
    assert [each["partition"] for each in body["partitions"]] == [0, 2]


async def test_a_partition_that_cannot_be_read_is_listed_with_its_error(client: httpx.AsyncClient) -> None:
    body = (await client.get("/api/v1/brokers/1/topics/clickstream/manifest")).json()
    assert body["partitions"][5] == {"partition": 5, "error": "the disk failed", "log": None}
    assert [each["error"] for each in body["partitions"][:5]] == [None] * 5


@pytest.mark.parametrize("topic", ["nowhere", "ORDERS", "orders%2Fmanifest", "..", "%00", "a" * 5000])
async def test_an_unknown_topic_is_not_found(client: httpx.AsyncClient, topic: str) -> None:
    answer = await client.get(f"/api/v1/brokers/1/topics/{topic}/manifest")
    assert answer.status_code == 404
    assert answer.json()["detail"]


async def test_an_unknown_partition_is_not_found(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{MANIFEST}?partition=0&partition=3")
    assert (answer.status_code, answer.json()["detail"]) == (404, "the topic has no partition 3 here")


@pytest.mark.parametrize("number", ["", "-1", "one", "1.5", "2147483648", "٣", "1" * 5000, "+1"])
async def test_what_is_no_number_of_a_partition_is_refused(client: httpx.AsyncClient, number: str) -> None:
    answer = await client.get(MANIFEST, params={"partition": number})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("partition is a whole number from 0 to 2147483647, not ")


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
async def test_pages_of_other_origins_do_not_learn_where_files_lie(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await client.get(MANIFEST, headers=headers)
    assert answer.status_code == 403
    assert "/var/lib" not in answer.text


async def test_only_reading_is_possible(client: httpx.AsyncClient) -> None:
    assert (await client.post(MANIFEST)).status_code == 405


async def test_the_description_has_the_manifest_and_its_query(client: httpx.AsyncClient) -> None:
    document = (await client.get("/api/v1/openapi.json")).json()
    operation = document["paths"]["/api/v1/brokers/{broker_id}/topics/{topic}/manifest"]["get"]
    assert [(each["name"], each["in"], each["required"]) for each in operation["parameters"]] == [
        ("broker_id", "path", True),
        ("topic", "path", True),
        ("partition", "query", False),
    ]
    schemas = document["components"]["schemas"]
    assert schemas["PartitionManifest"]["properties"]["log"] == {
        "anyOf": [{"$ref": "#/components/schemas/LogManifest"}, {"type": "null"}]
    }
    assert set(schemas["SegmentInfo"]["properties"]) == {"base_offset", "next_offset", "size_bytes", "inode"}
