"""The pages of tuning and of changes, as the server renders them and in a browser."""

from __future__ import annotations

import attrs
import httpx
import pytest

from broker_admin.lifecycle_chart import BAR_WIDTH, lifecycle_bars
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import LiveAdmin
from tests.admin.page_reading import (
    HOSTILE,
    assert_inert,
    assert_no_wider_than_the_window,
    assert_shows,
    page_of,
)
from tests.metrics.statistics_fixtures import client_backlog
from tests.metrics.test_effect import EIGHT_THREADS, LOADED, STEADY, span
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.common.request_phase import RequestPhase
from trio_broker.config.entries import ValueChange
from trio_broker.metrics.effect import effect
from trio_broker.metrics.latency import NO_LATENCY, ApiLatency, LatencySummary, PhaseLatency, RequestLatency


async def measured_change(live: LiveAdmin) -> int:
    """The number of a change of num.io.threads whose effect is there."""
    await live.http.patch("/api/v1/config", json={"num.io.threads": 9})
    changes = live.broker.services.changes
    change = changes.changes[-1]
    changes.update(attrs.evolve(change, effect=effect(span(LOADED), span({**LOADED, **EIGHT_THREADS}), STEADY)))
    return change.number


# --- tuning ---


async def test_each_tunable_has_slider_number_range_buttons_and_the_call_it_makes(client: httpx.AsyncClient) -> None:
    page = await page_of(client, "/brokers/1/tuning")
    for key, reach, value in (("num.network.threads", 16, 3), ("num.io.threads", 32, 8)):
        card = page[page.index(f'data-tunable="{key}"') :]
        card = card[: card.index("</section>")]
        assert "<b data-minimum>1</b> to <b data-maximum>256</b>" in card
        assert f'aria-label="{key}, slider"' in card
        assert card.count(f'min="1" max="{reach}" value="{value}"') == 1  # the slider
        assert card.count(f'min="1" max="256" value="{value}"') == 1  # the number
        assert ">Apply</button>" in card
        assert ">Try 60 s</button>" in card
        assert f"""-d '{{"{key}": {value}}}'""" in card
        assert "<b>Does not.</b>" in card


@pytest.mark.parametrize(("value", "reach"), [("500", 2000), ("3", 2000), ("800", 3200)])
async def test_the_queue_may_be_given_any_size_and_its_slider_reaches_far(
    client: httpx.AsyncClient, fake: FakeBroker, value: str, reach: int
) -> None:
    await fake.view.cluster.config.change({"queued.max.requests": value}, changed_by="a test")
    page = await page_of(client, "/brokers/1/tuning")
    card = page[page.index('data-tunable="queued.max.requests"') :]
    card = card[: card.index("</section>")]
    assert f'min="1" max="{reach}" value="{value}"' in card
    assert "allowed: any number from <b>1</b>" in card


async def test_the_page_says_what_limits_what_is_on_trial_and_what_the_last_changes_did(live: LiveAdmin) -> None:
    number = await measured_change(live)
    await live.http.patch("/api/v1/config", json={"queued.max.requests": 7}, params={"try_seconds": 60})
    page = await page_of(live.http, "/brokers/1/tuning")
    assert "What limits it now" in page
    assert "The broker is idle" in page or "limit" in page
    assert f'<a href="/changes/{number + 1}">change {number + 1}</a>' in page
    assert f'data-address="/api/v1/changes/{number + 1}:keep"' in page
    tunable = page[page.index('data-form="queued.max.requests"') :]
    assert tunable[tunable.index("data-reset") :].partition(">")[0].split()[-1] == "hidden"
    assert 'data-tunable="log.cleaner.threads"' in page
    assert f'<a href="/changes/{number}">' in page


def latency_of(api: str, count: int, **p99_ms: float) -> ApiLatency:
    phases = tuple(
        PhaseLatency(phase, LatencySummary(1, 1, 1, p99_ms.get(phase.value, 0.0), 1)) for phase in RequestPhase
    )
    total = sum(ms for phase, ms in p99_ms.items() if phase != "purgatory")
    active = LatencySummary(total, total / 2, total, total, total)
    times = RequestLatency(60.0, count, count / 60, 0, {}, NO_LATENCY, active, phases)
    return ApiLatency(api, times, times)


def test_a_bar_is_as_long_as_its_quantile_and_its_phases_share_it() -> None:
    bars = lifecycle_bars(
        [latency_of("Fetch", 10, local=5.0, purgatory=500.0), latency_of("Produce", 10, local=10.0, disk=30.0)]
    )
    assert [each.api for each in bars] == ["Produce", "Fetch"]
    _, p99 = bars[0].bars
    assert (p99.ms, p99.width) == (40.0, BAR_WIDTH)
    assert [(part.phase, part.x, part.width) for part in p99.parts] == [
        ("local", 0.0, BAR_WIDTH / 4),
        ("disk", BAR_WIDTH / 4, 3 * BAR_WIDTH / 4),
    ]
    assert bars[1].bars[1].width == BAR_WIDTH / 8


def test_apis_that_were_not_asked_have_no_bars() -> None:
    assert lifecycle_bars([latency_of("Fetch", 0)]) == []


# --- changes ---


async def test_the_list_and_the_page_of_a_change_show_each_field(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    number = await measured_change(live)
    change = live.broker.services.changes.changes[-1]
    assert change.effect is not None
    listed = await page_of(live.http, "/changes")
    assert f'<a href="/changes/{number}">{number}</a>' in listed
    assert_shows(listed, change.effect.summary, "created topic orders")
    assert "created topic orders" not in await page_of(live.http, "/changes?action=config")
    page = await page_of(live.http, f"/changes/{number}")
    [value] = change.values
    assert_shows(page, f"{value.name} {value.old} {value.new}", change.effect.summary, "syncs busy 99 % 58 %")
    assert_shows(page, "pytest from 127.0.0.1 over HTTP", f"Request {change.origin.request}")
    await page_of(live.http, "/changes/99", 404)


async def test_a_change_on_trial_can_be_kept_and_undone_from_its_page(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/config", json={"queued.max.requests": 7}, params={"try_seconds": 60})
    page = await page_of(live.http, "/changes/1")
    assert 'data-address="/api/v1/changes/1:keep"' in page
    assert 'data-address="/api/v1/changes/1:undo"' in page
    await live.http.post("/api/v1/changes/1:undo")
    page = await page_of(live.http, "/changes/1")
    assert "tried and reverted by pytest from 127.0.0.1 over HTTP" in page
    assert "/1:keep" not in page
    assert 'reverts <a href="/changes/1">' in await page_of(live.http, "/changes/2")


async def test_a_broker_without_changes_says_what_would_appear(live: LiveAdmin) -> None:
    assert "Nothing was changed yet" in await page_of(live.http, "/changes")
    assert "No setting was changed yet" in await page_of(live.http, "/brokers/1/tuning")


async def test_names_that_clients_chose_are_inert(live: LiveAdmin) -> None:
    values = (ValueChange(HOSTILE, HOSTILE, None),)
    made = MadeChange(ChangeAction.OFFSETS_RESET, ChangedResource.GROUP, HOSTILE, values)
    live.broker.services.changes.record(made)
    for address in ("/changes", "/changes/1", "/changes?search=script"):
        assert_inert(await page_of(live.http, address))


async def test_the_client_that_a_verdict_names_is_inert(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    fake.samples.append(attrs.evolve(fake.sample(), backlog=client_backlog(client_id=HOSTILE), disk_wait_ratio=0.0))
    assert_inert(await page_of(client, "/brokers/1/tuning"))


# --- in a browser ---


@needs_chromium
async def test_a_setting_is_tried_and_undone_in_the_browser(live: LiveAdmin, live_url: str, browser: Browser) -> None:
    page = await browser.open_page(f"{live_url}/brokers/1/tuning")
    await page.until("document.querySelector('[data-link-text]').textContent === 'live'")
    form = "document.querySelector('[data-form=\"num.io.threads\"]')"
    await page.evaluate(f"{form}.querySelector('input[type=number]').value = 64")
    await page.evaluate(f"{form}.querySelector('input[type=number]').dispatchEvent(new Event('input'))")
    await page.evaluate(f"{form}.querySelector('[data-try]').click()")
    await page.until("document.querySelector('#trial a') !== null")
    await page.until(f"{form}.querySelector('[data-now]').innerText === '64'")
    assert live.broker.config.socket_server.num_io_threads == 64
    assert await page.evaluate(f"{form}.querySelector('[data-reset]').hidden")
    await page.evaluate("document.querySelector('#trial [data-opens=undo-trial]').click()")
    await page.evaluate("document.querySelector('#undo-trial [data-does]').click()")
    await page.until(
        "document.querySelector('#effects').innerText.includes('tried and reverted by a page of this site')"
    )
    await page.until("document.querySelector('#trial a') === null")
    assert live.broker.config.socket_server.num_io_threads == 8


@needs_chromium
async def test_the_pages_hold_together_at_every_width(live: LiveAdmin, live_url: str, browser: Browser) -> None:
    number = await measured_change(live)
    page = await browser.open_page("about:blank")
    addresses = ("/brokers/1/tuning", "/changes", f"/changes/{number}")
    await assert_no_wider_than_the_window(page, [f"{live_url}{address}?still" for address in addresses])


@needs_chromium
async def test_when_a_trial_is_over_its_dialog_closes_and_nothing_speaks_of_it(
    live: LiveAdmin, live_url: str, browser: Browser
) -> None:
    page = await browser.open_page(f"{live_url}/brokers/1/tuning")
    outcome = "document.querySelector('[data-form=\"num.io.threads\"] [data-outcome]').textContent"
    await page.type("[data-form='num.io.threads'] [type=number]", "9")
    await page.evaluate("document.querySelector('[data-form=\"num.io.threads\"] [data-try]').click()")
    await page.until(f"{outcome}.includes('keep or undo it above')")
    await page.click("Keep it …")
    await page.until("document.querySelector('#keep-trial').open")
    [change] = (await live.get("/api/v1/changes"))["items"]
    await live.http.post(f"/api/v1/changes/{change['number']}:undo")
    await page.until("!document.querySelector('#keep-trial').open")
    await page.until(f"{outcome} === ''")
