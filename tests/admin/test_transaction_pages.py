"""Claims about the pages of transactions as the server renders them, whatever clients call themselves."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import attrs
import httpx
import pytest

from broker_admin.routes.transaction_pages import SHOWN_PARTITIONS
from broker_admin.transaction_texts import held_for_text, holder_text
from tests.admin.fake_broker import FakeBroker
from tests.admin.fake_groups import fake_group, fake_member, fake_partition
from tests.admin.fake_transactions import held_back, snapshot
from tests.admin.page_reading import HOSTILE_TEXTS, assert_shows, inspect, page_of


async def test_each_field_of_a_transaction_reaches_its_row(fake: FakeBroker, client: httpx.AsyncClient):
    page = await page_of(client, "/transactions")
    billing, invoices, _ = fake.transactions.transactions
    for each, age in ((billing, "10 s"), (invoices, "1 min 35 s overdue")):
        producer = f"{each.producer_id} epoch {each.producer_epoch}"
        row = f"{age} {each.state} {producer} {each.client_id or '–'} {each.partition_count} 1 min 0 s"
        assert_shows(page, f"{each.transactional_id} {row}")


async def test_each_field_of_a_held_back_partition_reaches_its_row(fake: FakeBroker, client: httpx.AsyncClient):
    page = await page_of(client, "/transactions")
    held, hanging = fake.transactions.held_back
    assert_shows(page, f"orders -1 {held.transactional_id} {held_for_text(held)} {held.first_offset}")
    behind = "and 1 more behind it"
    assert_shows(
        page, f"clickstream -2 {holder_text(hanging)} {behind} {held_for_text(hanging)} {hanging.first_offset}"
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"transactional_id": None}, "producer 4000, epoch 3"),
        ({"producer_id": None}, "its marker is not durable yet"),
        (
            {"is_hanging": True},
            "producer 4000, epoch 3; no coordinator knows its transaction here, so it hangs",
        ),
    ],
)
def test_what_holds_a_partition_back_is_said_where_no_id_says_it(changes: dict[str, Any], text: str):
    held = held_back("orders", 1, 0, **changes)
    assert (holder_text(held), held_for_text(held)) == (text, "42 records for 10 s")


async def test_the_list_is_filtered_by_its_address(client: httpx.AsyncClient):
    assert "idle" not in await page_of(client, "/transactions")
    assert_shows(await page_of(client, "/transactions?open=false"), "idle")
    page = await page_of(client, "/transactions?search=bill")
    assert_shows(page, "1 of 1 that match, 3 in all")
    assert "invoices/2026" not in page


async def test_a_broker_without_transactions_says_how_to_make_one(fake: FakeBroker, client: httpx.AsyncClient):
    fake.transactions = attrs.evolve(fake.transactions, transactions=(), held_back=())
    page = await page_of(client, "/transactions")
    assert_shows(page, "No transactional ids yet", "No read_committed consumer is blocked")
    fake.transactions = attrs.evolve(fake.transactions, is_complete=False)
    assert "Transactions are being loaded" in await page_of(client, "/transactions")


async def test_ten_thousand_held_back_partitions_make_no_endless_page(fake: FakeBroker, client: httpx.AsyncClient):
    many = tuple(held_back("orders", number, fake.now_ms) for number in range(10_000))
    fake.transactions = attrs.evolve(fake.transactions, held_back=many)
    answer = await client.get("/transactions")
    assert answer.text.count("/topics/orders/partitions/") == SHOWN_PARTITIONS


async def test_a_transaction_can_be_aborted_while_it_is_ongoing(client: httpx.AsyncClient):
    page = (await client.get("/transactions/billing")).text
    assert 'data-address="/api/v1/transactions/billing:abort"' in page
    assert 'name="producer_id" value="4000"' in page
    assert 'name="producer_epoch" value="3"' in page
    assert "trio-broker transactions abort billing --execute" in page
    ending = (await client.get("/transactions/invoices%2F2026")).text
    assert "<dialog" not in ending.partition("<main")[2].partition("</main")[0]
    assert "Its end is decided" in ending


async def test_an_unknown_id_has_a_page_that_says_so(client: httpx.AsyncClient):
    assert "There is no such transactional id now" in await page_of(client, "/transactions/none", 404)


@pytest.mark.parametrize("name", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
async def test_no_text_of_a_client_does_harm(fake: FakeBroker, client: httpx.AsyncClient, name: str):
    made = (snapshot(name, fake.now_ms, client_id=name[:200]),)
    held = (held_back("orders", 0, fake.now_ms, transactional_id=name),)
    fake.transactions = attrs.evolve(fake.transactions, transactions=made, held_back=held)
    assert inspect(await page_of(client, "/transactions")).harm == []
    if len(name) < 1000:
        assert inspect(await page_of(client, f"/transactions/{quote(name, safe='')}")).harm == []
    assert (await client.get("/api/v1/transactions")).json()["items"][0]["transactional_id"] == name


async def test_a_group_that_waits_for_a_transaction_names_it_and_links_to_it(
    fake: FakeBroker, client: httpx.AsyncClient
):
    member = fake_member("till-a", 1, {"orders": (1,)})
    waits = fake_partition("orders", 1, member, 142, 42, 90.0)
    group = attrs.evolve(fake_group("waits", [member], pending_offsets=3), partitions=[waits])
    fake.group_list = {"waits": group}
    [finding, *_] = (await client.get("/api/v1/groups/waits/diagnosis")).json()["findings"]
    assert (finding["cause"], finding["transactional_id"]) == ("open transaction", "billing")
    page = await page_of(client, "/groups/waits")
    assert 'href="/transactions/billing"' in page
    assert_shows(page, finding["summary"], "Pending offsets 3 in open transactions")
