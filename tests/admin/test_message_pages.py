"""The pages of records, without script: what they show, what is refused, and that contents are inert."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from broker_admin.messages import search
from broker_admin.messages.large_scan import spark_lines
from broker_admin.messages.query import RecordsQuery
from broker_admin.routes import message_pages
from broker_admin.views.cluster.messages import NewMessage
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.admin.live_admin import LiveAdmin, open_live_admin
from tests.admin.page_reading import HOSTILE, assert_inert, page_of

PAGE = "/topics/orders/messages"


@pytest.fixture
async def live(live: LiveAdmin) -> LiveAdmin:
    """With the topic ``orders``."""
    await live.kafka.create_topic("orders")
    return live


async def test_the_page_lists_what_the_address_asks_for(live: LiveAdmin) -> None:
    await live.view.cluster.messages.append("orders", [NewMessage(b"k%d" % n, b'{"n": %d}' % n) for n in range(5)])
    page = await page_of(live.http, f"{PAGE}?where=value.n%3E2&limit=1")
    assert "{&#34;n&#34;: 4}" in page
    assert "{&#34;n&#34;: 3}" not in page
    assert 'href="/topics/orders/messages/0/4?' in page
    assert 'rel="next"' in page
    assert "format=csv" in page


async def test_a_record_has_a_page_with_its_bytes_and_commands(live: LiveAdmin) -> None:
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b'{"n": 1}', (("trace", b"7"),))])
    page = await page_of(live.http, f"{PAGE}/0/0")
    assert "00000000  7b 22 6e 22 3a 20 31 7d" in page
    assert "trio-broker consume orders:0 --from 0" in page
    assert "trace" in page
    assert "no record at offset 0" not in page
    await page_of(live.http, f"{PAGE}/0/1", 404)
    await page_of(live.http, f"{PAGE}/7/0", 404)
    await page_of(live.http, f"{PAGE}/0/99999999999999999999", 404)


async def test_a_record_leads_only_to_pages_that_are_there(live: LiveAdmin) -> None:
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b"1"), NewMessage(b"k", b"2")])
    assert f'href="{PAGE}/0/1" rel="next"' in await page_of(live.http, f"{PAGE}/0/0")
    assert 'rel="next"' not in await page_of(live.http, f"{PAGE}/0/1")
    metadata = await page_of(live.http, "/topics/__cluster_metadata/messages/0/1")
    assert 'href="/topics/__cluster_metadata"' not in metadata


@pytest.mark.parametrize("address", [PAGE, f"{PAGE}/0/0"])
async def test_hostile_contents_are_inert(live: LiveAdmin, address: str) -> None:
    headers = ((HOSTILE, HOSTILE.encode()),)
    await live.view.cluster.messages.append(
        "orders", [NewMessage(HOSTILE.encode(), b'{"x": "\\ud800\\u202e<script>"}', headers)]
    )
    assert_inert(await page_of(live.http, address))


async def test_huge_values_are_cut(live: LiveAdmin) -> None:
    await live.view.cluster.messages.append("orders", [NewMessage(None, b"x" * 900_000)])
    assert len(await page_of(live.http, PAGE)) < 60_000


async def test_a_record_that_is_cut_says_how_to_get_the_whole(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"[" + b"1," * 500_000 + b"1]"  # as it is shown, with spaces, more than is shown
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", whole)])
    page = await page_of(live.http, f"{PAGE}/0/0")
    assert "Only the beginning is shown. <a" in page
    address = "/api/v1/topics/orders/records?from=offset&offset=0&partitions=0&limit=1&format=ndjson"
    assert address.replace("&", "&amp;") in page
    assert json.loads((await live.http.get(address)).text)["value"] == whole.decode()
    monkeypatch.setattr(message_pages, "MAX_DECODED_BYTES", 1000)
    assert "as text: 1000 B are parsed at the most" in await page_of(live.http, f"{PAGE}/0/0")


async def test_control_characters_in_a_text_are_escapes(live: LiveAdmin) -> None:
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b"\x1b[31mERROR\x1b[0m disk is full")])
    for address in (PAGE, f"{PAGE}/0/0"):
        assert "\\u{1b}[31mERROR\\u{1b}[0m disk is full" in await page_of(live.http, address)


async def test_a_wrong_filter_keeps_the_form_and_says_where(live: LiveAdmin) -> None:
    page = await page_of(live.http, f"{PAGE}?where=value.", 400)
    assert "(character 7)" in page
    assert 'name="where" value="value."' in page


async def test_an_empty_topic_says_what_to_do(live: LiveAdmin) -> None:
    page = await page_of(live.http, PAGE)
    port = live.view.node.identity.description().listeners[0].port
    assert f"<code>echo hello | trio-broker produce orders -b 127.0.0.1:{port}</code>" in page
    assert page.index("data-copies", page.index("trio-broker produce orders -b")) > 0
    await page_of(live.http, "/topics/missing/messages", 404)


async def test_a_row_says_of_its_batch_only_what_is_not_of_every_batch(live: LiveAdmin) -> None:
    """The id of an idempotent producer is on the record's own page; what says nothing is an empty cell."""
    batch = build_batch([NewRecord(1000, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])
    await live.kafka.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 12)
    page = await page_of(live.http, PAGE)
    assert '<td class="number medium headed"></td>' in page
    assert '<td class="medium batch"></td>' in page
    assert "7, epoch 0, sequence 0" in await page_of(live.http, f"{PAGE}/0/0")


async def test_without_contents_there_is_one_line(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path, admin_messages_enabled="false") as live:
        await live.kafka.create_topic("orders")
        for address in (PAGE, f"{PAGE}/0/0"):
            assert "admin.messages.enabled is false" in await page_of(live.http, address, 403)


async def test_a_tail_is_refused_as_a_search_is(live: LiveAdmin) -> None:

    async def status(address: str) -> int:
        answer: httpx.Response = await live.http.head(address)
        return answer.status_code

    assert await status("/api/v1/topics/orders/tail") == 200
    assert await status("/api/v1/topics/orders/tail?where=value.") == 400
    assert await status("/api/v1/topics/missing/tail") == 404


async def test_what_is_too_much_for_a_page_is_offered_as_a_job(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.kafka.produce("orders", *[b"x"] * 100)
    monkeypatch.setattr(message_pages, "PAGE_SECONDS", 0.0)
    monkeypatch.setattr(search, "MIN_TURN_RECORDS", 1)
    page = await page_of(live.http, "/topics/orders/messages?from=time&time=1000&where=value%3D%3D%22%3Cb%3E%22")
    assert "trio-broker pipeline export --topic orders --from 1970-01-01T00:00:01.000Z --to parquet:orders -b" in page
    assert "&lt;b&gt;" in page
    assert "<b>\n" not in page
    compile(spark_lines("orders", RecordsQuery(where="a\nb"), "h:1"), "job", "exec")
    monkeypatch.setattr(message_pages, "PAGE_SECONDS", 60.0)
    assert "pipeline export" not in await page_of(live.http, "/topics/orders/messages")
