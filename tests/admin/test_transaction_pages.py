"""Claims about the pages of transactions as the server renders them, whatever clients call themselves."""

from __future__ import annotations

from urllib.parse import quote

import attrs
import httpx
import pytest

from broker_admin.routes.transaction_pages import SHOWN_PARTITIONS
from tests.admin.fake_broker import FakeBroker
from tests.admin.fake_groups import fake_group, fake_member, fake_partition
from tests.admin.fake_transactions import held_back, snapshot
from tests.admin.test_admin_group_pages import HOSTILE, inspect


async def text_of(client: httpx.AsyncClient, address: str, status: int = 200) -> str:
    answer = await client.get(address, headers={"accept": "text/html"})
    assert answer.status_code == status, answer.text[:300]
    inspector = inspect(answer.text)
    assert inspector.harm == []
    return " ".join(" ".join(inspector.text).split())


async def test_the_list_has_what_is_open_and_what_is_held_back(client: httpx.AsyncClient):
    text = await text_of(client, "/transactions")
    assert "invoices/2026 1 min 35 s overdue PrepareCommit 4001 epoch 3" in text
    assert "billing 10 s Ongoing 4000 epoch 3 till-1" in text
    assert "idle" not in text
    assert "clickstream -2 producer 40004, epoch 0; no coordinator knows its transaction here, so it hangs" in text
    assert "and 1 more behind it 9 001 records for 2 h 0 min" in text.replace("\u202f", " ").replace("\u00a0", " ")
    assert "orders -1 billing 42 records for 10 s" in text


async def test_the_list_is_filtered_by_its_address(client: httpx.AsyncClient):
    assert "idle" in await text_of(client, "/transactions?open=false")
    text = await text_of(client, "/transactions?search=bill")
    assert "1 of 1 that match, 3 in all" in text
    assert "invoices/2026" not in text


async def test_a_broker_without_transactions_says_how_to_make_one(fake: FakeBroker, client: httpx.AsyncClient):
    fake.transactions = attrs.evolve(fake.transactions, transactions=(), held_back=())
    text = await text_of(client, "/transactions")
    assert "No transactional ids yet" in text
    assert "No read_committed consumer is blocked" in text
    fake.transactions = attrs.evolve(fake.transactions, is_complete=False)
    assert "Transactions are being loaded" in await text_of(client, "/transactions")


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
    assert "There is no such transactional id now" in await text_of(client, "/transactions/none", 404)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
async def test_no_text_of_a_client_does_harm(fake: FakeBroker, client: httpx.AsyncClient, name: str):
    made = (snapshot(name, fake.now_ms, client_id=name[:200]),)
    held = (held_back("orders", 0, fake.now_ms, transactional_id=name),)
    fake.transactions = attrs.evolve(fake.transactions, transactions=made, held_back=held)
    await text_of(client, "/transactions")
    if len(name) < 1000:
        await text_of(client, f"/transactions/{quote(name, safe='')}")
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
    page = (await client.get("/groups/waits")).text
    assert 'href="/transactions/billing"' in page
    text = await text_of(client, "/groups/waits")
    assert "Partition orders-1 waits for the end of the transaction of billing, open for 10 s." in text
    assert "Pending offsets 3 in open transactions" in text
