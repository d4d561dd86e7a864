"""``stats`` on the logs of a broker: what it tells, in which forms, and with Spark in between."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import pytest

from kafka_wire.records.compression import Codec
from tests.spark.pipelines.broker_records import TIME_MS, Kept, numbered, send
from tests.spark.pipelines.local_commands import run_here
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.pipelines.memory_log import (
    InMemory,
    batch,
    task_on,
    with_wrong_checksum,
    with_wrong_header,
)
from trio_broker.spark.batch_table import scan_batches
from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.stats.job import StatsScope, StatsSettings, first_slices, join, stats
from trio_broker.spark.pipelines.stats.page import html_page
from trio_broker.spark.pipelines.stats.report import Document, report_document
from trio_broker.spark.pipelines.task_runner import SparkTaskRunner
from trio_broker.testing import BrokerThread, broker_in_thread

ALL = StatsSettings(verify_crc=True, keys=True)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A broker with a topic of three partitions, the last of them empty."""
    with broker_in_thread() as broker:
        broker.create_topic("orders", 3)
        compressed: dict[str, Any] = {"compression.type": "lz4", "batch.num.messages": 25}
        send(broker, "orders", numbered(100), **compressed)
        late = [Kept(None, b"x", timestamp_ms=TIME_MS - 500), Kept(None, b"y", timestamp_ms=TIME_MS - 9000)]
        for record in [Kept(b"k", b"v"), *late]:
            send(broker, "orders", [record], partition=1)
        yield broker


def options(broker: BrokerThread, **further: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", **further}


def reported(log: InMemory, settings: StatsSettings = ALL) -> Document:
    """The report of a log in memory of 100 offsets, in two slices."""
    tasks = [task_on(log, 0, 50, ["key"]), task_on(log, 50, 100, ["key"])]
    results = LocalTaskRunner().run(tasks, StatsScope(settings, first_slices(tasks)))
    return report_document(join(tasks, results), settings, 0)


LOG = tuple(batch(offset, 10, timestamp=1000 + offset) for offset in range(0, 100, 10))


def test_partitions_are_reported_one_by_one(broker: BrokerThread):
    document = report_document(stats(LocalTaskRunner(), options(broker), ALL), ALL, TIME_MS)
    first, second = document["partitions"]
    assert (first["topic"], first["partition"], first["start_offset"], first["end_offset"]) == ("orders", 0, 0, 100)
    assert (first["batches"], first["records"], first["records_per_batch"]) == (4, 100, 25.0)
    assert first["first_timestamp"] == "2026-09-21T14:13:20.000Z"
    assert first["last_timestamp"] == "2026-09-21T14:14:59.000Z"
    assert first["keys"]["distinct_keys"] == 10
    assert first["keys"]["dead_ratio"] == 0.9
    assert (second["late_batches"], second["worst_lag"]) == (2, {"offset": 2, "milliseconds": 9000})
    assert second["keys"]["records_without_key"] == 2
    assert second["keys"]["dead_records"] == 2
    assert [each["codec"] for each in document["codecs"]] == ["none", "lz4"]
    assert document["totals"]["records"] == 103
    assert document["records_in_batches"][-1] == {"records_from": 16, "records_to": 31, "batches": 4}


def test_many_slices_find_what_one_finds(broker: BrokerThread):
    whole = stats(LocalTaskRunner(), options(broker, minPartitions="1"), ALL)
    assert stats(LocalTaskRunner(), options(broker, maxRecordsPerPartition="7"), ALL) == whole


def test_without_keys_and_checksums_neither_is_looked_at(broker: BrokerThread):
    settings = StatsSettings(verify_crc=False)
    document = report_document(stats(LocalTaskRunner(), options(broker), settings), settings, TIME_MS)
    assert [each["keys"] for each in document["partitions"]] == [None, None]
    assert (document["totals"]["bad_batches"], document["totals"]["dead_records"]) == (None, None)


def test_damage_is_listed_and_the_rest_is_counted():
    log = (*LOG[:2], with_wrong_checksum(LOG[2]), *LOG[3:7], with_wrong_header(LOG[7]), *LOG[8:])
    document = reported(InMemory(log))
    [bad], [damage] = document["bad_batches"], document["unreadable"]
    assert (bad["topic"], bad["partition"], bad["offset"], bad["last_offset"]) == ("orders", 0, 20, 29)
    assert (damage["offset"], damage["end_offset"]) == (70, 80)
    [partition] = document["partitions"]
    assert (partition["batches"], partition["records"]) == (9, 90)
    assert partition["keys"]["records"] == 80
    assert partition["keys"]["problem"] is None


@pytest.mark.parametrize("border", [19, 20, 21, 25, 29])
def test_a_bad_batch_at_the_border_of_two_slices_costs_no_other_keys(border: int):
    log = InMemory((*LOG[:2], with_wrong_checksum(LOG[2]), *LOG[3:]))
    tasks = [task_on(log, 0, border, ["key"]), task_on(log, border, 100, ["key"])]
    [health] = join(tasks, LocalTaskRunner().run(tasks, StatsScope(ALL, first_slices(tasks))))
    assert health.keys is not None
    assert (health.keys.record_count, health.keys.problem) == (90, None)
    assert health.batches.bad_count == 1


def test_keys_that_cannot_be_decoded_are_reported_where_checksums_are_not_looked_at():
    document = reported(
        InMemory((*LOG[:2], with_wrong_checksum(LOG[2]), *LOG[3:])), attrs.evolve(ALL, verify_crc=False)
    )
    assert "orders-0 at offset 20" in document["partitions"][0]["keys"]["problem"]


def test_a_damaged_segment_is_looked_at_from_its_beginning_to_its_end(tmp_path: Path):
    with broker_in_thread(tmp_path, log_index_interval_bytes=1000) as broker:
        broker.create_topic("orders")
        send(broker, "orders", numbered(2000), **{"batch.num.messages": 50})
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    positions = scan_batches(data).positions.tolist()
    data[positions[5] + 90] ^= 1
    data[positions[20] + 16] = 0x77
    path.write_bytes(data)
    found = stats(LocalTaskRunner(), {"path": str(tmp_path), "subscribe": "orders", "minPartitions": "7"}, ALL)
    document = report_document(found, ALL, TIME_MS)
    [bad], [damage], [partition] = document["bad_batches"], document["unreadable"], document["partitions"]
    assert (bad["offset"], bad["last_offset"]) == (250, 299)
    assert damage["offset"] == 1000
    assert damage["end_offset"] <= 1100
    unreadable = damage["end_offset"] - damage["offset"]
    assert partition["records"] == 2000 - unreadable
    assert partition["keys"]["records"] == 2000 - unreadable - 50
    assert partition["keys"]["problem"] is None


def test_no_batches_make_a_report_without_numbers():
    document = report_document([], ALL, 0)
    assert document["totals"]["records"] == 0
    assert document["partitions"] == document["codecs"] == document["batch_sizes"] == []
    page = html_page(document)
    assert "There was nothing to look at" in page
    assert "<figure" not in page


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else_and_each_bar_has_its_number():
    document = reported(InMemory((*LOG[:2], with_wrong_checksum(LOG[2]), *LOG[3:])))
    text = html_page(document)
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert text.startswith("<!doctype html>")
    assert tags.count("figure") >= 5
    assert not {*tags} & {"script", "link", "iframe", "img"}
    assert not re.search(r"https?://|url\(", text)
    assert "1 batch has a wrong checksum" in page.text
    assert "orders-0" in page.text


def test_bars_are_as_long_as_their_shares():
    document = reported(InMemory((*LOG[:6], *(batch(offset, 10, codec=Codec.ZSTD) for offset in range(60, 100, 10)))))
    sizes = {each["codec"]: each["bytes"] for each in document["codecs"]}
    page = html_page(document)
    figure = page[page.index("Bytes by codec") :].partition("</figure>")[0]
    widths = dict(re.findall(r'<i class="(\w+)" style="width:([\d.]+)%">', figure))
    assert widths == {name: f"{100 * size / sum(sizes.values()):.2f}" for name, size in sizes.items()}


def test_a_figure_names_the_largest_partitions_and_says_that_there_are_more():
    document = reported(InMemory(LOG))
    [partition] = document["partitions"]
    many = [{**partition, "partition": number, "bytes": 1000 + number} for number in range(25)]
    page = html_page({**document, "partitions": many})
    sizes = page[page.index("Size of partitions") :].partition("</figure>")[0]
    assert re.findall(r'<b title="orders-(\d+)"', sizes) == [str(number) for number in range(5, 25)]
    assert "The largest 20 of 25." in sizes


def test_a_time_beyond_all_calendars_has_no_bar():
    document = reported(InMemory((batch(0, 3, timestamp=2**60),)))
    page = html_page(document)
    assert f"{2**60} ms" in page
    assert "Time that partitions cover" not in page


def test_names_from_elsewhere_are_text_on_the_page():
    document = reported(InMemory(LOG))
    hostile = [{**document["partitions"][0], "topic": '<script>alert(1)</script>"onload=x'}]
    page = html_page({**document, "partitions": hostile})
    assert "<script>" not in page
    assert '"onload' not in page


def test_an_unknown_option_is_refused(broker: BrokerThread):
    with pytest.raises(OptionError, match="subscribe"):
        stats(LocalTaskRunner(), {"kafka.bootstrap.servers": broker.bootstrap_servers}, ALL)


@pytest.mark.spark
def test_spark_finds_what_one_process_finds(broker: BrokerThread, spark):
    found = stats(SparkTaskRunner(spark), options(broker, maxRecordsPerPartition="60"), ALL)
    assert found == stats(LocalTaskRunner(), options(broker), ALL)


def test_the_command_prints_tables_json_and_a_page(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    command = ["stats", "-b", broker.bootstrap_servers, "--topic", "orders"]
    tables = run_here(monkeypatch, *command, "--keys", "--html", str(tmp_path / "page.html"))
    assert tables.exit_code == 0, tables.output
    assert "orders          0        4      100" in tables.output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    as_json = run_here(monkeypatch, *command, "--json")
    assert json.loads(as_json.stdout)["totals"]["records"] == 103


def test_the_command_fails_where_anything_is_damaged(monkeypatch: pytest.MonkeyPatch):
    log = InMemory((with_wrong_checksum(LOG[0]),))
    monkeypatch.setattr(
        "trio_broker.spark.pipelines.stats.job.plan_batch_tasks", lambda options, columns: [task_on(log, 0, 10)]
    )
    result = run_here(monkeypatch, "stats", "--topic", "orders")
    assert result.exit_code == 1
    assert "damage was found in 1 places" in result.output
    assert re.search(r"orders +0 +0 +9 +\d+ +memory", result.output)
