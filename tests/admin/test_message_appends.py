"""Records appended over HTTP: one, or lines; what is refused, and that nothing is appended then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.admin.live_admin import LiveAdmin, open_live_admin, pointers

RECORDS = "/api/v1/topics/orders/records"
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def live(live: LiveAdmin) -> LiveAdmin:
    """With the topic ``orders``."""
    await live.kafka.create_topic("orders")
    return live


async def stored(live: LiveAdmin) -> list[tuple[bytes | None, bytes | None, tuple[Any, ...]]]:
    """Key, value and headers of all records of partition 0."""
    [fetched] = await live.view.cluster.messages.fetch_batches("orders", {0: 0}, max_bytes=1 << 20)
    return [
        (record.key, record.value, tuple(record.headers)) for batch in fetched.batches() for record in batch.records()
    ]


async def test_a_record_is_appended_as_it_is_described(live: LiveAdmin) -> None:
    headers = [{"key": "trace", "value": "7"}, {"key": "raw", "value_base64": "/w=="}, {"key": "null"}]
    answer = await live.http.post(RECORDS, json={"key": "k", "value": "v", "headers": headers, "partition": 0})
    assert answer.json() == {"records": [{"partition": 0, "offset": 0, "error": None}]}
    assert await stored(live) == [(b"k", b"v", (("trace", b"7"), ("raw", b"\xff"), ("null", None)))]


@pytest.mark.parametrize(
    ("body", "key", "value"),
    [
        ({"value": None}, None, b"null"),
        ({"key": "k", "value": "", "tombstone": True}, b"k", b"null"),
        ({"key": "k", "tombstone": True}, b"k", b"null"),
        ({"value": ""}, None, b""),
        ({"value": '{"a": 1}', "value_format": "json"}, None, b'{"a": 1}'),
        ({"key": "/w==", "key_format": "base64", "value_base64": "AAE="}, b"\xff", b"\0\1"),
    ],
)
async def test_forms_of_keys_and_values(
    live: LiveAdmin, body: dict[str, Any], key: bytes | None, value: bytes | None
) -> None:
    answer = await live.http.post(RECORDS, json=body)
    assert answer.status_code == 200, answer.text
    assert await stored(live) == [(key, None if value == b"null" else value, ())]


async def test_exported_lines_are_appended_as_they_were(live: LiveAdmin) -> None:
    headers = b'[{"key":"h","value":"1"},{"key_base64":"/v8=","value":null}]'
    lines = b'{"key_base64":"/w==","value":"v","headers":%s,"timestamp":5}\n\n{"value":null}\n' % headers
    answer = await live.http.post(RECORDS, content=lines, headers=LINES)
    assert [each["offset"] for each in answer.json()["records"]] == [0, 1]
    exported = await live.http.get(RECORDS, params={"format": "ndjson", "from": "oldest"})
    again = await live.http.post(RECORDS, content=exported.content, headers=LINES)
    assert [each["offset"] for each in again.json()["records"]] == [2, 3]
    records = await stored(live)
    assert records[:2] == records[2:] == [(b"\xff", b"v", (("h", b"1"), ("\udcfe\udcff", None))), (None, None, ())]


REFUSALS = {
    "{}": "/value",
    '{"value": 5}': "/value",
    '{"value": "v", "colour": "red"}': "/colour",
    '{"value": "v", "value_base64": "AA=="}': "/value",
    '{"value_base64": "%"}': "/value_base64",
    '{"value": "{", "value_format": "json"}': "/value",
    '{"value": "v", "partition": -1}': "/partition",
    '{"value": "\\ud800"}': "/value",
    '{"value": "v", "tombstone": true}': "/value",
    '{"value": "v", "headers": [{"value": "1"}]}': "/headers/0/key",
    '{"value": "v", "headers": [{"key": "\\ud800"}]}': "/headers/0/key",
    '{"value": "v", "headers": [{"key": "h", "key_base64": "AA=="}]}': "/headers/0/key",
    '{"value": "v", "headers": [{"key": "h", "value_base64": "%"}]}': "/headers/0/value_base64",
    '{"value": "v", "timestamp": -1}': "/timestamp",
}


@pytest.mark.parametrize("body", REFUSALS)
async def test_a_wrong_record_is_refused_with_a_pointer(live: LiveAdmin, body: str) -> None:
    answer = await live.http.post(RECORDS, content=body, headers={"content-type": "application/json"})
    assert pointers(answer, 422) == [REFUSALS[body]]
    answer = await live.http.post(RECORDS, content=f'{{"value": "fine"}}\n{body}\n', headers=LINES)
    assert pointers(answer, 422) == [f"/1{REFUSALS[body]}"]
    assert await stored(live) == []


async def test_what_the_log_refuses_is_named(live: LiveAdmin) -> None:
    answer = await live.http.post(RECORDS, content='{"value": "a"}\n{"value": "b", "partition": 7}\n', headers=LINES)
    assert pointers(answer, 422) == ["/1"]
    assert answer.json()["detail"].startswith("1 of 2 records were appended; partition 7: UNKNOWN_TOPIC_OR_PARTITION")


async def test_the_partitions_of_lines_are_ignored_on_request(live: LiveAdmin) -> None:
    line = '{"key":"c1","value":"paid","partition":7}'
    assert (await live.http.post(RECORDS, content=line, headers=LINES)).status_code == 422
    assert (await live.http.post(f"{RECORDS}?repartition=true", content=line, headers=LINES)).status_code == 200
    assert [(key, value) for key, value, _ in await stored(live)] == [(b"c1", b"paid")]


async def test_a_dry_run_appends_nothing(live: LiveAdmin) -> None:
    answer = await live.http.post(f"{RECORDS}?dry_run=true", json={"value": "v"})
    assert answer.json() == {"records": [{"partition": 0, "offset": None, "error": None}]}
    assert await stored(live) == []


async def test_appends_that_are_not_taken(live: LiveAdmin) -> None:
    # Refused before their bodies are read, so without one.
    as_json = {"content-type": "application/json"}
    assert (await live.http.post("/api/v1/topics/missing/records", headers=as_json)).status_code == 404
    assert (await live.http.post(RECORDS, headers={"content-type": "text/plain"})).status_code == 415
    assert (await live.http.post(RECORDS, headers=as_json | {"x-requested-with": ""})).status_code == 403
    assert (await live.http.post(RECORDS, content=b"{}\n" * 1001, headers=LINES)).status_code == 413
    assert await stored(live) == []


async def test_no_records_where_contents_are_off(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path, admin_messages_enabled="false") as live:
        await live.kafka.create_topic("orders")
        assert (await live.http.post(RECORDS, headers={"content-type": "application/json"})).status_code == 403
