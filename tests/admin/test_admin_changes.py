"""``/api/v1/changes`` over a real broker, and changes that are tried."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_admin.app import create_app
from broker_admin.logins import Logins
from broker_admin.tokens import AdminTokens, Role
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.admin.live_admin import LiveAdmin, open_live_admin, pointers
from trio_broker.changes.change import ChangeChannel


async def patch(live: LiveAdmin, key: str, value: Any, **query: Any) -> Any:
    answer = await live.http.patch("/api/v1/config", json={key: value}, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_changes_of_all_kinds_and_channels_are_listed_newest_first(live: LiveAdmin) -> None:
    await patch(live, "num.io.threads", 12)
    await live.kafka.create_topic("orders", partitions=2)
    for value in (b"one", b"two"):
        await live.kafka.produce("orders", value)
    deletion = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name="orders", partitions=[deletion])
    await live.kafka.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    page = await live.get("/api/v1/changes")
    assert [(each["number"], each["action"], each["resource"]) for each in page["items"]] == [
        (3, "records-deleted", "orders"),
        (2, "created", "orders"),
        (1, "config", "1"),
    ]
    deleted, created, config = page["items"]
    assert deleted["values"] == [{"name": "orders-0", "old": "0", "new": "1"}]
    assert created["origin"]["channel"] == "kafka"
    assert created["origin"]["request"] == "CREATE_TOPICS"
    assert config["origin"] == {
        "channel": "http",
        "client": "pytest",
        "address": "127.0.0.1",
        "request": "PATCH /api/v1/config",
        "role": "",
        "principal": "",
    }
    assert await live.get("/api/v1/changes/1") == config


async def test_the_list_is_filtered_searched_and_continued(live: LiveAdmin) -> None:
    for name in ("orders", "clicks", "audit"):
        await live.kafka.create_topic(name)
    await patch(live, "num.io.threads", 12)

    async def numbers(**query: Any) -> list[int]:
        return [each["number"] for each in (await live.get("/api/v1/changes", **query))["items"]]

    assert await numbers(channel="kafka") == [3, 2, 1]
    assert await numbers(action="config") == [4]
    assert await numbers(resource_type="topic", resource="clicks") == [2]
    assert await numbers(search="THREADS") == [4]
    assert await numbers(order="number") == [1, 2, 3, 4]
    first = await live.get("/api/v1/changes", limit=3)
    assert await numbers(limit=3, cursor=first["next_cursor"]) == [1]


@pytest.mark.parametrize("query", ["action=none", "channel=x", "order=who", "limit=0", "cursor=zz"])
async def test_a_bad_query_is_pointed_at(live: LiveAdmin, query: str) -> None:
    assert pointers(await live.http.get(f"/api/v1/changes?{query}"), 400) == ["?" + query.partition("=")[0]]


async def test_what_the_filters_let_through_is_exported_as_json_lines(live: LiveAdmin) -> None:
    for name in ("orders", "clicks"):
        await live.kafka.create_topic(name)
    await patch(live, "num.io.threads", 12)
    headers = {"accept": "application/x-ndjson"}
    answer = await live.http.get("/api/v1/changes?resource_type=topic", headers=headers)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["resource"] for line in answer.text.splitlines()] == ["orders", "clicks"]


async def test_what_the_filters_let_through_is_exported_for_spreadsheets(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", partitions=2)
    both = {"num.io.threads": 12, "queued.max.requests": 600}
    await live.http.patch("/api/v1/config", json=both, headers={"x-requested-with": "=cmd()"})
    answer = await live.http.get("/api/v1/changes", params={"format": "csv", "action": "config"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    disposition = answer.headers["content-disposition"]
    assert re.fullmatch(r'attachment; filename="changes-\d{4}-\d\d-\d\dT\d{6}Z\.csv"', disposition)
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["number"], row["name"], row["old"], row["new"]) for row in rows] == [
        ("2", "num.io.threads", "8", "12"),
        ("2", "queued.max.requests", "500", "600"),
    ]
    assert (rows[0]["client"], rows[0]["channel"]) == ("'=cmd()", "http")
    lines = (await live.http.get("/api/v1/changes", params={"format": "ndjson"})).text.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2]
    page = await live.http.get("/changes", params={"search": "a&b", "channel": "kafka"})
    assert 'href="/api/v1/changes?search=a%26b&amp;channel=kafka&amp;format=csv" download' in page.text


async def test_an_unknown_change_is_a_problem(live: LiveAdmin) -> None:
    assert (await live.http.get("/api/v1/changes/7")).status_code == 404
    assert (await live.http.post("/api/v1/changes/7:keep")).status_code == 404


async def test_changes_survive_a_restart(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path, num_io_threads="4") as live:
        await patch(live, "queued.max.requests", 12)
    async with open_live_admin(tmp_path, num_io_threads="6") as live:
        started, patched = (await live.get("/api/v1/changes"))["items"]
    assert patched["values"] == [{"name": "queued.max.requests", "old": "500", "new": "12"}]
    assert (started["action"], started["origin"]["channel"]) == ("started", "start")
    assert {"name": "num.io.threads", "old": "4", "new": "6"} in started["values"]


# --- trials ---


async def test_a_tried_change_is_in_effect_and_undone_on_request(live: LiveAdmin) -> None:
    answer = await patch(live, "num.io.threads", 64, try_seconds=60)
    assert answer["configs"]["num.io.threads"]["effective_value"] == "64"
    number = answer["changes"][0]["sequence"]
    assert (await live.get(f"/api/v1/changes/{number}"))["trial"]["outcome"] == "running"
    undone = (await live.http.post(f"/api/v1/changes/{number}:undo")).json()
    tried = (await live.get(f"/api/v1/changes/{number}"))["trial"]
    assert (tried["outcome"], tried["ended_by"]) == ("undone", undone["origin"])
    assert tried["ended_at_ms"] <= undone["changed_at_ms"]
    assert undone["values"] == [{"name": "num.io.threads", "old": "64", "new": "8"}]
    assert (undone["undoes"], undone["origin"]["request"]) == (number, f"POST /api/v1/changes/{number}:undo")
    assert (await live.get("/api/v1/config/num.io.threads"))["effective_value"] == "8"


@pytest.mark.parametrize("end", ["keep", "undo"])
async def test_a_dry_run_of_an_end_says_whether_it_could_be_and_leaves_the_trial_running(
    live: LiveAdmin, end: str
) -> None:
    number = (await patch(live, "num.io.threads", 64, try_seconds=60))["changes"][0]["sequence"]
    tried = await live.http.post(f"/api/v1/changes/{number}:{end}", params={"dry_run": "true"})
    assert (tried.status_code, tried.json()["trial"]["outcome"]) == (200, "running")
    assert (await live.get(f"/api/v1/changes/{number}"))["trial"]["outcome"] == "running"
    await live.http.post(f"/api/v1/changes/{number}:keep")
    again = await live.http.post(f"/api/v1/changes/{number}:{end}", params={"dry_run": "true"})
    assert (again.status_code, again.json()["detail"]) == (409, f"change {number} is not being tried")


async def test_a_kept_change_survives_a_restart_and_one_that_is_not_does_not(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path) as live:
        number = (await patch(live, "num.io.threads", 64, try_seconds=60))["changes"][0]["sequence"]
        kept = await live.http.post(f"/api/v1/changes/{number}:keep")
        assert kept.json()["trial"]["outcome"] == "kept"
        by = kept.json()["trial"]["ended_by"]
        assert (by["client"], by["request"]) == ("pytest", f"POST /api/v1/changes/{number}:keep")
        again = await live.http.post(f"/api/v1/changes/{number}:keep")
        assert (again.status_code, again.json()["detail"]) == (409, f"change {number} is not being tried")
        await patch(live, "queued.max.requests", 7, try_seconds=60)
    async with open_live_admin(tmp_path) as live:
        assert (await live.get("/api/v1/config/num.io.threads"))["effective_value"] == "64"
        assert (await live.get("/api/v1/config/queued.max.requests"))["effective_value"] == "500"
        undone, tried, _ = (await live.get("/api/v1/changes"))["items"]
    assert tried["trial"]["outcome"] == "undone"
    assert tried["trial"]["ended_by"]["channel"] == ChangeChannel.START.value
    assert (undone["undoes"], undone["origin"]["channel"]) == (tried["number"], ChangeChannel.START.value)


@pytest.mark.parametrize(
    ("key", "value", "query", "status"),
    [
        ("num.io.threads", 64, {"try_seconds": 9}, 400),
        ("num.io.threads", 64, {"try_seconds": 601}, 400),
        ("num.io.threads", 64, {"try_seconds": 60, "level": "cluster"}, 422),
        ("log.retention.ms", 1, {"try_seconds": 60}, 422),
        ("num.io.threads", 0, {"try_seconds": 60}, 422),
        ("num.io.threads", 100_000, {"try_seconds": 60}, 422),
    ],
)
async def test_a_trial_that_is_refused_changes_nothing(
    live: LiveAdmin, key: str, value: int, query: dict[str, Any], status: int
) -> None:
    answer = await live.http.patch("/api/v1/config", json={key: value}, params=query)
    assert answer.status_code == status
    assert answer.json()["errors"]
    tried = await live.http.patch("/api/v1/config", json={key: value}, params={**query, "dry_run": "true"})
    assert (tried.status_code, tried.json()) == (status, answer.json())
    assert (await live.get("/api/v1/changes"))["items"] == []


async def test_a_trial_of_the_clusters_defaults_is_pointed_at(live: LiveAdmin) -> None:
    query = {"try_seconds": "60", "level": "cluster"}
    answer = await live.http.patch("/api/v1/config", json={"num.io.threads": 9}, params=query)
    assert pointers(answer, 422) == ["?level"]


async def test_one_trial_at_a_time(live: LiveAdmin) -> None:
    await patch(live, "num.io.threads", 64, try_seconds=60)
    answer = await live.http.patch("/api/v1/config", json={"queued.max.requests": 7}, params={"try_seconds": 60})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error == {"pointer": "?try_seconds", "detail": "change 1 is being tried: keep it or undo it first"}


ADMIN_TOKEN = "admin-token-0123456789"


@pytest.mark.parametrize(("caller", "channel"), [("admin page", "page"), ("curl", "http")])
@pytest.mark.parametrize("has_login", [False, True])
async def test_a_change_of_anything_says_who_made_it_and_how(
    live: LiveAdmin, caller: str, channel: str, has_login: bool
) -> None:
    logins = Logins(AdminTokens({Role.ADMIN: ADMIN_TOKEN}), has_users=False) if has_login else None
    transport = httpx.ASGITransport(create_app(live.view, logins=logins), client=("127.0.0.1", 5555))
    headers = {"x-requested-with": caller, "authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        answers = [
            await http.patch("/api/v1/config", json={"num.io.threads": 12}),
            await http.patch("/api/v1/brokers/1/loggers", json={"trio_broker.broker": "WARN"}),
            await http.post("/api/v1/topics", json={"name": "orders"}),
            await http.patch("/api/v1/topics/orders/config", json={"retention.ms": "7"}),
            await http.post("/api/v1/topics/orders:add-partitions", json={"partitions": 2}),
        ]
        await live.kafka.produce("orders", b"one")
        answers.append(await http.post("/api/v1/topics/orders:purge", json={"to_end": True}))
        answers.append(await http.delete("/api/v1/topics/orders"))
        answers.append(await http.patch("/api/v1/brokers/1/loggers", json={"trio_broker.broker": None}))
    assert [answer.is_success for answer in answers] == [True] * len(answers), [answer.text for answer in answers]
    changes = (await live.get("/api/v1/changes", order="number"))["items"]
    assert [(each["action"], each["resource_type"]) for each in changes] == [
        ("config", "broker"),
        ("config", "broker-logger"),
        ("created", "topic"),
        ("config", "topic"),
        ("partitions-added", "topic"),
        ("records-deleted", "topic"),
        ("deleted", "topic"),
        ("config", "broker-logger"),
    ]
    for change, answer in zip(changes, answers, strict=True):
        assert change["origin"] == {
            "channel": channel,
            "client": caller,
            "address": "127.0.0.1",
            "request": f"{answer.request.method} {answer.request.url.path}",
            "role": "admin" if has_login else "",
            "principal": "",
        }


async def test_a_comparison_begins_with_the_old_value_and_is_ended_on_request(live: LiveAdmin) -> None:
    answer = await patch(live, "num.io.threads", 64, compare_seconds=30)
    assert answer["configs"]["num.io.threads"]["effective_value"] == "8"
    number = answer["changes"][0]["sequence"]
    trial = (await live.get(f"/api/v1/changes/{number}"))["trial"]
    assert (trial["outcome"], trial["pairs"], trial["seconds"]) == ("running", 3, 30)
    assert "Old and new in turn until" in (await live.http.get("/brokers/1/tuning")).text
    undone = (await live.http.post(f"/api/v1/changes/{number}:undo")).json()
    assert (undone["number"], undone["trial"]["outcome"]) == (number, "undone")
    effect = (await live.get(f"/api/v1/changes/{number}"))["effect"]
    assert effect["summary"] == "cannot tell: the comparison was ended after 0 of 3 pairs"


async def test_a_change_is_either_tried_or_compared(live: LiveAdmin) -> None:
    both = {"try_seconds": 60, "compare_seconds": 30}
    answer = await live.http.patch("/api/v1/config", json={"num.io.threads": 9}, params=both)
    assert pointers(answer, 422) == ["?compare_seconds"]


async def test_a_dry_run_of_a_comparison_begins_none(live: LiveAdmin) -> None:
    await patch(live, "num.io.threads", 64, compare_seconds=30, dry_run="true")
    assert (await live.get("/api/v1/changes"))["items"] == []
