"""``/api/v1/config`` over a real broker: what each key shows, and changing some."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import broker_admin
from tests.admin.live_admin import LiveAdmin, pointers
from trio_broker import broker_view, changes, cluster, config


async def test_a_key_shows_everything_about_itself(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/config", json={"num.io.threads": 12})
    configs = (await live.get("/api/v1/config"))["configs"]
    documentation = configs["num.io.threads"].pop("documentation")
    assert documentation.startswith("How many requests are handled at a time")
    assert configs["num.io.threads"] == {
        "name": "num.io.threads",
        "group": "Listeners and connections",
        "value": "12",
        "effective_value": "12",
        "source": "DYNAMIC_BROKER_CONFIG",
        "read_only": False,
        "update_mode": "cluster-wide",
        "default": "8",
        "type": "int",
        "unit": None,
        "valid_values": "between 1 and 256",
        "bounds": {"minimum": 1, "maximum": 256, "special": None, "choices": []},
        "synonyms": [
            {"name": "num.io.threads", "value": "12", "source": "DYNAMIC_BROKER_CONFIG"},
            {"name": "num.io.threads", "value": "8", "source": "DEFAULT_CONFIG"},
        ],
        "levels": [
            {"level": "broker", "name": "num.io.threads", "value": "12", "origin": "", "wins": True},
            {"level": "built-in", "name": "num.io.threads", "value": "8", "origin": "", "wins": False},
        ],
        "sensitive": False,
        "allowed_range": {"minimum": 1, "maximum": 256},
    }


async def test_a_key_whose_fallback_is_in_effect_shows_that_value_and_its_name(live: LiveAdmin) -> None:
    retention = (await live.get("/api/v1/config"))["configs"]["log.retention.ms"]
    assert (retention["value"], retention["effective_value"], retention["unit"]) == (None, "604800000", "ms")
    [level] = retention["levels"]
    assert (level["level"], level["name"], level["value"], level["wins"]) == (
        "built-in",
        "log.retention.hours",
        "168",
        True,
    )


async def test_one_key_has_an_address_of_its_own(live: LiveAdmin) -> None:
    entry = await live.get("/api/v1/config/num.io.threads")
    assert entry == (await live.get("/api/v1/config"))["configs"]["num.io.threads"]
    answer = await live.http.patch("/api/v1/config/num.io.threads", json={"value": 12})
    assert answer.json()["configs"]["num.io.threads"]["value"] == "12"
    answer = await live.http.patch("/api/v1/config/num.io.threads", json={"value": None})
    assert answer.json()["configs"]["num.io.threads"]["value"] == "8"


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_key_that_is_not_there_is_not_found(live: LiveAdmin, method: str) -> None:
    answer = await live.http.request(method, "/api/v1/config/no.such", json={"value": 1})
    assert answer.status_code == 404
    assert answer.json()["detail"] == 'this broker has no key "no.such"'


async def test_a_default_of_the_cluster_is_in_effect_unless_this_broker_has_its_own(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/config", json={"num.io.threads": 12})
    answer = await live.http.patch(
        "/api/v1/config", params={"level": "cluster"}, json={"num.io.threads": 5, "num.network.threads": 4}
    )
    assert answer.json()["differences"] == [
        {
            "key": "num.io.threads",
            "old": None,
            "new": "5",
            "effective_old": "12",
            "effective_new": "12",
            "shadowed_by": "broker",
        },
        {
            "key": "num.network.threads",
            "old": None,
            "new": "4",
            "effective_old": "3",
            "effective_new": "4",
            "shadowed_by": None,
        },
    ]
    levels = (await live.get("/api/v1/config/num.io.threads"))["levels"]
    assert [(each["level"], each["value"], each["wins"]) for each in levels] == [
        ("broker", "12", True),
        ("cluster", "5", False),
        ("built-in", "8", False),
    ]
    answer = await live.http.patch("/api/v1/config/num.io.threads", json={"value": None})
    assert answer.json()["differences"][0]["effective_new"] == "5"


async def test_a_dry_run_says_what_would_change_and_changes_nothing(live: LiveAdmin) -> None:
    answer = await live.http.patch(
        "/api/v1/config", params={"dry_run": "true"}, json={"num.io.threads": 12, "log.retention.ms": "7 d"}
    )
    assert answer.status_code == 200
    body = answer.json()
    assert [(each["key"], each["effective_old"], each["effective_new"]) for each in body["differences"]] == [
        ("num.io.threads", "8", "12"),
        ("log.retention.ms", "604800000", "604800000"),
    ]
    assert (body["configs"]["num.io.threads"]["value"], body["changes"]) == ("8", [])
    assert live.broker.services.config.socket_server.num_io_threads == 8


async def test_sizes_and_durations_may_have_a_suffix(live: LiveAdmin) -> None:
    changes = {
        "log.segment.bytes": "64 MiB",
        "log.retention.ms": "2 d",
        "log.cleaner.io.max.bytes.per.second": "1 MB/s",
    }
    answer = await live.http.patch("/api/v1/config", json=changes)
    assert {key: entry["value"] for key, entry in answer.json()["configs"].items()} == {
        "log.segment.bytes": "67108864",
        "log.retention.ms": "172800000",
        "log.cleaner.io.max.bytes.per.second": "1000000.0",
    }


@pytest.mark.parametrize("dry_run", ["true", "false"])
async def test_every_key_that_is_refused_is_pointed_at(live: LiveAdmin, dry_run: str) -> None:
    changes = {
        "num.io.threads": 12,
        "num.network.threads": 0,
        "node.id": 7,
        "log.segment.bytes": "64 d",
        "no/such": "x",
        "ssl.keystore.type": "PEM",
    }
    answer = await live.http.patch("/api/v1/config", params={"dry_run": dry_run, "level": "cluster"}, json=changes)
    assert answer.status_code == 422
    errors = {each["pointer"]: each["detail"] for each in answer.json()["errors"]}
    assert errors.keys() == {
        "/num.network.threads",
        "/node.id",
        "/log.segment.bytes",
        "/no~1such",
        "/ssl.keystore.type",
    }
    assert errors["/log.segment.bytes"].startswith("log.segment.bytes: d is no unit of this key")
    assert errors["/node.id"] == "node.id cannot be updated dynamically: it is read at start only"
    assert live.broker.services.config.socket_server.num_io_threads == 8


async def test_what_is_wrong_with_keys_together_is_pointed_at_as_the_whole_body(live: LiveAdmin) -> None:
    changes = {"log.cleaner.min.compaction.lag.ms": 5000, "log.cleaner.max.compaction.lag.ms": 1000}
    answer = await live.http.patch("/api/v1/config", params={"dry_run": "true"}, json=changes)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == ""
    assert "must not be above" in error["detail"]


async def test_a_level_that_cannot_be_changed_is_refused(live: LiveAdmin) -> None:
    answer = await live.http.patch("/api/v1/config", params={"level": "file"}, json={"num.io.threads": 12})
    assert pointers(answer, 400) == ["?level"]


async def test_a_refused_value_of_one_key_is_pointed_at_as_the_value(live: LiveAdmin) -> None:
    assert pointers(await live.http.patch("/api/v1/config/num.io.threads", json={"value": 0}), 422) == ["/value"]


SERVING = tuple(str(Path(str(each.__file__)).parent) for each in (broker_admin, broker_view, changes, cluster, config))
"""The packages whose functions serve a change; the others have tasks of their own meanwhile."""

MOST_CALLS = 350
"""Of their functions, by one change of one key: some 300. To describe all keys takes 4,000."""


async def test_a_change_of_one_key_costs_what_one_key_does(live: LiveAdmin) -> None:
    for value in (5, 6):
        await live.http.patch("/api/v1/config/num.io.threads", params={"dry_run": "true"}, json={"value": value})
    entered: dict[int, FrameType] = {}  # the frames, so that one that goes on is not counted again

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SERVING) and frame.f_code.co_name[0] != "<":
            entered[id(frame)] = frame

    sys.setprofile(count)
    try:
        answer = await live.http.patch("/api/v1/config/num.io.threads", json={"value": 7})
    finally:
        sys.setprofile(None)
    assert answer.json()["configs"]["num.io.threads"]["value"] == "7"
    assert 100 < len(entered) < MOST_CALLS
