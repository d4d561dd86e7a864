"""Claims about the JSON addresses of the admin server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import trio
from starlette.routing import Route

from broker_admin.app import create_app
from broker_admin.routing import NodeRoute
from broker_admin.views.node.readings import ThreadStatistics
from tests.admin.fake_broker import FakeBroker, FakeReadings
from tests.admin.live_admin import LiveAdmin, pointers

CHANGE_HEADERS = {"x-requested-with": "pytest", "content-type": "application/json"}


async def patch(client: httpx.AsyncClient, body: str | bytes, headers: Mapping[str, str] = CHANGE_HEADERS) -> Any:
    return await client.patch("/api/v1/config", content=body, headers=headers)


async def test_a_sensitive_value_leaves_the_broker_by_no_way(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    changed = await patch(client, '{"password": "new secret"}')
    assert changed.status_code == 200
    assert fake.dynamic["password"] == "new secret"
    answers = [changed.text, *[(await client.get(at)).text for at in ("/api/v1/config", "/api/v1/changes", "/")]]
    assert not any("secret" in answer for answer in answers)
    change = changed.json()["changes"][0]
    assert (change["key"], change["old"], change["new"]) == ("password", None, None)


async def test_a_change_answers_with_the_values_now_in_effect(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    answer = await patch(client, '{"num.io.threads": 12, "queued.max.requests": "750"}')
    assert answer.status_code == 200
    body = answer.json()
    assert {key: entry["value"] for key, entry in body["configs"].items()} == {
        "num.io.threads": "12",
        "queued.max.requests": "750",
    }
    assert [(change["key"], change["old"], change["new"]) for change in body["changes"]] == [
        ("num.io.threads", "8", "12"),
        ("queued.max.requests", "500", "750"),
    ]
    assert fake.journal[0].changed_by == "http (pytest) from 127.0.0.1"


@pytest.mark.parametrize(
    ("json_text", "config_text"), [("12", "12"), ("12.0", "12"), ('"12"', "12"), ("true", "true"), ("1.5", "1.5")]
)
async def test_numbers_booleans_and_strings_are_taken(
    client: httpx.AsyncClient, fake: FakeBroker, json_text: str, config_text: str
) -> None:
    assert (await patch(client, f'{{"log.retention.ms": {json_text}}}')).status_code == 200
    assert fake.dynamic["log.retention.ms"] == config_text


async def test_null_resets_to_the_lower_layer(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    fake.dynamic["num.io.threads"] = "12"
    answer = await patch(client, '{"num.io.threads": null}')
    assert answer.json()["configs"]["num.io.threads"]["value"] == "8"
    assert fake.dynamic == {}


async def test_one_refused_key_refuses_all_of_them(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    answer = await patch(client, '{"num.io.threads": 12, "node.id": 7, "num.network.threads": 1000, "no.such": 1}')
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["title"], problem["status"]) == ("Unprocessable Entity", 422)
    reasons = {error["pointer"]: error["detail"] for error in problem["errors"]}
    assert reasons.keys() == {"/node.id", "/num.network.threads", "/no.such"}
    assert "outside 1 to 256" in reasons["/num.network.threads"]
    assert fake.dynamic == {}
    assert fake.journal == []


async def test_a_value_that_is_a_structure_is_refused_by_key(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    assert pointers(await patch(client, '{"num.io.threads": [12], "log.retention.ms": 1}'), 422) == ["/num.io.threads"]
    assert fake.dynamic == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": \xff}',
        b'{"a": ' + b"[" * 20_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(9),
)
async def test_a_body_that_is_no_object_of_changes_is_refused_with_a_reason(
    client: httpx.AsyncClient, body: bytes
) -> None:
    answer = await patch(client, body)
    assert answer.status_code == 400
    assert len(answer.json()["detail"]) > 10


async def test_a_body_that_does_not_come_is_not_waited_for(
    fake: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    async def never_ending() -> AsyncIterator[bytes]:
        yield b'{"num.io'
        await trio.sleep_forever()

    transport = httpx.ASGITransport(create_app(fake.view))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None) as client:
        answer = await client.patch("/api/v1/config", content=never_ending(), headers=CHANGE_HEADERS)
    assert answer.status_code == 408


async def test_a_name_sent_with_a_change_cannot_forge_lines_of_the_changes(
    client: httpx.AsyncClient, fake: FakeBroker
) -> None:
    headers = {**CHANGE_HEADERS, "x-requested-with": "a\tb" + "c" * 200}
    await patch(client, '{"num.io.threads": 12}', headers)
    assert fake.journal[0].changed_by == "http (ab" + "c" * 37 + ") from 127.0.0.1"


async def test_threads_show_each_worker_and_what_lies_between(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    fake.tick()
    threads = (await client.get("/api/v1/brokers/1/threads")).json()
    assert [worker["name"] for worker in threads["network"]["workers"]] == [
        "network-thread-0",
        "network-thread-1",
        "network-thread-2",
    ]
    assert threads["io"]["size"] == 8
    assert threads["queue"]["capacity"] == 500
    assert 0 <= threads["event_loop_busy_ratio"] <= 1


async def test_history_is_oldest_first(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    fake.tick(3)
    samples = (await client.get("/api/v1/brokers/1/history")).json()["samples"]
    times = [sample["sampled_at_ms"] for sample in samples]
    assert times == sorted(times)
    assert len(times) == 3


async def test_health_is_up_and_readiness_follows_the_broker(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    assert (await client.get("/healthz")).text == "ok\n"
    assert (await client.get("/readyz")).status_code == 200
    fake.ready = False
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "not ready: loading logs\n")


async def test_metrics_come_as_prometheus_wants_them(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.text == "trio_broker_requests_total 1.0\ntrio_broker_failed_admin_logins_total 0.0\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_unknown_addresses_and_methods_are_shown_in_json_under_api(client: httpx.AsyncClient) -> None:
    missing = await client.get("/api/v1/nothing")
    assert (missing.status_code, "nothing at this address" in missing.json()["detail"]) == (404, True)
    wrong = await client.delete("/api/v1/config")
    assert (wrong.status_code, "method" in wrong.json()["detail"]) == (405, True)
    assert {name.strip() for name in wrong.headers["allow"].split(",")} == {"GET", "HEAD", "PATCH"}
    assert (await client.get("/nothing")).headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/nowhere", 404, "Page not found"),
        ("/groups?limit=many", 400, "limit is a whole number"),
        ("/static/nothing.js", 404, "Page not found"),
    ],
)
async def test_a_browser_is_shown_a_wrong_address_or_query_as_a_page_with_a_way_back(
    client: httpx.AsyncClient, address: str, status: int, words: str
) -> None:
    answer = await client.get(address, headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert words in answer.text
    assert '<a href="/groups">' in answer.text
    assert (await client.get(address)).headers["content-type"].startswith("text/plain")


async def test_a_bug_of_ours_is_shown_without_details(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads(_readings: FakeReadings) -> ThreadStatistics:
        raise RuntimeError("the inner workings")

    monkeypatch.setattr(FakeReadings, "threads", threads)
    answer = await client.get("/api/v1/brokers/1/threads")
    assert answer.status_code == 500
    assert "inner workings" not in answer.text
    assert "log says why" in answer.json()["detail"]


async def test_the_description_names_every_address_and_class(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    document = (await client.get("/api/v1/openapi.json")).json()
    served = {re.sub(r":int}", "}", route.path) for route in create_app(fake.view).routes if isinstance(route, Route)}
    outside_api = {"/healthz", "/livez", "/readyz", "/metrics"}
    assert set(document["paths"]) == outside_api | {
        path for path in served if path.startswith("/api/v1/") and path != "/api/v1/openapi.json"
    }
    assert set(document["paths"]["/api/v1/config"]) == {"get", "patch"}
    schemas = document["components"]["schemas"]
    assert schemas["ConfigEntry"]["properties"]["value"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schemas["TopicDetail"]["properties"]["summary"] == {"$ref": "#/components/schemas/TopicSummary"}
    assert schemas["GroupList"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/GroupLag"}
    offsets = document["paths"]["/api/v1/groups/{group_id}/offsets"]["get"]
    assert [(each["name"], each["in"]) for each in offsets["parameters"]] == [
        ("group_id", "path"),
        ("id", "query"),
        ("offset", "query"),
        ("limit", "query"),
    ]
    assert all(path_operation["summary"] for path in document["paths"].values() for path_operation in path.values())


async def test_the_app_over_a_real_broker_answers_what_the_broker_knows(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    [topic] = (await live.get("/api/v1/topics"))["items"]
    assert (topic["name"], topic["partition_count"]) == ("orders", 2)
    changed = await live.http.patch("/api/v1/config", json={"num.io.threads": 12})
    assert changed.json()["configs"]["num.io.threads"]["value"] == "12"
    refused = await live.http.patch("/api/v1/config", json={"num.io.threads": "many", "log.dirs": "/x"})
    assert {error["pointer"] for error in refused.json()["errors"]} == {"/num.io.threads", "/log.dirs"}


async def test_errors_are_problems_under_api(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/groups?limit=0&order=size")
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert {name: problem[name] for name in ("type", "title", "status")} == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
    }
    assert {error["pointer"] for error in problem["errors"]} == {"?limit", "?order"}
    assert (await client.get("/api/v1/nothing")).json()["errors"] == []


@pytest.mark.parametrize(
    ("address", "methods"),
    [
        ("/api/v1/topics/orders", {"GET", "HEAD", "DELETE"}),
        ("/api/v1/topics/orders:purge", {"POST"}),
        ("/api/v1/topics/orders/records", {"GET", "HEAD", "POST"}),
    ],
)
async def test_allow_names_the_methods_of_the_address_and_of_no_other(
    client: httpx.AsyncClient, address: str, methods: set[str]
) -> None:
    answer = await client.put(address, headers=CHANGE_HEADERS)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == methods


async def test_brokers_are_a_list_of_one_and_found_by_their_node_id(live: LiveAdmin) -> None:
    listed = await live.get("/api/v1/brokers")
    assert (listed["total"], listed["items"][0]["node_id"]) == (1, live.broker.services.node.node_id)
    one = await live.get(f"/api/v1/brokers/{live.broker.services.node.node_id}")
    assert one["cluster_id"] == (await live.get("/api/v1/cluster"))["cluster_id"]


NODE_PATHS = sorted(each.path for each in create_app(FakeBroker().view).routes if isinstance(each, NodeRoute))

OF_ANY = ("/config", "/changes")
"""What has an address of the cluster, too, where it is that of the broker that is asked."""


def filled(path: str, asked: str = "") -> str:
    """A path with something in the place of each parameter."""
    values = {"broker_id": asked, "topic": "clickstream", "partition": "0", "number": "1", "key": "num.io.threads"}
    return re.sub(r"{(\w+)(:\w+)?}", lambda match: values[match[1]], path)


@pytest.mark.parametrize("asked", ["99", "01", "-1", "one", "%D9%A1"])
@pytest.mark.parametrize("path", NODE_PATHS)
async def test_another_broker_is_asked_for_nowhere(client: httpx.AsyncClient, path: str, asked: str) -> None:
    answer = await client.get(filled(path, asked))
    assert answer.status_code == 404
    assert "the brokers of this cluster are: 1" in answer.text


async def test_what_only_one_broker_knows_is_at_no_address_of_the_cluster(client: httpx.AsyncClient) -> None:
    for path in NODE_PATHS:
        prefix, _, rest = path.partition("/brokers/{broker_id}")
        address = filled(f"{prefix}{rest}")
        if rest and not rest.startswith(OF_ANY):
            assert (await client.get(address)).status_code == 404, address
