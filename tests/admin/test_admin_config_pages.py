"""The pages ``/config`` and ``/config/loggers`` over a real broker: read without a script, changed in a browser."""

from __future__ import annotations

import logging

import httpx
import pytest

from broker_admin.app import create_app
from broker_admin.logins import Logins
from broker_admin.pages import VIEWER_REFUSAL
from broker_admin.tokens import AdminTokens, Role
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.live_admin import LiveAdmin
from tests.admin.page_reading import assert_no_wider_than_the_window, page_of
from trio_broker.config.entries import ConfigScope

LOGGER = "trio_broker.test_of_config_pages"


def keys_of(text: str) -> list[str]:
    return [part.partition('"')[0] for part in text.split('data-key-link="')[1:]]


# --- without a script ---


async def test_every_key_is_listed_with_value_source_and_limits(live: LiveAdmin) -> None:
    text = await page_of(live.http, "/config")
    configs = (await live.get("/api/v1/config"))["configs"]
    assert keys_of(text) == list(configs)
    assert "1 to 256" in text
    assert '<b>604800000</b> <span class="aside">7 d</span>' in text


async def test_keys_are_searched_by_name_value_and_documentation(live: LiveAdmin) -> None:
    assert keys_of(await page_of(live.http, "/config", search="IO.THREADS")) == ["num.io.threads"]
    assert "log.segment.bytes" in keys_of(await page_of(live.http, "/config", search="1073741824"))
    assert "compression.type" in keys_of(await page_of(live.http, "/config", search="codec that batches"))
    assert "Nothing matches" in await page_of(live.http, "/config", search="no such thing")


async def test_only_keys_that_were_changed_or_can_be_are_listed_where_that_is_asked_for(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/config", json={"num.io.threads": 12})
    changed = keys_of(await page_of(live.http, "/config", changed="true"))
    assert "num.io.threads" in changed
    assert "num.network.threads" not in changed
    assert "node.id" not in keys_of(await page_of(live.http, "/config", live="true"))
    assert set(keys_of(await page_of(live.http, "/config", group="Node"))) >= {"node.id", "log.dirs"}


async def test_an_opened_key_shows_the_value_of_each_level(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/config", params={"level": "cluster"}, json={"num.io.threads": 5})
    text = await page_of(live.http, "/config", key="num.io.threads")
    for level in ("this broker", "cluster default", "command line", "environment", "file", "built-in"):
        assert f'<th scope="row">{level}</th>' in text
    assert text.count("in effect</td>") == 1
    assert "shadowed</td>" in text


async def test_a_key_that_is_read_at_a_start_says_where_it_is_set(live: LiveAdmin) -> None:
    text = await page_of(live.http, "/config", key="num.partitions")
    assert "Set <code>num.partitions=…</code> in <code>server.properties</code> and restart the broker" in text
    assert 'data-edit="num.partitions"' not in text


async def test_a_key_that_is_not_there_is_named_as_text(live: LiveAdmin) -> None:
    text = await page_of(live.http, "/config", key="<b>no such")
    assert "There is no key <code>&lt;b&gt;no such</code>" in text


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("log.preallocate", '<select name="value">'),
        ("compression.type", "<option selected>producer</option>"),
        ("log.cleanup.policy", '<input type="checkbox" name="value" value="delete" checked>'),
        ("num.io.threads", 'type="number" value="8" step="1" min="1" max="256"'),
        ("log.segment.bytes", "or as <i>64 MiB</i>"),
        ("log.retention.ms", "or as <i>7 d</i>"),
    ],
)
async def test_a_field_suits_the_type_of_its_key(live: LiveAdmin, key: str, field: str) -> None:
    assert field in await page_of(live.http, "/config", key=key)


async def test_loggers_are_listed_with_their_levels(live: LiveAdmin) -> None:
    logging.getLogger(LOGGER)
    text = await page_of(live.http, "/brokers/1/loggers", search=LOGGER)
    assert f"<code>{LOGGER}</code>" in text
    assert "1 of 1 that match" in text


async def test_hostile_and_odd_values_are_shown_as_text(live: LiveAdmin) -> None:
    changes = {"max.connections.per.ip.overrides": "<b>x</b>:5", "log.cleaner.io.max.bytes.per.second": "1e999999"}
    assert (await live.http.patch("/api/v1/config", json=changes)).status_code == 200
    assert "&lt;b&gt;x&lt;/b&gt;:5" in await page_of(live.http, "/config", key="max.connections.per.ip.overrides")
    assert "<code>Infinity</code>" in await page_of(live.http, "/config", key="log.cleaner.io.max.bytes.per.second")


async def test_a_secret_is_not_shown(client: httpx.AsyncClient) -> None:
    text = (await client.get("/config?key=password")).text
    assert '<td class="value"><span class="aside">hidden</span>' in text
    assert 'name="value" type="password" autocomplete="off"' in text
    assert "built-in secret" not in text


async def test_what_a_viewer_may_not_do_is_grey_and_says_why(live: LiveAdmin) -> None:
    logins = Logins(AdminTokens({Role.VIEWER: "v" * 43}), has_users=False)
    transport = httpx.ASGITransport(create_app(live.view, logins=logins), client=("127.0.0.1", 5555))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as viewer:
        headers = {"authorization": f"Bearer {'v' * 43}"}
        await live.kafka.create_topic("orders")
        for path, action in (
            ("/config?key=num.io.threads", '<fieldset class="unframed"'),
            ("/brokers/1/loggers", 'aria-label="Set the level of root"'),
            ("/brokers/1/tuning", '<fieldset class="inputs"'),
            ("/topics", 'data-opens="create-topic"'),
            ("/topics/orders", 'data-opens="delete-topic"'),
            ("/topics/orders/messages", 'data-opens="produce"'),
        ):
            text = (await viewer.get(path, headers=headers)).text
            control = text[text.index(action) :].partition(">")[0]
            assert control.endswith(f' disabled title="{VIEWER_REFUSAL}"'), control
            admins = (await live.http.get(path)).text
            assert "disabled" not in admins[admins.index(action) :].partition(">")[0]


# --- in a browser ---


@needs_chromium
async def test_a_batch_is_tried_and_applied_and_its_outcome_read(
    live: LiveAdmin, live_url: str, browser: Browser
) -> None:
    page = await browser.open_page(f"{live_url}/config")
    await page.until("document.querySelector('[data-link-text]').textContent === 'live'")
    await page.click_on("a[data-key-link='log.segment.bytes']")
    await page.until("document.querySelector('form[data-edit=\"log.segment.bytes\"]') !== null")
    assert await page.evaluate("location.search") == "?key=log.segment.bytes"

    await page.type("form[data-edit] input", "64 d")
    await page.until("document.querySelector('[data-note]').textContent.includes('no unit of this key')")
    await page.type("form[data-edit] input", "64 MiB")
    await page.until("document.querySelector('[data-note]').textContent.startsWith('That is 67108864.')")
    await page.click_on("form[data-edit] [type=submit]")
    await page.until("!document.querySelector('[data-pending]').hidden")

    await page.click_on("a[data-key-link='log.cleanup.policy']")
    await page.until("document.querySelector('form[data-edit=\"log.cleanup.policy\"]') !== null")
    await page.click_on("form[data-edit] [value=compact]")
    await page.click_on("form[data-edit] [type=submit]")
    await page.until("document.querySelector('[data-pending]').innerText === 'Review 2 changes …'")

    await page.click_on("[data-opens='change-settings']")
    await page.until("!document.querySelector('#change-settings [data-differences]').hidden")
    assert "1073741824 → 67108864" in await page.text("#change-settings [data-differences]")
    assert live.broker.services.config.log.segment_bytes == 1 << 30
    commands = await page.evaluate(
        "[...document.querySelectorAll('#change-settings [data-command]')].map(e => e.textContent)"
    )
    assert "--add-config 'log.segment.bytes=67108864,log.cleanup.policy=[delete,compact]'" in commands[0]
    assert (
        "--broker 1 \\\n  --set log.segment.bytes=67108864 \\\n  --set log.cleanup.policy=delete,compact" in commands[1]
    )
    await page.evaluate("document.querySelector('#change-settings select').value = 'cluster'")
    await page.evaluate("document.querySelector('#change-settings select').dispatchEvent(new Event('change'))")
    await page.until("document.querySelector('#change-settings thead').innerText.includes('Cluster default')")

    await page.click_on("#change-settings [data-does]")
    await page.until("document.querySelector('[data-toasts]').innerText.startsWith('Change settings: done.')")
    assert live.broker.services.config.log.segment_bytes == 64 << 20
    await page.until(
        "document.querySelector('tr[data-key=\"log.segment.bytes\"] .source').innerText === 'cluster default'"
    )
    assert await page.evaluate("document.querySelector('[data-pending]').hidden")


async def test_a_key_can_be_reset_where_something_was_set(live: LiveAdmin) -> None:
    async def reset_of(key: str) -> str:
        text = await page_of(live.http, "/config", key=key)
        return text[text.index("data-reset") :].partition(">")[0]

    assert 'disabled title="Nothing was set while the broker ran' in await reset_of("num.io.threads")
    await live.http.patch("/api/v1/config?level=cluster", json={"num.io.threads": 9})
    assert "disabled" not in await reset_of("num.io.threads")
    await live.http.patch("/api/v1/config?try_seconds=60", json={"num.io.threads": 10})
    assert 'disabled title="It is on trial: keep it or undo it"' in await reset_of("num.io.threads")


@needs_chromium
async def test_a_batch_is_tried_for_a_minute_and_kept(live: LiveAdmin, live_url: str, browser: Browser) -> None:
    page = await browser.open_page(f"{live_url}/config?key=queued.max.requests")
    await page.until("document.querySelector('[data-link-text]').textContent === 'live'")
    await page.type("form[data-edit] input", "400")
    await page.click_on("form[data-edit] [type=submit]")
    await page.until("!document.querySelector('[data-pending]').hidden")
    await page.click_on("[data-opens='change-settings']")
    for level, outcome in (("cluster", "Nothing was changed"), ("broker", "This would be done")):
        await page.evaluate(
            "(([level, seconds], value) => { level.value = value; seconds.value = '60';"
            " level.dispatchEvent(new Event('change', {bubbles: true})) })"
            f"(document.querySelectorAll('#change-settings select'), '{level}')"
        )
        await page.until(f"document.querySelector('#change-settings [data-outcome]').innerText.includes('{outcome}')")
        refused = await page.evaluate("document.querySelectorAll('#change-settings .reason').length")
        assert refused == (level == "cluster")
    assert "try_seconds=60" in str(
        await page.evaluate("document.querySelector('#change-settings [data-call]').textContent")
    )
    await page.click_on("#change-settings [data-does]")
    await page.until("document.querySelector('#trial [data-opens=keep-trial]') !== null")
    assert live.broker.config.socket_server.queued_max_requests == 400
    assert live.broker.config.tried == {"queued.max.requests": "400"}
    await page.click_on("#trial [data-opens=keep-trial]")
    call = await page.evaluate("document.querySelector('#keep-trial [data-call]').textContent")
    assert "/api/v1/changes/1:keep" in str(call)
    await page.click_on("#keep-trial [data-does]")
    await page.until("document.querySelector('#trial [data-opens]') === null")
    assert await page.evaluate("document.querySelector('[data-toasts] a').getAttribute('href')") == "/changes/1"
    assert live.broker.config.dynamic(ConfigScope.BROKER) == {"queued.max.requests": "400"}
    await page.until("!document.querySelector('form[data-edit] [data-reset]').disabled")


@needs_chromium
async def test_a_level_is_tried_and_set(live: LiveAdmin, live_url: str, browser: Browser) -> None:
    logging.getLogger(LOGGER)
    page = await browser.open_page(f"{live_url}/brokers/1/loggers?search={LOGGER}")
    await page.click_on("[data-logger]")
    await page.type("#set-level select", "DEBUG")
    await page.click_on("#set-level [data-tries]")
    await page.until("document.querySelector('#set-level [data-differences]').innerText.includes('→ DEBUG')")
    assert logging.getLogger(LOGGER).level == logging.NOTSET
    kafkas, ours = await page.evaluate(
        "[...document.querySelectorAll('#set-level [data-command]')].map(each => each.textContent)"
    )
    assert f"--entity-type broker-loggers --entity-name 1 --alter \\\n  --add-config {LOGGER}=DEBUG" in kafkas
    assert f"--broker-logger 1 \\\n  --set {LOGGER}=DEBUG" in ours
    await page.click_on("#set-level [data-does]")
    await page.until("document.querySelector('#loggers .level').innerText === 'DEBUG'")
    assert logging.getLogger(LOGGER).level == logging.DEBUG
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)


@needs_chromium
async def test_the_pages_hold_together_at_every_width(live: LiveAdmin, live_url: str, browser: Browser) -> None:
    addresses = [f"{live_url}{path}" for path in ("/config?key=log.segment.bytes&still", "/brokers/1/loggers?still")]
    await assert_no_wider_than_the_window(await browser.open_page("about:blank"), addresses)
