"""The API of records: searches in both directions, filters, cursors, formats, budgets, and bad queries."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from broker_admin.app import create_app
from broker_admin.messages import search
from broker_admin.views.cluster.messages import NewMessage
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import ConfigRecord
from tests.admin.live_admin import LiveAdmin, open_live_admin, pointers
from tests.fakes.metadata_logs import append
from tests.leader_append import append_to_leader

RECORDS = "/api/v1/topics/orders/records"


async def filled(live: LiveAdmin, count: int = 30, partitions: int = 3) -> None:
    """``orders`` with records whose number is their time, one after the other in all partitions."""
    await live.kafka.create_topic("orders", partitions=partitions)
    messages = [
        NewMessage(b"k%d" % number, b'{"n": %d}' % number, partition=number % partitions, timestamp_ms=1000 + number)
        for number in range(count)
    ]
    await live.view.cluster.messages.append("orders", messages)


def numbers(answer: Any) -> list[int]:
    return [record["value"]["data"]["n"] for record in answer["records"]]


async def test_the_newest_come_first_over_all_partitions(live: LiveAdmin) -> None:
    await filled(live)
    answer = await live.get(RECORDS, limit=5)
    assert numbers(answer) == [29, 28, 27, 26, 25]
    assert answer["ended_by"] == "limit"
    again = await live.get(RECORDS, limit=5, cursor=answer["next_cursor"])
    assert numbers(again) == [24, 23, 22, 21, 20]


def places(answer: Any) -> list[tuple[int, int]]:
    return [(record["partition"], record["offset"]) for record in answer["records"]]


async def test_records_of_one_time_are_in_one_order_and_its_reverse(live: LiveAdmin) -> None:
    """By time, then partition, then offset; also over several pages."""
    await live.kafka.create_topic("orders", partitions=2)
    messages = [NewMessage(b"", b"", partition=number % 2, timestamp_ms=1000) for number in range(4)]
    await live.view.cluster.messages.append("orders", messages)
    oldest = places(await live.get(RECORDS, **{"from": "oldest"}))
    assert oldest == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first = await live.get(RECORDS, limit=3)
    rest = await live.get(RECORDS, cursor=first["next_cursor"])
    assert places(first) + places(rest) == list(reversed(oldest))


async def test_several_partitions_are_shown_by_time_where_clocks_disagree(live: LiveAdmin) -> None:
    """One partition is shown in the order of its log."""
    await live.kafka.create_topic("orders", partitions=2)
    times = [(0, 5000), (0, 1000), (1, 3000)]
    messages = [NewMessage(b"", b"", partition=partition, timestamp_ms=time) for partition, time in times]
    await live.view.cluster.messages.append("orders", messages)
    assert places(await live.get(RECORDS)) == [(0, 0), (1, 0), (0, 1)]
    assert places(await live.get(RECORDS, partitions="0")) == [(0, 1), (0, 0)]


async def test_the_oldest_come_first_from_the_other_end(live: LiveAdmin) -> None:
    await filled(live)
    answer = await live.get(RECORDS, from_="ignored", limit=7, **{"from": "oldest"})
    assert numbers(answer) == [0, 1, 2, 3, 4, 5, 6]
    again = await live.get(RECORDS, limit=100, cursor=answer["next_cursor"])
    assert numbers(again) == list(range(7, 30))
    assert again["ended_by"] == "end"
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b'{"n": 30}')])
    assert numbers(await live.get(RECORDS, cursor=again["next_cursor"])) == [30]


async def test_all_of_a_log_backward_ends_without_a_cursor(live: LiveAdmin) -> None:
    await filled(live)
    answer = await live.get(RECORDS, limit=1000)
    assert numbers(answer) == list(reversed(range(30)))
    assert (answer["ended_by"], answer["next_cursor"], answer["searched_records"]) == ("end", None, 30)


async def test_from_an_offset_and_from_a_time(live: LiveAdmin) -> None:
    await filled(live)
    at_offset = await live.get(RECORDS, partitions="1", offset=8, **{"from": "offset"})
    assert numbers(at_offset) == [25, 28]
    assert numbers(await live.get(RECORDS, time="1027", **{"from": "time"})) == [27, 28, 29]
    assert numbers(await live.get(RECORDS, time="1970-01-01T00:00:01.028Z", **{"from": "time"})) == [28, 29]
    assert numbers(await live.get(RECORDS, time="2100-01-01", **{"from": "time"})) == []


async def test_a_filter_and_what_it_could_not_evaluate(live: LiveAdmin) -> None:
    await filled(live)
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b"no json", timestamp_ms=2000)])
    answer = await live.get(RECORDS, where="value.n % 10 == 3 && key.startsWith('k')")
    assert numbers(answer) == [23, 13, 3]
    assert (answer["searched_records"], answer["failed_records"]) == (31, 1)
    assert answer["first_failure"] == "string has no field n (character 7)"


async def test_a_record_is_shown_with_its_headers_and_its_batch(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    headers = (("trace", b"7"), ("null", None), ("raw", b"\xff"))
    await live.view.cluster.messages.append("orders", [NewMessage(None, None, headers, timestamp_ms=5)])
    [record] = (await live.get(RECORDS))["records"]
    assert (record["key"], record["value"], record["timestamp_ms"], record["offset"]) == (None, None, 5, 0)
    assert [(each["name"], each["value"] and each["value"]["data"]) for each in record["headers"]] == [
        ("trace", "7"),
        ("null", None),
        ("raw", "ff"),
    ]
    assert record["batch"]["codec"] == "none"
    assert record["batch"]["producer_id"] is None


async def test_a_chosen_decoder_says_where_it_does_not_do(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append("orders", [NewMessage(b"\0\0\0\1", b"text")])
    [record] = (await live.get(RECORDS, decode="int64", decode_key="int32"))["records"]
    assert (record["key"]["decoder"], record["key"]["data"], record["key"]["problem"]) == ("int32", 1, "")
    assert (record["value"]["decoder"], record["value"]["problem"]) == ("text", "4 bytes, not 8")


async def test_avro_takes_the_schema(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append("orders", [NewMessage(None, b"\0\0\0\0\7\x06abc")])
    [record] = (await live.get(RECORDS, decode="avro", schema='"string"'))["records"]
    assert record["value"]["data"] == "abc"


async def test_large_values_are_cut(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append("orders", [NewMessage(None, b'["' + b"x" * 50_000 + b'"]')])
    [record] = (await live.get(RECORDS))["records"]
    assert (record["value"]["cut"], len(record["value"]["data"]), record["value"]["size_bytes"]) == (
        True,
        16384,
        50_004,
    )
    [record] = (await live.get(RECORDS, max_value_bytes=1_000_000))["records"]
    assert (record["value"]["cut"], record["value"]["data"]) == (False, ["x" * 50_000])


@pytest.mark.parametrize("codec", list(Codec))
async def test_compressed_batches_are_read_in_both_directions(live: LiveAdmin, codec: Codec) -> None:
    await live.kafka.create_topic("orders")
    partition = live.broker.services.replicas.topic("orders").partition(0)
    for start in (0, 50):
        records = [NewRecord(number, b"k", b'{"n": %d}' % number) for number in range(start, start + 50)]
        batch = build_batch(records, codec=codec)
        await append_to_leader(live.broker.services.replicas, partition, memoryview(batch), produce_version=13)
    assert numbers(await live.get(RECORDS, limit=60)) == list(reversed(range(40, 100)))
    answer = await live.get(RECORDS, offset=30, limit=40, **{"from": "offset"})
    assert numbers(answer) == list(range(30, 70))
    assert answer["records"][0]["batch"]["codec"] == codec.name.lower()


async def test_many_small_windows_backward(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_PIECE_BYTES", 500)
    monkeypatch.setattr(search, "MIN_PIECE_BYTES", 500)
    await live.kafka.create_topic("orders")
    for number in range(60):
        await live.view.cluster.messages.append(
            "orders", [NewMessage(b"k", b'{"n": %d}' % number, timestamp_ms=number)]
        )
    assert numbers(await live.get(RECORDS, where="value.n < 1000", limit=1000)) == list(reversed(range(60)))
    assert numbers(await live.get(RECORDS, limit=1000, **{"from": "oldest"})) == list(range(60))


async def test_the_budgets_end_a_search_and_the_cursor_goes_on(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.kafka.create_topic("orders")
    for number in range(30):
        await live.view.cluster.messages.append(
            "orders", [NewMessage(b"k", b'{"n": %d}' % number, timestamp_ms=number)]
        )
    monkeypatch.setattr(search, "SEARCH_BYTES", 1)
    monkeypatch.setattr(search, "MAX_PIECE_BYTES", 200)
    monkeypatch.setattr(search, "MIN_PIECE_BYTES", 200)
    found: list[int] = []
    ends: list[str] = []
    cursor = ""
    while not ends or ends[-1] == "bytes":
        answer = await live.get(RECORDS, limit=1000, cursor=cursor, **{"from": "oldest"})
        found += numbers(answer)
        ends.append(answer["ended_by"])
        cursor = answer["next_cursor"]
    assert found == list(range(30))
    assert set(ends) == {"bytes", "end"}
    monkeypatch.setattr(search, "SEARCH_BYTES", 1 << 20)
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(search, "MIN_TURN_RECORDS", 3)
    answer = await live.get(RECORDS, limit=1000)
    assert (answer["ended_by"], numbers(answer)) == ("time", [29, 28, 27])
    assert (answer["searched_records"], answer["left_records"]) == (3, 27)


async def test_an_answer_is_bounded(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(live)
    monkeypatch.setattr(search, "ANSWER_BYTES", 50)
    answer = await live.get(RECORDS)
    assert answer["ended_by"] == "size"
    assert len(answer["records"]) < 10


async def test_lines_of_json_are_the_records_own_bytes(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append(
        "orders", [NewMessage(b"\xff", b"v", (("h", b"1"),), timestamp_ms=7), NewMessage(None, None, timestamp_ms=8)]
    )
    answer = await live.http.get(RECORDS, params={"from": "oldest"}, headers={"accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["x-ended-by"] == "end"
    first, second = map(json.loads, answer.text.splitlines())
    assert first == {
        "topic": "orders", "partition": 0, "offset": 0, "timestamp": 7, "timestamp_type": "create",
        "key_base64": "/w==", "value": "v", "headers": [{"key": "h", "value": "1"}],
    }  # fmt: skip
    assert (second["key"], second["value"]) == (None, None)


async def test_cells_of_csv_are_no_formulas(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.view.cluster.messages.append("orders", [NewMessage(b"=1+1", b'a "b",\nc', timestamp_ms=0)])
    answer = await live.http.get(RECORDS, params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text == (
        "partition,offset,timestamp,key,value,headers,size_bytes,codec,producer_id\r\n"
        '0,0,1970-01-01T00:00:00.000Z,\'=1+1,"a ""b"",\nc",,12,none,\r\n'
    )


async def test_a_cell_of_csv_has_every_header_in_order(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    headers = (("h", b"1"), ("g", None), ("h", b"2"))
    await live.view.cluster.messages.append("orders", [NewMessage(b"k", b"v", headers)])
    answer = await live.http.get(RECORDS, params={"format": "csv"})
    [row] = csv.DictReader(io.StringIO(answer.text))
    assert json.loads(row["headers"]) == [
        {"key": "h", "value": "1"},
        {"key": "g", "value": None},
        {"key": "h", "value": "2"},
    ]


async def test_a_time_before_1970_is_a_time_and_only_minus_one_is_none(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    for timestamp_ms in (-1, -2):
        await live.view.cluster.messages.append("orders", [NewMessage(None, b"v", timestamp_ms=timestamp_ms)])
    found = await live.get(RECORDS, **{"from": "oldest"})
    assert ([each["timestamp_ms"] for each in found["records"]], found["reached_ms"]) == ([None, -2], -2)
    exported = (await live.http.get(RECORDS, params={"from": "oldest", "format": "ndjson"})).text
    assert [json.loads(line)["timestamp"] for line in exported.splitlines()] == [None, -2]
    rows = csv.DictReader(io.StringIO((await live.http.get(RECORDS, params={"from": "oldest", "format": "csv"})).text))
    assert [row["timestamp"] for row in rows] == ["", "1969-12-31T23:59:59.998Z"]


BAD_QUERIES = {
    "limit=0": "?limit",
    "limit=1001": "?limit",
    "from=middle": "?from",
    "from=offset": "?offset",
    "from=offset&offset=-1": "?offset",
    "from=time": "?time",
    "from=time&time=noon": "?time",
    "from=time&time=99999999999999999999": "?time",
    "partitions=x": "?partitions",
    "partitions=0-9999": "?partitions",
    "partitions=5-2": "?partitions",
    "decode=java": "?decode",
    "decode=avro&schema=x": "?schema",
    "where=value.": "?where",
    "where=value." + "(" * 100: "?where",
    "cursor=x": "?cursor",
    "cursor=f0": "?cursor",
    "max_value_bytes=1": "?max_value_bytes",
    "format=xml": "?format",
}


@pytest.mark.parametrize("query", BAD_QUERIES)
async def test_a_bad_query_is_refused_with_a_pointer(live: LiveAdmin, query: str) -> None:
    await live.kafka.create_topic("orders")
    assert pointers(await live.http.get(f"{RECORDS}?{query}"), 400) == [BAD_QUERIES[query]]


async def test_what_is_not_there_is_not_found(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    assert (await live.http.get("/api/v1/topics/missing/records")).status_code == 404
    answer = await live.http.get(RECORDS, params={"partitions": "0,7"})
    assert pointers(answer, 404) == ["?partitions"]


async def test_offsets_beyond_the_log_are_its_ends(live: LiveAdmin) -> None:
    await filled(live, partitions=1)
    answer = await live.get(RECORDS, offset=2**63 - 1, **{"from": "offset"})
    assert (answer["records"], answer["ended_by"]) == ([], "end")
    assert numbers(await live.get(RECORDS, cursor="b0.9999999999999", limit=1)) == [29]
    assert numbers(await live.get(RECORDS, cursor="f0.0-7.3", limit=1)) == [0]


async def test_commits_are_shown_in_our_own_format(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    await live.kafka.ask(commit, 8)
    [record] = (await live.get("/api/v1/topics/__consumer_offsets/records", where="has(value.offset)"))["records"]
    assert record["key"]["decoder"] == "broker"
    assert record["key"]["data"] == {"type": "OffsetCommit", "group": "g", "topic": "orders", "partition": 0}
    assert (record["value"]["data"]["offset"], record["value"]["data"]["metadata"]) == (5, "m")


METADATA = "/api/v1/topics/__cluster_metadata/records"


async def test_the_metadata_log_is_shown_as_our_own_records(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    answer = await live.get(METADATA, limit=1000, **{"from": "oldest"})
    values = [record["value"]["data"] for record in answer["records"]]
    assert values[0] == {"leader_id": live.broker.services.node.node_id}
    [topic] = [value for value in values if value.get("type") == "TopicRecord"]
    assert topic["name"] == "orders"
    [found] = (await live.get(METADATA, where='value.type == "PartitionRecord"'))["records"]
    assert found["value"]["data"]["topic_id"] == topic["topic_id"]
    assert found["value"]["decoder"] == "broker"
    later = await live.get(METADATA, time="9999999999999", **{"from": "time"})
    assert (later["records"], later["ended_by"]) == ([], "end")


async def test_passwords_in_the_metadata_log_are_hidden_in_every_format(live: LiveAdmin) -> None:
    secret = ConfigRecord(resource_type=4, resource_name="", name="sasl.jaas.config", value="hunter2")
    await append(live.broker.services.metadata_log, [secret])
    places = [METADATA, f"{METADATA}?format=ndjson", f"{METADATA}?format=csv", f"{METADATA}?decode=hex"]
    offset = (await live.get(METADATA, limit=1))["records"][0]["offset"]
    for place in [*places, f"/topics/__cluster_metadata/messages/0/{offset}"]:
        text = (await live.http.get(place)).text
        assert "hunter2" not in text
        assert b"hunter2".hex() not in text
        assert base64.b64encode(b"hunter2")[:8].decode() not in text


async def test_nothing_is_appended_to_the_metadata_log(live: LiveAdmin) -> None:
    end_offset = live.broker.services.metadata_log.log_end_offset
    answer = await live.http.post(METADATA, json={"value": "x"})
    assert answer.status_code == 404
    assert live.broker.services.metadata_log.log_end_offset == end_offset
    assert "data-opens" not in (await live.http.get("/topics/__cluster_metadata/messages")).text


async def test_a_fetch_of_the_metadata_log_waits_for_a_change(live: LiveAdmin) -> None:
    [readable] = await live.view.cluster.messages.readable_partitions("__cluster_metadata") or []
    position = {0: readable.end_offset}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(live.kafka.create_topic, "orders")
        [fetched] = await live.view.cluster.messages.fetch_batches(
            "__cluster_metadata", position, max_bytes=1 << 20, max_wait_seconds=60
        )
    assert [batch.info.base_offset for batch in fetched.batches()] == [readable.end_offset]
    [fetched] = await live.view.cluster.messages.fetch_batches("__cluster_metadata", {0: 10**9}, max_bytes=1)
    assert fetched.error == "OFFSET_OUT_OF_RANGE"


async def test_contents_can_be_switched_off(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path, admin_messages_enabled="false") as live:
        await live.kafka.create_topic("orders")
        answer = await live.http.get(RECORDS)
        assert answer.status_code == 403
        assert "admin.messages.enabled" in answer.json()["detail"]


async def test_a_search_ends_when_its_client_goes(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(live)
    begun = trio.Event()

    async def fetch_batches(*arguments: Any, **others: Any) -> Any:
        begun.set()
        await trio.sleep_forever()

    monkeypatch.setattr(live.view.cluster.messages, "fetch_batches", fetch_batches)
    received: Iterator[dict[str, Any]] = iter([{"type": "http.request"}])

    async def receive() -> dict[str, Any]:
        for message in received:
            return message
        await begun.wait()
        return {"type": "http.disconnect"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": RECORDS, "raw_path": RECORDS.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http",
        "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    await create_app(live.view)(scope, receive, send)
    assert sent[0]["status"] == 204
