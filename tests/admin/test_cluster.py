"""The admin app over a cluster: any broker answers for all, and says what is missing."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import trio
from confluent_kafka import Producer

from tests.admin.chromium import Browser, needs_chromium
from tests.waits import eventually, flushed, scaled
from trio_broker.broker_view.live import LiveBrokerView
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.metrics.bottleneck import Limit
from trio_broker.partition.remote_leader_endpoint import RemoteLeaderEndpoint
from trio_broker.security.kafka_principal import ANONYMOUS
from trio_broker.testing import ClusterThread

WAIT_SECONDS = 30

CELL = "document.querySelector('[data-rows] tr').cells"
"""Of the first row of a table: those of the replicas of a partition have its leader, high watermark and ISR."""

WITH_ADMIN = {"admin_listener": "127.0.0.1:0", "log_durability": "page-cache"}


def asked(cluster: ClusterThread, node_id: int, path: str, body: Any = None, method: str | None = None) -> Any:
    """The JSON that one broker answers with; asked by GET, or by POST where there is a body, unless by ``method``."""
    url = f"{cluster.broker(node_id).admin_url}{path}"
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-Requested-With": "pytest", "Content-Type": "application/json"}
    with urlopen(Request(url, data, headers, method=method), timeout=scaled(WAIT_SECONDS)) as answer:
        return json.load(answer)


def page(cluster: ClusterThread, node_id: int, path: str) -> str:
    """A page as one broker shows it."""
    with urlopen(f"{cluster.broker(node_id).admin_url}{path}", timeout=scaled(WAIT_SECONDS)) as answer:
        text: str = answer.read().decode()
        return text


def is_reset(cluster: ClusterThread) -> bool:
    """Whether the offsets of a group are set; the first one makes the topic of groups, which is loaded soon after."""
    reset = {"target": "earliest", "topics": [{"topic": "single"}]}
    try:
        partitions = asked(cluster, 1, "api/v1/groups/billing:reset-offsets", reset)["partitions"]
    except HTTPError as error:
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return False
    return not any(each["error"] for each in partitions)


def listed_groups(cluster: ClusterThread, node_id: int) -> Any:
    """The groups of a report, which may be some seconds old."""
    return asked(cluster, node_id, "api/v1/groups")["items"]


# Long enough that on a busy machine nobody is fenced but the one that is killed.
@pytest.mark.kafka_cluster(brokers=3, **WITH_ADMIN, broker_session_timeout_ms=3000)
def test_every_broker_answers_for_all_and_names_the_one_that_is_away(kafka_cluster: ClusterThread) -> None:
    kafka_cluster.create_topic("single", partitions=3, replication_factor=1)
    kafka_cluster.create_topic("orders", partitions=3)
    for partition in range(3):
        [appended] = asked(
            kafka_cluster, 1, "api/v1/topics/single/records", {"value": f"v{partition}", "partition": partition}
        )["records"]
        assert appended["error"] is None
    for node_id in (1, 2, 3):
        [orders, single] = asked(kafka_cluster, node_id, "api/v1/topics")["items"]
        assert (single["record_count"], single["unavailable_partition_count"]) == (3, 0)
        assert (orders["partition_count"], orders["unavailable_partition_count"]) == (3, 0)
        found = asked(kafka_cluster, node_id, "api/v1/topics/single/records?from=oldest")["records"]
        assert sorted(each["value"]["data"] for each in found) == ["v0", "v1", "v2"]
        # What is not put together of all brokers says whose it is.
        assert f"Rates at broker {node_id}</h2>" in page(kafka_cluster, node_id, "topics/orders")
        assert f"those of broker {node_id} alone" in page(kafka_cluster, node_id, "changes")
        # What is another broker's is passed on to it.
        assert asked(kafka_cluster, node_id, f"api/v1/brokers/{node_id % 3 + 1}")["node_id"] == node_id % 3 + 1
    eventually(partial(is_reset, kafka_cluster), WAIT_SECONDS)
    for node_id in (1, 2, 3):
        eventually(partial(listed_groups, kafka_cluster, node_id), WAIT_SECONDS)
        [group] = listed_groups(kafka_cluster, node_id)
        offsets = asked(kafka_cluster, node_id, "api/v1/groups/billing/offsets")
        assert (group["group_id"], offsets["lag_records"], offsets["partitions_without_lag"]) == ("billing", 3, 0)
    controller, away = kafka_cluster.controller_id(), kafka_cluster.controller_id() % 3 + 1
    kafka_cluster.kill(away)
    eventually(lambda: asked(kafka_cluster, controller, "api/v1/cluster")["offline_count"] == 1, WAIT_SECONDS)
    cluster = asked(kafka_cluster, controller, "api/v1/cluster")
    [gone] = [each for each in cluster["brokers"] if each["state"] == "fenced"]
    assert gone["node_id"] == away
    first = cluster["under_replicated"][0]
    assert (first["topic"], first["leader"]) == ("single", -1)
    assert first["out_of_sync"][0]["reason"] == f"broker {away} is fenced: out of contact"
    [orders, single] = asked(kafka_cluster, controller, "api/v1/topics")["items"]
    assert (single["record_count"], single["unavailable_partition_count"]) == (2, 1)
    events = asked(kafka_cluster, controller, "api/v1/cluster/events")["events"]
    assert {"broker", "leaderless", "isr-shrink"} <= {each["kind"] for each in events}


@pytest.mark.kafka_cluster(
    brokers=3, **WITH_ADMIN, authorizer_class_name=STANDARD_AUTHORIZER, super_users=str(ANONYMOUS)
)
def test_the_controller_makes_the_changes_of_rights_and_quotas_that_other_brokers_are_asked_for(
    kafka_cluster: ClusterThread,
) -> None:
    asked_one = kafka_cluster.controller_id() % 3 + 1
    right = {"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:alice", "operation": "READ"}
    quota = {"user": "alice", "quotas": {"producer_byte_rate": 1000.0}}
    asked(kafka_cluster, asked_one, "api/v1/acls", right)
    asked(kafka_cluster, asked_one, "api/v1/quotas", quota, "PUT")

    def listed(path: str) -> list[Any]:
        return [asked(kafka_cluster, node_id, path)["items"] for node_id in kafka_cluster.broker_ids]

    def is_everywhere() -> bool:
        return all(listed("api/v1/acls")) and all(listed("api/v1/quotas"))

    eventually(is_everywhere, WAIT_SECONDS)
    assert [(entry["resource_name"], entry["operation"]) for [entry] in listed("api/v1/acls")] == 3 * [
        ("orders", "READ")
    ]
    assert [entry["quotas"] for [entry] in listed("api/v1/quotas")] == 3 * [quota["quotas"]]
    asked(kafka_cluster, asked_one, f"api/v1/acls?{urlencode(right)}", method="DELETE")
    asked(kafka_cluster, asked_one, "api/v1/quotas?user=alice", method="DELETE")
    eventually(lambda: not any(listed("api/v1/acls") + listed("api/v1/quotas")), WAIT_SECONDS)


@pytest.mark.kafka_cluster(brokers=3, log_durability="page-cache")
def test_a_slow_follower_is_what_limits(kafka_cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka_cluster.create_topic("orders")
    leader = kafka_cluster.leader_of("orders")
    slow = leader % 3 + 1
    broker = kafka_cluster.broker(leader)
    answered = RemoteLeaderEndpoint.fetch

    async def fetch_slowly(self: RemoteLeaderEndpoint, *arguments: Any, **options: Any) -> Any:
        if self.follower.node_id == slow:
            await trio.sleep(0.3)
        return await answered(self, *arguments, **options)

    monkeypatch.setattr(RemoteLeaderEndpoint, "fetch", fetch_slowly)

    async def view_of_leader() -> LiveBrokerView:
        return LiveBrokerView(broker.services, broker.server, lambda: False)

    view = kafka_cluster.call(view_of_leader)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "acks": "all"})

    def is_named() -> bool:
        producer.produce("orders", b"v", partition=0)
        producer.poll(0.05)
        return view.node.latency.bottleneck().broker_id == slow

    eventually(is_named, WAIT_SECONDS)
    found = view.node.latency.bottleneck()
    assert flushed(producer, WAIT_SECONDS)
    assert (found.limit, found.broker_id) == (Limit.REPLICATION, slow)
    assert f"broker {slow}, the slowest" in found.summary


@needs_chromium
@pytest.mark.kafka_cluster(brokers=3, **WITH_ADMIN)
async def test_an_election_is_on_the_open_page_when_it_happens(kafka_cluster: ClusterThread, browser: Browser) -> None:
    kafka_cluster.create_topic("orders")
    leader = kafka_cluster.leader_of("orders")
    page = await browser.open_page(f"{kafka_cluster.broker(leader % 3 + 1).admin_url}replication", width=420)
    await page.until("document.querySelector('[data-link]').dataset.link === 'live'")
    await trio.to_thread.run_sync(kafka_cluster.kill, leader)
    await page.until(
        f"/broker [123] leads orders-0 in epoch \\d+, after broker {leader}/.test(document.body.textContent)"
    )
    await page.until(f"document.querySelector('#out-of-sync').textContent.includes('broker {leader} is fenced')")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 420


@needs_chromium
@pytest.mark.kafka_cluster(brokers=3, **WITH_ADMIN)
async def test_leader_replicas_in_sync_and_high_watermark_move_on_the_open_page(
    kafka_cluster: ClusterThread, browser: Browser
) -> None:
    kafka_cluster.create_topic("orders", min_insync_replicas=2)
    leader = kafka_cluster.leader_of("orders")
    page = await browser.open_page(f"{kafka_cluster.broker(leader % 3 + 1).admin_url}topics/orders/replicas")
    await page.evaluate("window.isTheFirst = true")
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "acks": "all"})

    async def append_one() -> None:
        producer.produce("orders", b"v")
        assert await trio.to_thread.run_sync(flushed, producer, WAIT_SECONDS)

    async def until_shown(leader: str, high_watermark: int, in_sync: str) -> None:
        await page.until(f"/^{leader} .*epoch/.test({CELL}[1].innerText.trim())")
        await page.until(f"/^{high_watermark}$/.test({CELL}[2].innerText.trim())")
        await page.until(f"/^{in_sync}$/.test({CELL}[3].innerText.trim())")

    await until_shown(str(leader), 0, "[123], [123], [123]")
    await append_one()
    await until_shown(str(leader), 1, "[123], [123], [123]")
    await trio.to_thread.run_sync(kafka_cluster.kill, leader)
    await until_shown(f"[^{leader}]", 1, "[123], [123]")
    await append_one()
    await until_shown(f"[^{leader}]", 2, "[123], [123]")
    await trio.to_thread.run_sync(kafka_cluster.restart, leader)
    await until_shown("[123]", 2, "[123], [123], [123]")
    assert await page.evaluate("window.isTheFirst"), "the page was not loaded again"
