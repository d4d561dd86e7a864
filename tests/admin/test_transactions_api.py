"""Claims about transactions over HTTP: what is open, what is held back, and aborting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from tests.admin.fake_broker import FakeBroker
from tests.admin.fake_transactions import HANGING_PRODUCER, snapshot
from tests.admin.live_admin import LiveAdmin, open_live_admin
from tests.admin.live_transactions import open_transaction

ABORT = "/api/v1/transactions/id:abort"


async def items(client: httpx.AsyncClient, address: str, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get(address, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


# --- lists ---


async def test_open_transactions_are_listed_the_oldest_first(client: httpx.AsyncClient):
    body = (await client.get("/api/v1/transactions")).json()
    assert (body["total"], body["matching"], body["is_complete"]) == (3, 2, True)
    assert [(each["transactional_id"], each["state"]) for each in body["items"]] == [
        ("invoices/2026", "PrepareCommit"),
        ("billing", "Ongoing"),
    ]
    assert body["items"][1] == {
        "transactional_id": "billing",
        "state": "Ongoing",
        "is_open": True,
        "is_overdue": False,
        "producer_id": 4000,
        "producer_epoch": 3,
        "client_id": "till-1",
        "timeout_ms": 60_000,
        "started_at_ms": 1_779_999_990_000,
        "age_seconds": 10.0,
        "last_update_at_ms": 1_779_999_991_000,
        "partition_count": 1,
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"open": "false"}, ["invoices/2026", "billing", "idle"]),
        ({"state": "completecommit"}, ["idle"]),
        ({"state": ["Ongoing", "PrepareCommit"]}, ["invoices/2026", "billing"]),
        ({"producer_id": 4000}, ["billing"]),
        ({"search": "INV"}, ["invoices/2026"]),
        ({"order": "transactional_id"}, ["billing", "invoices/2026"]),
        ({"order": "-partitions"}, ["invoices/2026", "billing"]),
    ],
)
async def test_transactions_are_filtered_and_ordered(
    client: httpx.AsyncClient, query: dict[str, Any], found: list[str]
):
    assert [each["transactional_id"] for each in await items(client, "/api/v1/transactions", **query)] == found


async def test_a_long_list_comes_in_parts(fake: FakeBroker, client: httpx.AsyncClient):
    made = tuple(snapshot(f"id-{number:04}", fake.now_ms, age_seconds=float(number % 7)) for number in range(250))
    fake.transactions = attrs.evolve(fake.transactions, transactions=made)
    found, query = [], {"limit": "100"}
    while True:
        body = (await client.get("/api/v1/transactions", params=query)).json()
        found += [each["transactional_id"] for each in body["items"]]
        if body["next_cursor"] is None:
            break
        query["cursor"] = body["next_cursor"]
    assert sorted(found) == [f"id-{number:04}" for number in range(250)]


async def test_partitions_are_listed_that_a_transaction_holds_back(client: httpx.AsyncClient):
    hanging, held = await items(client, "/api/v1/held-back-partitions")
    assert (hanging["topic"], hanging["producer_id"], hanging["is_hanging"]) == ("clickstream", HANGING_PRODUCER, True)
    assert (held["topic"], held["partition"], held["transactional_id"]) == ("orders", 1, "billing")
    assert (held["held_back_records"], held["held_seconds"], held["is_hanging"]) == (42, 10.0, False)
    assert await items(client, "/api/v1/held-back-partitions", hanging="true") == [hanging]
    assert await items(client, "/api/v1/held-back-partitions", topic="orders") == [held]


async def test_wrong_parameters_are_refused(client: httpx.AsyncClient):
    for query in ({"order": "size"}, {"producer_id": "-1"}, {"open": "maybe"}, {"cursor": "x"}):
        assert (await client.get("/api/v1/transactions", params=query)).status_code == 400, query


# --- one of them ---


@pytest.mark.parametrize("address", ["/api/v1/transactions/invoices%2F2026", "/api/v1/transactions/-?id=invoices/2026"])
async def test_an_id_with_a_slash_has_an_address(client: httpx.AsyncClient, address: str):
    body = (await client.get(address)).json()
    assert body["transaction"]["transactional_id"] == "invoices/2026"


async def test_one_transaction_names_what_it_holds_back(client: httpx.AsyncClient):
    body = (await client.get("/api/v1/transactions/billing")).json()
    [partition] = body["partitions"]
    assert (partition["topic"], partition["partition"]) == ("orders", 1)
    assert partition["held_back"]["held_back_records"] == 42
    assert (await client.get("/api/v1/transactions/unknown")).status_code == 404


# --- aborting ---


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[LiveAdmin]:
    settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
    async with open_live_admin(tmp_path, **settings) as opened:
        yield opened


async def test_an_abort_is_tried_made_and_recorded(live: LiveAdmin):
    producer = await open_transaction(live)
    tried = await live.http.post(ABORT, params={"dry_run": "true"}, json=producer)
    assert (tried.status_code, tried.json()["dry_run"], tried.json()["state"]) == (200, True, "Ongoing")
    assert [each["state"] for each in (await live.get("/api/v1/transactions"))["items"]] == ["Ongoing"]

    done = await live.http.post(ABORT, json=producer)
    assert (done.status_code, done.json()["dry_run"]) == (200, False)
    assert done.json()["producer_epoch"] > producer["producer_epoch"]
    change = (await live.get("/api/v1/changes", action="aborted"))["items"][0]
    assert (change["resource_type"], change["resource"]) == ("transaction", "id")
    assert change["values"] == [{"name": "t-0", "old": "open", "new": "aborted"}]
    assert change["origin"]["request"] == f"POST {ABORT}"

    again = await live.http.post(ABORT, json=producer)
    assert again.status_code == 409


async def test_an_abort_names_its_producer_exactly(live: LiveAdmin):
    producer = await open_transaction(live)
    for wrong in ({"producer_id": 1 + producer["producer_id"]}, {"producer_epoch": 1 + producer["producer_epoch"]}):
        refused = await live.http.post(ABORT, json={**producer, **wrong})
        assert refused.status_code == 409
        assert "by now" in refused.json()["detail"]
    assert (await live.http.post(ABORT, json={"producer_id": 1})).status_code == 422
    unknown = await live.http.post("/api/v1/transactions/other:abort", json=producer)
    assert unknown.status_code == 404


async def test_an_abort_needs_the_header_of_a_change(live: LiveAdmin):
    producer = await open_transaction(live)
    refused = await live.http.post(ABORT, json=producer, headers={"x-requested-with": ""})
    assert refused.status_code == 403


async def test_a_marker_is_refused_where_the_coordinator_will_write_its_own(live: LiveAdmin):
    await open_transaction(live)
    address = "/api/v1/topics/t/partitions/0:abort-transaction"
    refused = await live.http.post(address, json={"start_offset": 0})
    assert refused.status_code == 409
    assert "transactional id 'id' has it open" in refused.json()["detail"]
    assert (await live.http.post(address, json={"start_offset": 1})).status_code == 409
    missing = await live.http.post("/api/v1/topics/t/partitions/7:abort-transaction", json={"start_offset": 0})
    assert missing.status_code == 404


async def test_a_broker_that_never_had_a_transaction_knows_no_id(live: LiveAdmin):
    refused = await live.http.post(ABORT, json={"producer_id": 0, "producer_epoch": 0})
    assert refused.status_code == 404
    assert (await live.get("/api/v1/transactions"))["items"] == []
