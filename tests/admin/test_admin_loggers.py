"""``/loggers`` of a broker, over a real broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.admin.live_admin import LiveAdmin, pointers
from tests.running_broker import SET

PARENT, CHILD = "trio_broker.test_of_loggers", "trio_broker.test_of_loggers.child"


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """A logger and one below it, without levels of their own."""
    made = [logging.getLogger(name) for name in (PARENT, CHILD)]
    yield
    for logger in made:
        logger.setLevel(logging.NOTSET)


async def test_loggers_show_their_level_and_the_one_they_have_it_from(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/brokers/1/loggers", json={PARENT: "ERROR"})
    page = await live.get("/api/v1/brokers/1/loggers", search="test_of_loggers")
    assert page["items"] == [
        {"name": PARENT, "level": "ERROR", "own_level": "ERROR", "inherited_from": None},
        {"name": CHILD, "level": "ERROR", "own_level": None, "inherited_from": PARENT},
    ]
    assert page["total"] > page["matching"] == 2


async def test_a_change_answers_with_every_logger_that_it_concerns(live: LiveAdmin) -> None:
    answer = await live.http.patch("/api/v1/brokers/1/loggers", json={PARENT: "DEBUG"})
    assert answer.status_code == 200
    differences = answer.json()["differences"]
    assert [(each["after"]["name"], each["after"]["level"]) for each in differences] == [
        (PARENT, "DEBUG"),
        (CHILD, "DEBUG"),
    ]
    assert logging.getLogger(CHILD).isEnabledFor(logging.DEBUG)
    answer = await live.http.patch("/api/v1/brokers/1/loggers", json={PARENT: None})
    assert answer.json()["differences"][0]["before"]["level"] == "DEBUG"
    assert logging.getLogger(PARENT).level == logging.NOTSET


async def test_a_dry_run_sets_no_level(live: LiveAdmin) -> None:
    answer = await live.http.patch("/api/v1/brokers/1/loggers", params={"dry_run": "true"}, json={PARENT: "FATAL"})
    assert len(answer.json()["differences"]) == 2
    assert logging.getLogger(PARENT).level == logging.NOTSET


async def test_every_logger_and_level_that_is_refused_is_pointed_at(live: LiveAdmin) -> None:
    levels = {PARENT: "LOUD", "no/such": "INFO", "root": None, CHILD: "INFO"}
    answer = await live.http.patch("/api/v1/brokers/1/loggers", json=levels)
    assert pointers(answer, 422) == [f"/{PARENT}", "/no~1such", "/root"]
    assert logging.getLogger(CHILD).level == logging.NOTSET


@pytest.mark.parametrize(("body", "status"), [([], 400), ({}, 400), ({PARENT: 10}, 422)])
async def test_what_is_no_object_of_loggers_and_levels_is_refused(live: LiveAdmin, body: object, status: int) -> None:
    answer = await live.http.patch("/api/v1/brokers/1/loggers", json=body)
    assert answer.status_code == status


async def test_a_level_that_a_kafka_client_sets_is_shown(live: LiveAdmin) -> None:
    config = AlterableConfig(name=PARENT, config_operation=SET, value="WARN")
    resource = AlterConfigsResource(resource_type=8, resource_name="1", configs=[config])
    response = await live.kafka.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert response.responses[0].error_code == 0
    page = await live.get("/api/v1/brokers/1/loggers", search=CHILD)
    assert page["items"][0]["level"] == "WARN"
    [change] = (await live.get("/api/v1/changes"))["items"]
    assert change["values"] == [{"name": PARENT, "old": None, "new": "WARN"}]
    assert (change["resource_type"], change["resource"]) == ("broker-logger", "1")
    assert (change["origin"]["channel"], change["origin"]["request"]) == ("kafka", "INCREMENTAL_ALTER_CONFIGS")


async def test_a_level_that_is_set_again_or_only_tried_is_no_change(live: LiveAdmin) -> None:
    first = await live.http.patch("/api/v1/brokers/1/loggers", json={PARENT: "ERROR"})
    assert [(each["key"], each["old"], each["new"]) for each in first.json()["changes"]] == [(PARENT, None, "ERROR")]
    again = await live.http.patch("/api/v1/brokers/1/loggers", json={PARENT: "error"})
    tried = await live.http.patch("/api/v1/brokers/1/loggers", json={PARENT: "INFO"}, params={"dry_run": "true"})
    assert (again.json()["changes"], tried.json()["changes"]) == ([], [])
    assert len((await live.get("/api/v1/changes"))["items"]) == 1
