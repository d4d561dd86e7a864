"""The pages of clients, disks and tasks over a real broker: read without a script, and looked at in a browser."""

from __future__ import annotations

import attrs
import pytest

from broker_admin.storage_texts import forecast_text, recovery_text, retention_text
from broker_admin.views.node.storage import DirectoryReport, RecoverySummary, RetentionOutlook
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.metadata import MetadataRequest
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.live_admin import LiveAdmin
from tests.admin.page_reading import assert_no_wider_than_the_window, assert_shows, page_of

ADDRESSES = tuple(
    f"/brokers/1/{page}"
    for page in (
        "clients", "clients/connections", "clients/client?client_id=test", "connection-diagnosis", "storage", "tasks",
    )
)  # fmt: skip


async def busy(live: LiveAdmin) -> None:
    await live.kafka.ask(ApiVersionsRequest(client_software_name="kcat", client_software_version="1.7.1"), 3)
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one", b"two")


async def test_clients_are_listed_with_software_and_the_map_of_connections_by_stage(live: LiveAdmin) -> None:
    await busy(live)
    text = await page_of(live.http, "/brokers/1/clients")
    assert "kcat" in text
    assert '<li data-stage="idle" data-holds="some">' in text
    assert '<li data-stage="waiting_for_queue" data-holds="nobody">' in text
    assert "Nothing is held back." in text
    assert 'href="/brokers/1/clients" data-key="l"' in text


async def test_the_address_of_a_broker_leads_to_the_first_of_its_pages(live: LiveAdmin) -> None:
    for address in ("/brokers/1", "/brokers/1/"):
        answer = await live.http.get(address, follow_redirects=True)
        assert (answer.status_code, answer.url.path) == (200, "/brokers/1/clients"), address
    await page_of(live.http, "/brokers/2", 404)


async def test_connections_can_be_chosen_by_stage_and_an_empty_choice_is_none(live: LiveAdmin) -> None:
    await busy(live)
    assert "<td>idle</td>" in await page_of(live.http, "/brokers/1/clients/connections", stage="")
    assert "Nothing matches" in await page_of(live.http, "/brokers/1/clients/connections", search="no such client")


async def test_a_client_shows_what_it_sends_and_what_it_received(live: LiveAdmin) -> None:
    await busy(live)
    text = await page_of(live.http, "/brokers/1/clients/client", client_id="test")
    assert f"<code>127.0.0.1:{live.broker.bound_endpoints[0].port}</code>" in text
    assert "<dt>acks</dt><dd>all</dd>" in text
    assert '<th scope="row">Produce</th>' in text


async def test_a_client_that_is_gone_is_a_page_of_its_own(live: LiveAdmin) -> None:
    text = await page_of(live.http, "/brokers/1/clients/client", 404, client_id="<script>alert(1)</script>")
    assert "Not connected" in text
    assert "<script>alert" not in text


async def test_a_diagnosis_shows_findings_for_the_address(live: LiveAdmin) -> None:
    text = await page_of(live.http, "/brokers/1/connection-diagnosis", address="192.0.2.7")
    assert 'data-severity="broken">broken</span>' in text
    assert "accepts connections from this machine only" in text
    assert "None since the start." in text
    await page_of(live.http, "/brokers/1/connection-diagnosis", 400, address="not an address")


async def test_the_disks_are_shown_in_sentences(live: LiveAdmin) -> None:
    await busy(live)
    text = await page_of(live.http, "/brokers/1/storage")
    report = await live.view.node.storage.report()
    assert_shows(text, *map(forecast_text, report.directories), recovery_text(report.recovery))
    assert '<a href="/topics/orders">orders</a>' in text


async def test_the_tasks_are_shown_as_a_tree(live: LiveAdmin) -> None:
    await live.kafka.ask(MetadataRequest(topics=[]), 9)
    assert_shows(await page_of(live.http, "/brokers/1/tasks"), "wait_readable", "acceptor PLAINTEXT")


# --- sentences ---

DISK = DirectoryReport(
    path="/data", failure=None, partitions=1, log_bytes=1, total_bytes=10, usable_bytes=5, growth="unknown",
    sampled_seconds=3600.0, growth_bytes_per_second=None, log_growth_bytes_per_second=None, full_in_seconds=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"growth": "steady", "growth_bytes_per_second": 2048.0, "full_in_seconds": 2.8e5}, "Full in ~3 days, if"),
        ({"growth": "steady", "growth_bytes_per_second": 2048.0, "full_in_seconds": 5400.0}, "Full in ~1 h 30 min, if"),
        ({"growth": "none", "growth_bytes_per_second": 0.0}, "It does not fill up"),
        ({"growth": "unsteady", "growth_bytes_per_second": 1.0}, "no forecast"),
        ({}, "Too early to tell"),
    ],
)  # fmt: skip
def test_a_forecast_is_a_sentence(changed, said):
    assert said in forecast_text(attrs.evolve(DISK, **changed))


def test_retention_says_what_goes_next_and_when():
    outlook = RetentionOutlook(
        next_check_at_ms=720_000, segments=3, size_bytes=300 * 2**20, partitions=2, then_due_at_ms=7_200_000,
        then_partition="orders-0",
    )  # fmt: skip
    assert retention_text(outlook, 0) == (
        "Next: 3 segments of 2 partitions, 300.0 MiB, in 12 min 0 s."
        " The next segment after that is due in 2 h 0 min (orders-0)."
    )
    nothing = attrs.evolve(outlook, segments=0, then_due_at_ms=None)
    assert retention_text(nothing, 0) == "The next check, in 12 min 0 s, deletes nothing."
    assert retention_text(attrs.evolve(outlook, next_check_at_ms=None), 0).startswith("Never")


def test_a_recovery_says_what_was_cut():
    recovery = RecoverySummary(
        was_clean=False, seconds=1.25, logs=8, recovered_logs=2, recovered_segments=3, cut_bytes=2048, strays=(),
        unopened=(), problems=(), problem_count=0,
    )  # fmt: skip
    assert "2 were checked in 3 segments, and 2.0 KiB of torn batches were cut off" in recovery_text(recovery)
    assert recovery_text(attrs.evolve(recovery, logs=0)) == "There were no logs to open."


@needs_chromium
async def test_the_pages_hold_together_at_every_width(live: LiveAdmin, live_url: str, browser: Browser) -> None:
    await busy(live)
    page = await browser.open_page("about:blank")
    await assert_no_wider_than_the_window(page, [f"{live_url}{address}" for address in ADDRESSES])
