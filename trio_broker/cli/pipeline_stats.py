"""``trio-broker pipeline stats``: statistics and damage of the batches in topics, as tables, JSON or an HTML page.

The command ends with exit code 1 if a batch is damaged, so that a scheduled run reports it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trio_broker.cli.failure import fail
from trio_broker.cli.output import note, print_facts, print_json, print_table
from trio_broker.cli.pipeline_options import SourceOptions, SparkStart, pipeline_command

Document = Mapping[str, Any]

FILE = click.Path(dir_okay=False, path_type=Path)


@pipeline_command("stats", "stats --topic orders --keys --html orders.html", source_options=SourceOptions)
@click.option("--verify-crc/--no-verify-crc", default=True, show_default=True, help="Compare every batch's checksum.")
@click.option("--keys", is_flag=True, help="Count keys and the records that compaction could drop; decodes all keys.")
@click.option("--html", type=FILE, metavar="FILE", help="Write the report as one HTML page with diagrams.")
def stats_command(
    source_options: SourceOptions,
    start_spark: SparkStart,
    *,
    verify_crc: bool,
    keys: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show sizes, codecs, gaps, order of timestamps and damage of the batches in topics, from their headers."""
    from trio_broker.spark.pipelines.progress import READING, Progress
    from trio_broker.spark.pipelines.stats.job import StatsSettings, stats
    from trio_broker.spark.pipelines.stats.report import damage_count, report_document
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner

    settings = StatsSettings(verify_crc=verify_crc, keys=keys)
    with Progress("stats", unit="slices") as progress:

        def on_plan(count: int) -> Any:
            progress.grow(count)
            progress.phase(READING)
            return progress.set_running

        runner = SparkTaskRunner(start_spark("trio-broker stats", progress))
        found = stats(runner, source_options.of_data_source(), settings, on_plan)
    document = report_document(found, settings, time.time_ns() // 1_000_000)
    if html is not None:
        write_page(document, html)
    if as_json:
        print_json(document)
    else:
        print_report(document)
    if damaged := damage_count(document):
        fail(f"damage was found in {damaged} places")


def write_page(document: Document, path: Path) -> None:
    """Write the report as a page."""
    from trio_broker.spark.pipelines.stats.page import html_page

    try:
        path.write_text(html_page(document), encoding="utf-8")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    note(f"{path}: {path.stat().st_size} bytes")


# --- Tables ---


def print_report(document: Document) -> None:
    """Print the main tables of the report; the JSON and the page have all of it."""
    totals = document["totals"]
    if not document["partitions"]:
        note("there are no batches")
        return
    print_facts({name: totals[name] for name in ("topics", "partitions", "batches", "records", "bytes")})
    click.echo()
    print_table(PARTITION_COLUMNS, [flat(each) for each in document["partitions"]])
    for columns, name in (
        (CODEC_COLUMNS, "codecs"),
        (SIZE_COLUMNS, "batch_sizes"),
        (RECORD_COLUMNS, "records_in_batches"),
        (BAD_COLUMNS, "bad_batches"),
        (DAMAGE_COLUMNS, "unreadable"),
    ):
        if document[name]:
            click.echo()
            print_table(columns, [{**each, **codecs_in(each)} for each in document[name]])


def flat(partition: Document) -> dict[str, Any]:
    """Return a partition as a row of a table."""
    lag, keys = partition["worst_lag"], partition["keys"]
    return {
        **partition,
        "missing": partition["offsets_missing_between"] + partition["offsets_missing_inside"],
        "worst_lag_ms": None if lag is None else lag["milliseconds"],
        "dead": None if keys is None or keys["dead_ratio"] is None else f"{keys['dead_ratio']:.1%}",
    }


def codecs_in(row: Document) -> dict[str, Any]:
    """Return the batches of a histogram's bin by codec, in the form ``lz4:12,zstd:3``."""
    if "by_codec" not in row:
        return {}
    return {"by_codec": [f"{codec}:{count}" for codec, count in row["by_codec"].items()]}


PARTITION_COLUMNS = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "BATCHES": "batches",
    "RECORDS": "records",
    "BYTES": "bytes",
    "FIRST RECORD": "first_timestamp",
    "LAST RECORD": "last_timestamp",
    "MARKERS": "control_batches",
    "GAPS": "gaps",
    "MISSING": "missing",
    "LATE": "late_batches",
    "WORST LAG MS": "worst_lag_ms",
    "DEAD": "dead",
    "BAD": "bad_batches",
    "UNREADABLE": "unreadable_stretches",
}
CODEC_COLUMNS = {"CODEC": "codec", "BATCHES": "batches", "RECORDS": "records", "BYTES": "bytes"}
SIZE_COLUMNS = {"BYTES FROM": "bytes_from", "TO": "bytes_to", "BATCHES": "batches", "BY CODEC": "by_codec"}
RECORD_COLUMNS = {"RECORDS FROM": "records_from", "TO": "records_to", "BATCHES": "batches"}
BAD_COLUMNS = {
    "BAD TOPIC": "topic",
    "PARTITION": "partition",
    "OFFSET": "offset",
    "LAST OFFSET": "last_offset",
    "BYTES": "bytes",
    "READ FROM": "origin",
}
DAMAGE_COLUMNS = {
    "UNREADABLE TOPIC": "topic",
    "PARTITION": "partition",
    "FROM OFFSET": "offset",
    "TO": "end_offset",
    "REASON": "reason",
}
