"""The pages of topics: whole without a script, hostile names inert, and in a browser every action by its dialog."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from broker_admin.texts import bytes_text
from broker_admin.topic_texts import kept_text, retention_text, segment_end_text, span_text
from broker_admin.views.node.topic_segments import SegmentDetail
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.admin.live_admin import LiveAdmin, commit, open_live_admin
from tests.admin.page_reading import assert_no_wider_than_the_window, assert_shows, page_of
from trio_broker.runtime.clock import ManualClock

PAGES = ("", "/partitions", "/partitions/0", "/consumers", "/config")

TABS = ("", "/messages", "/partitions", "/consumers", "/config")


def cells(html: str) -> str:
    """The text of a page's table body, one space between words."""
    body = re.search(r"<tbody.*?</tbody>", html, re.DOTALL)
    assert body is not None
    return " ".join(re.sub(r"<[^>]+>", " ", body[0]).split())


async def test_an_empty_broker_shows_the_next_step(live: LiveAdmin) -> None:
    command = f"trio-broker topics create orders --partitions 3 -b 127.0.0.1:{live.broker.bound_endpoints[0].port}"
    assert_shows(await page_of(live.http, "/topics"), "No topics yet", command)


async def test_the_list_shows_each_topic_and_leads_to_it(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one")
    await commit(live, "billing", "orders", 0)
    html = await page_of(live.http, "/topics")
    assert '<a href="/topics/orders">orders</a>' in html
    assert re.search(r'<a href="/groups/[^"]*billing">', html)
    assert "__consumer_offsets" not in cells(html)
    assert "__consumer_offsets" in cells(await page_of(live.http, "/topics?internal=true"))
    assert '<a href="/topics" data-key="t"' in html


async def test_the_list_is_searched_and_ordered_by_its_address(live: LiveAdmin) -> None:
    for name, partitions in (("a", 1), ("b", 3), ("c", 2)):
        await live.kafka.create_topic(name, partitions)
    html = await page_of(live.http, "/topics?order=-partitions&limit=2")
    assert re.findall(r'href="/topics/(\w)"', html) == ["b", "c"]
    [further] = re.findall(r'href="(/topics\?[^"]*cursor[^"]*)"', html)
    assert re.findall(r'href="/topics/(\w)"', await page_of(live.http, further.replace("&amp;", "&"))) == ["a"]
    assert "Nothing matches" in await page_of(live.http, "/topics?search=x")


@pytest.mark.parametrize("page", PAGES)
async def test_what_is_not_there_is_a_page_of_this_site(live: LiveAdmin, page: str) -> None:
    assert "there is no" in await page_of(live.http, f"/topics/missing{page}", 404)


@pytest.mark.parametrize("page", [*PAGES, "/messages"])
async def test_each_page_of_a_topic_leads_to_the_others_and_names_its_call(live: LiveAdmin, page: str) -> None:
    await live.kafka.create_topic("orders", 2)
    html = await page_of(live.http, f"/topics/orders{page}")
    assert [tab for tab in TABS if f'<a href="/topics/orders{tab}"' in html] == list(TABS)
    assert html.count('aria-current="page"') == 2  # in the navigation and over the page
    assert page == "/messages" or re.search("GET /api/v1/(brokers/1/)?topics/orders", html)


async def test_a_query_that_is_wrong_is_a_page_of_this_site(live: LiveAdmin) -> None:
    assert "order is" in await page_of(live.http, "/topics?order=beauty", 400)


async def test_one_topic_shows_what_it_carries_and_what_can_be_done(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one", b"two")
    assert_shows(
        await page_of(live.http, "/topics/orders"),
        "No rates in this time",
        "trio-broker topics alter orders --partitions",
        "kafka-topics.sh --bootstrap-server",
        "trio-broker topics purge orders",
        "trio-broker topics delete orders",
    )


async def test_the_rates_of_a_topic_are_charts_of_any_length(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_live_admin(tmp_path, clock=clock) as live:
        await live.kafka.create_topic("orders", 2)
        await live.kafka.produce("orders", b"one", b"two")
        for _ in range(3):
            clock.advance(10)
            await live.broker.services.replicas.topic_stats.take_snapshot(live.broker.services.replicas.topics.values())
        for chosen in ("5m", "1h"):
            html = await page_of(live.http, f"/topics/orders?range={chosen}")
            assert '<path class="line first" d="M' in html
            assert "/static/series_chart.css" in html
        assert '<a href="/topics/orders?range=1h#rates-title" aria-current="true">1 h</a>' in html
        await page_of(live.http, "/topics/orders?range=1y", 400)


async def test_each_field_of_a_partition_and_its_segments_reaches_its_row(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    for _ in range(3):
        await live.kafka.produce("orders", b"x" * 5000)
    [each] = await live.view.cluster.topics.partitions("orders") or ()
    found = await live.view.node.topic_segments.of_partition("orders", 0)
    assert found is not None
    [segment] = found.segments
    assert segment.index_entries == 2
    size, entry_size = bytes_text(segment.size_bytes), bytes_text(segment.size_bytes / 2)
    html = await page_of(live.http, "/topics/orders/partitions")
    assert '<a href="/topics/orders/partitions/0">0</a>' in html
    assert_shows(html, f"0 {each.leader} {each.log_start_offset} {each.high_watermark} {size} 100 % of all 1")
    html = await page_of(live.http, "/topics/orders/partitions/0")
    assert_shows(html, "Segments of partition 0", found.log_directory, segment_end_text(segment, 0))
    assert_shows(html, f"0 active {segment.next_offset} {size} 2 one in {entry_size}")


async def test_the_settings_show_where_each_value_comes_from(live: LiveAdmin) -> None:
    await live.http.post("/api/v1/topics", json={"name": "orders", "configs": {"retention.ms": "7 d"}})
    html = await page_of(live.http, "/topics/orders/config")
    assert "Segments whose newest record is older" in cells(html)
    own = cells(await page_of(live.http, "/topics/orders/config?changed=true"))
    assert own.startswith("retention.ms")
    assert "7 d 604800000 ms this topic" in own
    assert "cleanup.policy" not in own


async def test_what_groups_call_themselves_is_inert(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await commit(live, "<script>alert(1)</script>", "orders", 0)
    for page in ("/topics", "/topics/orders", "/topics/orders/consumers"):
        html = await page_of(live.http, page)
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert" in html


async def test_a_topic_without_readers_says_how_to_read_it(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    assert "trio-broker consume orders" in await page_of(live.http, "/topics/orders/consumers")


# --- words and pictures ---


@pytest.mark.parametrize(
    ("reason", "due_at_ms", "due_after_bytes", "text"),
    [
        ("retention.ms", 0, None, "goes at the next check: retention.ms"),
        (None, 7_201_000, None, "in 2 h"),
        (None, None, 2048, "after 2.0 KiB more"),
        (None, 3_601_000, 1024, "in 1 h or after 1.0 KiB more"),
        (None, None, None, "stays"),
    ],
)
def test_a_segment_says_when_retention_takes_it(
    reason: str | None, due_at_ms: int | None, due_after_bytes: int | None, text: str
) -> None:
    segment = SegmentDetail(
        base_offset=0, next_offset=1, size_bytes=1, is_active=False, newest_record_at_ms=0, index_entries=0,
        is_compacted=False, retention_reason=reason, retention_due_at_ms=due_at_ms,
        retention_due_after_bytes=due_after_bytes,
    )  # fmt: skip
    assert segment_end_text(segment, 1000) == text


def test_durations_leave_out_a_second_unit_of_zero() -> None:
    assert (span_text(604_800), span_text(100_800), span_text(5)) == ("7 d", "1 d 4 h", "5 s")


async def test_retention_is_said_in_words(live: LiveAdmin) -> None:
    for name, configs in (
        ("a", {}),
        ("b", {"retention.bytes": 1 << 30}),
        ("c", {"retention.ms": -1}),
        ("d", {"cleanup.policy": "compact"}),
        ("e", {"cleanup.policy": "compact,delete"}),
    ):
        await live.http.post("/api/v1/topics", json={"name": name, "configs": configs})
    assert [retention_text(each) for each in await live.view.cluster.topics.summaries()] == [
        "7 d",
        "7 d or 1.0 GiB a partition",
        "for ever",
        "compacted",
        "compacted, 7 d",
    ]


# --- in a browser ---


@pytest.fixture
async def page(live_url: str, browser: Browser) -> Page:
    """The list of topics, without any, in a browser."""
    opened = await browser.open_page(f"{live_url}/topics")
    await opened.until("document.querySelector('[data-link-text]').textContent === 'live'")
    return opened


async def text_of(page: Page, selector: str) -> str:
    """The text of an element, also where it is folded away."""
    return str(await page.evaluate(f"document.querySelector({selector!r}).textContent"))


async def go_to(page: Page, path: str) -> None:
    await page.go_to(await page.evaluate("location.origin") + path)
    await page.until("document.querySelector('[data-link-text]').textContent === 'live'")


@needs_chromium
async def test_a_topic_is_created_changed_purged_and_deleted_by_its_dialogs(live: LiveAdmin, page: Page) -> None:
    await page.click_on("[data-opens=create-topic]")
    await page.type("#create-topic [name=name]", "a b")
    await page.until("document.querySelector('#create-topic .reason')?.textContent.includes('characters other than')")
    await page.type("#create-topic [name=name]", "orders")
    await page.type("#create-topic [name=partitions]", "3")
    await page.until("document.querySelector('#create-topic [data-outcome]').textContent.includes('3 partitions')")
    assert "orders" not in live.view.cluster.topics.names()
    assert "--partitions 3" in await text_of(page, "#create-topic [data-command]")
    await page.type("#create-topic [data-finds-settings]", "FLUSH.M")
    shown = "[...document.querySelectorAll('#create-topic .other-settings [data-setting]:not([hidden]) code')]"
    assert await page.evaluate(f"{shown}.map(each => each.textContent)") == ["flush.messages", "flush.ms"]
    await page.type("#create-topic [name='configs/flush.ms']", "soon")
    await page.until("document.querySelector('#create-topic .other-settings .reason')?.textContent.includes('soon')")
    await page.type("#create-topic [name='configs/flush.ms']", "1 min")
    await page.until("document.querySelector('#create-topic [data-outcome]').textContent.includes('flush.ms=60000')")
    await page.type("#create-topic [data-finds-settings]", "nothing has this")
    assert await page.evaluate(f"{shown}.map(each => each.textContent)") == ["flush.ms"]
    await page.click_on("#create-topic [data-does]")
    await page.until("location.pathname === '/topics/orders'")
    assert "orders" in live.view.cluster.topics.names()
    await live.kafka.produce("orders", b"1", b"2", b"3")

    await go_to(page, "/topics/orders")
    await page.click_on("[data-opens=add-partitions]")
    await page.type("#add-partitions [name=partitions]", "6")
    await page.until("document.querySelector('#add-partitions [data-outcome]').textContent.includes('50 % of keys')")
    await page.click_on("#add-partitions [data-does]")
    await page.until("!document.querySelector('#add-partitions').open")
    topic = await live.view.cluster.topics.get("orders")
    assert topic is not None
    assert topic.summary.partition_count == 6

    await page.click_on("[data-opens=purge-topic]")
    await page.click_on("#purge-topic [data-chooses=to_timestamp_ms]")
    assert await text_of(page, "#purge-topic [data-outcome]") == ""
    await page.type("#purge-topic [data-milliseconds]", "2023-01-01T00:00:00")
    assert "--to 2023-01-01T00:00:00Z" in await text_of(page, "#purge-topic [data-command*='--to']")
    assert "1672531200000" in await text_of(page, "#purge-topic [data-call]")
    await page.click_on("#purge-topic [data-chooses=to_offset]")
    await page.type("#purge-topic [name=to_offset]", "2")
    await page.type("#purge-topic [name=partitions]", "0;1")
    await page.until("document.querySelector('#purge-topic .reason')?.textContent.includes('such as 0,2-5')")
    await page.type("#purge-topic [name=partitions]", "0-0")
    assert "purge orders:0 --to 2" in await text_of(page, "#purge-topic [data-command*='--to']")
    await page.until("document.querySelector('#purge-topic [data-outcome]').textContent.includes('2 records')")
    assert await page.evaluate("document.querySelector('#purge-topic [data-does]').disabled")
    await page.type("#purge-topic [data-typed]", "orders")
    await page.click_on("#purge-topic [data-does]")
    await page.until("!document.querySelector('#purge-topic').open")
    [partition, *_] = await live.view.cluster.topics.partitions("orders") or ()
    assert partition.log_start_offset == 2

    await go_to(page, "/topics/orders/config")
    index = await page.evaluate(
        "[...document.querySelectorAll('dialog.action [name=\"retention.ms\"]')][0].closest('dialog').id"
    )
    await page.click_on(f"[data-opens={index}]")
    await page.type(f"#{index} [name='retention.ms']", "1 d")
    await page.until(f"document.querySelector('#{index} [data-outcome]').textContent.includes('→ 86400000 (1 d)')")
    await page.click_on(f"#{index} [data-does]")
    await page.until("[...document.querySelectorAll('.settings .own')].length === 1")

    await go_to(page, "/topics/orders")
    await page.click_on("[data-opens=delete-topic]")
    await page.type("#delete-topic [data-typed]", "orders")
    await page.click_on("#delete-topic [data-does]")
    await page.until("location.pathname === '/topics'")
    assert "orders" not in live.view.cluster.topics.names()


@needs_chromium
async def test_a_selection_is_purged_and_deleted_by_one_dialog_each(live: LiveAdmin, page: Page) -> None:
    for name in ("a.b", "c", "kept"):
        await live.kafka.create_topic(name)
        await live.kafka.produce(name, b"1", b"2")
    await go_to(page, "/topics")
    assert not await page.evaluate("document.querySelector('[data-opens=delete-selected]').checkVisibility()")
    for name in ("a.b", "c"):
        await page.click_on(f"[data-select='{name}']")

    await page.click_on("[data-opens=purge-selected]")
    await page.click_on("#purge-selected [data-chooses=to_end]")
    await page.until("document.querySelector('#purge-selected [data-outcome]').textContent.includes('would be purged')")
    assert "a.b would be purged: 2 records" in await text_of(page, "#purge-selected [data-topic='a.b']")
    assert "topics purge a.b c" in await text_of(page, "#purge-selected [data-command]")
    assert await page.evaluate("document.activeElement.dataset.chooses") == "to_end"
    await page.type("#purge-selected [data-typed]", "purge 2 topics")
    await page.click_on("#purge-selected [data-does]")
    await page.until("document.querySelector('#purge-selected [data-outcome]').textContent === '2 topics purged.'")
    await page.click_on("#purge-selected footer [data-closes]")
    sizes = {each.name: each.record_count for each in await live.view.cluster.topics.summaries()}
    assert sizes["kept"] == 2
    starts = [
        (await live.view.cluster.topics.partitions(name) or ())[0].log_start_offset for name in ("a.b", "c", "kept")
    ]
    assert starts == [2, 2, 0]

    for name in ("a.b", "c"):
        await page.click_on(f"[data-select='{name}']")
    await live.http.delete("/api/v1/topics/c")
    await page.click_on("[data-opens=delete-selected]")
    assert "'a\\.b|c'" in await text_of(page, "#delete-selected [data-command^=kafka]")
    await page.type("#delete-selected [data-typed]", "delete 2 topics")
    await page.click_on("#delete-selected [data-does]")
    await page.until("document.querySelector('#delete-selected [data-outcome]').textContent.includes('1 refused')")
    assert "refused" in await text_of(page, "#delete-selected [data-topic=c]")
    assert set(live.view.cluster.topics.names()) == {"kept"}


@needs_chromium
async def test_no_page_of_a_topic_is_wider_than_its_window(live: LiveAdmin, live_url: str, page: Page) -> None:
    await live.http.post("/api/v1/topics", json={"name": "a" * 249, "partitions": 2, "configs": {"retention.ms": 5}})
    await live.http.post("/api/v1/topics", json={"name": "orders"})
    pages = ("/topics", *(f"/topics/{'a' * 249}{each}" for each in PAGES))
    await assert_no_wider_than_the_window(page, [f"{live_url}{address}" for address in pages])


async def test_an_answer_says_nothing_that_could_be_kept(live: LiveAdmin) -> None:
    answer: httpx.Response = await live.http.get("/topics", headers={"accept": "text/html"})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            "Records stay 7 d, and where few are written up to 14 d, because they are deleted by whole segments"
            " (segment.ms).",
        ),
        ({"retention.ms": "-1"}, "Records stay for ever."),
        (
            {"retention.ms": "-1", "retention.bytes": "2147483648"},
            "Each partition keeps the newest 2.0 GiB, and up to 1.0 GiB more.",
        ),
        ({"cleanup.policy": "compact"}, "The newest record of each key stays for ever."),
    ],
)
def test_a_new_topic_says_how_long_its_records_stay(changes, text):
    week_ms = str(7 * 24 * 3_600_000)
    defaults = {"cleanup.policy": "delete", "retention.ms": week_ms, "retention.bytes": "-1", "segment.ms": week_ms}
    assert kept_text({**defaults, "segment.bytes": "1073741824", **changes}) == text
