"""The overview over a real broker: its address in the API, its page without a script, and in a browser."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trustme

from broker_admin.getting_started import PLAINTEXT, bootstrap_address, snippets
from broker_admin.group_diagnosis import RESTLESS_REBALANCES
from broker_admin.pages import ASSETS
from broker_admin.views.node.identity import AdvertisedListener
from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.fake_groups import fake_rebalance
from tests.admin.live_admin import LiveAdmin, commit, open_live_admin
from tests.admin.page_reading import (
    HOSTILE,
    assert_inert,
    assert_no_wider_than_the_window,
    assert_nothing_is_inline,
    assert_shows,
    page_of,
)
from tests.running_broker import WAIT_SECONDS, fetch_request, running, view_of
from tests.security.tls_files import write_key_store
from tests.waits import fail_after, run_program
from trio_broker.coordinator.reporting.snapshot import GroupLagReading, GroupRates, LagTrend
from trio_broker.network.client_activity import ClientSoftware
from trio_broker.runtime.clock import ManualClock
from trio_broker.testing import BrokerProcess


async def overview_once(live: LiveAdmin, name: str, value: Any) -> dict[str, Any]:
    """The overview in whose part ``name`` there is ``value``: sizes are kept for some seconds, samples take one."""
    with fail_after(WAIT_SECONDS):
        while True:
            overview: dict[str, Any] = await live.get("/api/v1/overview")
            if overview[name] == value:
                return overview
            await trio.sleep(0.05)


def growing(
    group_id: str, change: float, *, seconds: float | None = 60.0, lag: int = 100, consumed: float = 1.0
) -> GroupLagReading:
    rates = GroupRates(
        over_seconds=60.0, consumed_per_second=consumed, produced_per_second=consumed + change,
        lag_change_per_second=change,
        trend=LagTrend.GROWING if change > 0 else LagTrend.STEADY, catches_up_in_seconds=None,
    )  # fmt: skip
    return GroupLagReading(group_id, lag, seconds, rates)


def bootstrap_of(live: LiveAdmin) -> str:
    return f"127.0.0.1:{live.broker.bound_endpoints[0].port}"


# --- a broker without records ---


async def test_a_broker_without_records_shows_its_address_and_five_ways_to_write_the_first(live: LiveAdmin) -> None:
    assert (await live.get("/api/v1/overview"))["has_records"] is False
    page = await page_of(live.http, "/")
    bootstrap = bootstrap_of(live)
    shown = snippets(bootstrap, PLAINTEXT)
    assert_shows(page, bootstrap, *(each.title for each in shown), *(each.text for each in shown))
    assert page.count("data-copies") == 1 + len(shown) == 6
    assert "topics create" not in page
    assert_nothing_is_inline(page)


async def test_the_first_record_ends_that(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await page_of(live.http, "/")
    await live.kafka.produce("orders", b"one")
    await overview_once(live, "has_records", True)
    page = await page_of(live.http, "/")
    assert 'id="start"' not in page
    assert "Largest topics" in page


async def test_a_broker_that_makes_no_topics_says_how_to_make_one(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path, auto_create_topics_enable="false") as live:
        assert_shows(await page_of(live.http, "/"), f"trio-broker topics create greetings -b {bootstrap_of(live)}")


async def test_a_listener_without_a_host_is_reached_by_the_one_that_the_caller_dialled(live: LiveAdmin) -> None:
    node = attrs.evolve(
        live.view.node.identity.description(), listeners=(AdvertisedListener("PLAINTEXT", "PLAINTEXT", "", 9092),)
    )
    assert bootstrap_address(node, "192.0.2.7") == "192.0.2.7:9092"
    assert bootstrap_address(node, "::1") == "[::1]:9092"
    assert bootstrap_address(attrs.evolve(node, listeners=()), "localhost") == "localhost:9092"


def test_each_snippet_of_a_listener_with_tls_and_a_login_has_the_authority_and_the_user() -> None:
    listener = AdvertisedListener("SASL_SSL", "SASL_SSL", "", 9092, ("PLAIN", "SCRAM-SHA-512"), "/etc/broker/ca.pem")
    user, properties, *clients = snippets("broker.example:9092", listener)
    assert user.text.startswith("trio-broker users create USER --may create:greetings write:greetings")
    assert "ssl.truststore.location=/etc/broker/ca.pem\nsasl.mechanism=SCRAM-SHA-512\n" in properties.text
    for client in clients:
        assert "/etc/broker/ca.pem" in client.text or "client.properties" in client.text, client
        assert "PASSWORD" in client.text or "client.properties" in client.text, client
    assert 'sasl: { mechanism: "scram-sha-512", username: "USER"' in clients[1].text


async def test_the_page_of_a_broker_with_tls_and_a_login_names_the_file_that_clients_trust(tmp_path: Path) -> None:
    key_store = write_key_store(tmp_path / "broker.pem", trustme.CA().issue_cert("127.0.0.1"))
    secured = {
        "listeners": "CLIENTS://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,OPEN:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    async with running(tmp_path / "data", **secured) as broker:
        listeners = view_of(broker).node.identity.description().listeners
    assert [(each.mechanisms, each.authority) for each in listeners] == [
        (("SCRAM-SHA-256",), str(tmp_path / "ca.pem")),
        ((), ""),
    ]


@pytest.mark.compat
def test_the_snippets_do_what_they_say(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        python, _, _, _, commands = snippets(broker.bootstrap_servers, PLAINTEXT)
        run_program([sys.executable, "-c", python.text], 60, check=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = run_program(
            ["sh", "-c", commands.text], 60, check=True, capture_output=True, text=True, env={"PATH": path}
        )
        assert shell.stdout.splitlines() == ["hello", "hello"]


# --- a broker with records ---


async def test_topics_are_listed_by_size_and_by_traffic_without_the_internal_ones(live: LiveAdmin) -> None:
    for number in range(7):
        await live.kafka.create_topic(f"t{number}")
        await live.kafka.produce(f"t{number}", b"x" * 1000 * (number + 1))
    await live.kafka.ask(fetch_request("t0"), 12)
    await commit(live, "billing", "t0", 0)
    overview = await overview_once(live, "topics", 8)
    assert [each["topic"] for each in overview["largest_topics"]] == ["t6", "t5", "t4", "t3", "t2"]
    assert len(overview["busiest_topics"]) == 5
    assert all(each["bytes_in_per_second"] > 0 for each in overview["busiest_topics"])
    page = await page_of(live.http, "/")
    assert '<a href="/topics/t6">t6</a>' in page


async def test_groups_that_fall_behind_come_first_and_are_counted(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.kafka.create_topic("orders")
    for group_id in ("slow", "slower", "young", "still", "large"):
        await commit(live, group_id, "orders", 0)
    lags = [
        growing("still", 0.0, lag=50),
        growing("large", 0.0, lag=90_000),
        growing("young", 70.0, seconds=4.0, lag=10),
        growing("slow", 5.0),
        growing("deleted", 0.0, lag=1_000_000),
        growing("slower", 50.0, seconds=None),
    ]
    monkeypatch.setattr(live.broker.services.groups, "latest_lags", lambda: lags)
    overview = await live.get("/api/v1/overview")
    groups = overview["lagging_groups"]
    assert [(each["group_id"], each["falls_behind"]) for each in groups] == [
        ("slower", True), ("slow", True), ("large", False), ("still", False), ("young", False),
    ]  # fmt: skip
    assert overview["groups_falling_behind"] == 2
    assert "2 groups fall behind" in overview["health"]["summary"]


async def test_groups_that_nobody_reads_for_are_abandoned_and_do_not_fall_behind(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"x")
    await overview_once(live, "has_records", True)
    for group_id in ("dead", "deader", "own-partitions", "done"):
        await commit(live, group_id, "orders", 0)
    lags = [
        growing("dead", 50.0, consumed=0.0),
        growing("deader", 5.0, consumed=0.0, lag=9_000),
        growing("own-partitions", 50.0),
        growing("done", 0.0, consumed=0.0, lag=0),
    ]
    monkeypatch.setattr(live.broker.services.groups, "latest_lags", lambda: lags)
    overview = await live.get("/api/v1/overview")
    assert [each["group_id"] for each in overview["abandoned_groups"]] == ["deader", "dead"]
    assert [each["group_id"] for each in overview["lagging_groups"]] == ["own-partitions", "done"]
    assert (overview["groups_abandoned"], overview["groups_falling_behind"]) == (2, 1)
    assert overview["health"]["summary"] == "Group own-partitions falls behind."
    page = await page_of(live.http, "/")
    assert_shows(page, "Abandoned groups")
    assert '<a href="/groups/deader">' in page


async def test_a_group_that_keeps_rebalancing_is_in_the_verdict_until_it_has_come_to_rest(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, clock = live.view.cluster.groups, ManualClock()
    monkeypatch.setattr(groups, "_clock", clock)
    monkeypatch.setattr(groups, "timeline", lambda group_id: (fake_rebalance(0, 1, 1, 1),))
    for _ in range(RESTLESS_REBALANCES - 1):
        clock.advance(6)
        groups._note_rebalance("flappy")
    assert (await live.get("/api/v1/overview"))["health"]["summary"] == "Healthy."
    groups._note_rebalance("flappy")
    assert "Group flappy rebalances" in (await live.get("/api/v1/overview"))["health"]["summary"]
    clock.advance(121)
    assert (await live.get("/api/v1/overview"))["health"]["summary"] == "Healthy."


async def test_the_newest_changes_and_errors_are_listed(live: LiveAdmin) -> None:
    for number in range(6):
        await live.kafka.create_topic(f"t{number}")
    await live.kafka.produce("nowhere", b"x")
    overview = await live.get("/api/v1/overview")
    assert [each["resource"] for each in overview["changes"]] == ["t5", "t4", "t3", "t2", "t1"]
    [error] = overview["errors"]
    assert (error["api"], error["error"], error["client_id"], error["count"]) == (
        "Produce", "UNKNOWN_TOPIC_OR_PARTITION", "test", 1,
    )  # fmt: skip
    page = await page_of(live.http, "/")
    assert "created topic t5" in page
    assert "created topic t0" not in page
    assert '<a href="/brokers/1/clients/client?client_id=test">' in page


async def test_load_and_latency_are_those_of_the_samples(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one", b"two")
    with fail_after(WAIT_SECONDS):
        while (load := (await live.get("/api/v1/overview"))["load"]) is None or load["produce_p99_ms"] is None:  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert load["produce_p99_ms"] > 0
    assert load["fetch_p99_ms"] is None
    assert load["connections"] == 1
    assert "p99</abbr>" in await page_of(live.http, "/")


async def test_the_page_says_who_the_broker_is(live: LiveAdmin) -> None:
    page, node = await page_of(live.http, "/"), live.view.node.identity.description()
    assert_shows(page, node.cluster_id, f"PLAINTEXT://{bootstrap_of(live)}", "page-cache", node.version)
    assert '<a href="/brokers/1/tuning">' in page
    assert "<noscript>" in page


@pytest.mark.parametrize(
    "name", ["overview.js", "tuning.js", "charts.js", "tunables.js", "live.js", "groups.js", "page.css"]
)
def test_assets_name_no_other_host(name: str) -> None:
    text = ASSETS[name].content.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\w://", text)
    assert "eval(" not in text


async def test_names_that_clients_chose_are_inert(live: LiveAdmin) -> None:
    errors = live.broker.server.channel.metrics.recent_errors
    software = ClientSoftware(HOSTILE, HOSTILE)
    errors.add(ApiKey.PRODUCE, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}, HOSTILE, software, 1000)
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one")
    await commit(live, HOSTILE, "orders", 0)
    await live.broker.services.groups.sample_lag()
    await overview_once(live, "has_records", True)
    page = await page_of(live.http, "/")
    assert page.count("\\u{202e}") >= 3
    assert_inert(page)


# --- in a browser ---


@needs_chromium
async def test_the_first_record_changes_the_page_while_it_is_looked_at(
    live: LiveAdmin, live_url: str, browser: Browser
) -> None:
    page = await browser.open_page(f"{live_url}/")
    await page.until("document.querySelector('[data-link-text]').textContent === 'live'")
    await page.until("document.querySelector('[data-chart=records] svg') !== null")
    assert await page.evaluate("document.querySelector('#start') !== null")
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one")
    await page.until("document.querySelector('#start') === null")
    await page.until("document.querySelector('#largest tbody a')?.textContent === 'orders'")
    # The charts are the script's, and stay when all around them is put in place again.
    assert await page.evaluate("document.querySelector('[data-chart=records] svg') !== null")


@needs_chromium
@pytest.mark.parametrize("has_records", [False, True])
async def test_the_page_holds_together_at_every_width(
    live: LiveAdmin, live_url: str, browser: Browser, has_records: bool
) -> None:
    if has_records:
        await live.kafka.create_topic("o" * 249)
        await live.kafka.produce("o" * 249, b"one")
        await live.kafka.produce("nowhere", b"one")
        await overview_once(live, "has_records", True)
    await assert_no_wider_than_the_window(await browser.open_page("about:blank"), [f"{live_url}/?still"])
