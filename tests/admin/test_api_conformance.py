"""Every address of the API answers only what it describes, and wrong input is refused and changes nothing.

Requests are made from ``openapi.json``: right ones, and ones with one wrong parameter, header or body. They go to a
real broker with a topic, a group and some records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.routing import Route

from broker_admin.app import create_app
from broker_admin.openapi import openapi_document
from broker_admin.problems import PROBLEM_MEDIA_TYPE
from broker_admin.views.cluster.messages import NewMessage
from tests.admin.api_requests import ApiDescription
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import LiveAdmin, commit

REQUESTS, MANY_REQUESTS = 12, 48
"""Of each operation, half of them wrong, in the default run and every night; they begin alike."""

DOCUMENT = openapi_document(create_app(FakeBroker().view).routes)

OPERATIONS = [
    (method, path)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    # A stream of events does not end; its own tests read it.
    if "text/event-stream" not in operation["responses"].get("200", {}).get("content", {})
]

NAMES: Mapping[str, str] = {
    "topic": "orders",
    "group_id": "billing",
    "transactional_id": "billing",
    "key": "num.io.threads",
    "partition": "0",
    "broker_id": "1",
}
"""What is there, by the name of the parameter that takes it."""


async def make_group(live: LiveAdmin) -> None:
    """Make the group of ``NAMES``, without members; its topic is there."""
    await commit(live, NAMES["group_id"], NAMES["topic"], 1)


async def state_of(live: LiveAdmin) -> Any:
    """What a refused request must leave as it was."""
    report = await live.view.cluster.groups.report()
    services = live.broker.services
    return (
        [(topic.name, topic.configs, topic.partitions) for topic in services.metadata_cache.image.topics.values()],
        [(each.topic_partition, each.log_start_offset, each.log_end_offset) for each in services.replicas.partitions()],
        [(entry.name, entry.value, entry.source) for entry in services.config.entries()],
        sorted(lag.group.group_id for lag in report.groups),
    )


@pytest.mark.parametrize("count", [REQUESTS, pytest.param(MANY_REQUESTS, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
async def test_every_address_answers_only_what_it_describes_and_refuses_what_is_wrong(
    live: LiveAdmin, method: str, path: str, count: int
) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one", b"two")
    await make_group(live)
    api = ApiDescription(DOCUMENT)
    responses = DOCUMENT["paths"][path][method]["responses"]
    state = await state_of(live)
    for request in api.requests(path, method, NAMES, count):
        answer = await live.http.request(request.method, request.address, headers=request.headers, json=request.json)
        exchange = f"{request} → {answer.status_code} {answer.text[:300]}"
        assert str(answer.status_code) in responses, exchange
        assert answer.status_code != 500, exchange
        if request.wrong:
            assert 400 <= answer.status_code < 500, exchange
        if answer.status_code >= 400 or "dry_run=true" in request.address:
            assert await state_of(live) == state, exchange
        elif method != "get":
            state = await state_of(live)
        content = responses[str(answer.status_code)].get("content", {})
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if content:
            assert media_type in content, exchange
            if media_type in ("application/json", PROBLEM_MEDIA_TYPE):
                assert api.complaint(answer.json(), content[media_type]["schema"]) is None, exchange
        if 400 <= answer.status_code < 500:
            assert media_type == PROBLEM_MEDIA_TYPE, exchange


async def test_lines_of_json_are_as_described(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append(
        "orders", [NewMessage(b"\xff", b"text", (("h", b"\xff"),)), NewMessage(None, None)]
    )
    api = ApiDescription(DOCUMENT)
    for path in ("/api/v1/topics/{topic}/records", "/api/v1/changes"):
        answer = await live.http.get(path.format_map(NAMES), headers={"accept": "application/x-ndjson"})
        described = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/x-ndjson"]
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert lines
        assert [api.complaint(lines, described["schema"]["contentSchema"])] == [None]


async def test_text_for_spreadsheets_has_the_columns_that_are_described(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"one", b"two")
    answer = await live.http.get("/api/v1/topics/orders/records?limit=1", headers={"accept": "text/csv"})
    responses = DOCUMENT["paths"]["/api/v1/topics/{topic}/records"]["get"]["responses"]
    described = responses["200"]["content"]["text/csv"]
    assert described["example"].splitlines()[0] == answer.text.splitlines()[0]
    assert set(responses["200"]["headers"]) <= set(answer.headers)


def test_every_reference_of_the_description_leads_to_a_schema() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*(references(each) for each in value.values()))
        if isinstance(value, list):
            return set().union(*(references(each) for each in value))
        return set()

    found = references(DOCUMENT)
    assert found
    assert {f"#/components/schemas/{name}" for name in schemas} >= found
    assert all(schema.get("description") for schema in schemas.values())


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does() -> None:
    operations = [each for methods in DOCUMENT["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(each["summary"].endswith(".") for each in operations)


def test_every_address_under_api_is_described() -> None:
    routes = create_app(FakeBroker().view).routes
    served = {re.sub(r":\w+}", "}", route.path) for route in routes if isinstance(route, Route)}
    assert {path for path in served if path.startswith("/api/v1/")} - DOCUMENT["paths"].keys() == {
        "/api/v1/openapi.json"
    }
