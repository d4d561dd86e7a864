"""``trio-broker pipeline replay``: a range of topics, written again to another topic or another cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from trio_broker.cli.connecting import json_option
from trio_broker.cli.output import print_json
from trio_broker.cli.pipeline_options import SparkStart, reads_topics, runs_spark
from trio_broker.cli.pipeline_plan import show_ranges
from trio_broker.cli.pipeline_topics import (
    checkpoint_option,
    partitions_option,
    producer_settings,
    rate_options,
    row_ids_option,
    target_options,
)

if TYPE_CHECKING:
    from trio_broker.spark.pipelines.replay import ReplayPlan
    from trio_broker.spark.pipelines.token_bucket import RateLimit


@click.command("replay")
@click.option("--to-topic", metavar="TOPIC", help="Where to; without it topics keep their names, on another cluster.")
@checkpoint_option
@row_ids_option
@click.option("--dry-run", is_flag=True, help="Only show what would be read.")
@partitions_option
@target_options
@rate_options
@reads_topics
@runs_spark
@json_option
def replay_command(
    to_topic: str | None,
    checkpoint: Path,
    row_ids: bool,
    dry_run: bool,
    partitions: str,
    to_bootstrap_server: str | None,
    compression: str,
    limit: RateLimit,
    source_options: dict[str, str],
    start_spark: SparkStart,
    as_json: bool,
) -> None:
    """Write records again, with keys, headers and times as they are."""
    from trio_broker.spark.options.option import Mode
    from trio_broker.spark.options.read_options import read_options
    from trio_broker.spark.pipelines.job_source import JobSource
    from trio_broker.spark.pipelines.progress import Progress, short_duration
    from trio_broker.spark.pipelines.replay import Partitions, ReplaySettings, plan_replay, replay
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner

    options = read_options(source_options, Mode.BATCH)
    settings = ReplaySettings(
        target=producer_settings(to_bootstrap_server, options.kafka.bootstrap_servers, compression),
        checkpoint=checkpoint,
        topic=to_topic,
        partitions=Partitions(partitions),
        limit=limit,
        with_row_ids=row_ids,
    )
    with JobSource.of(options) as source:
        if dry_run:
            show_plan(plan_replay(source, settings), limit, as_json=as_json)
            return
        with Progress("replay") as progress:
            report = replay(
                source, settings, source_options, lambda: SparkTaskRunner(start_spark("trio-broker replay")), progress
            )
    if as_json:
        print_json(attrs.asdict(report))
    elif not report.rounds:
        click.echo("nothing left to write")
    else:
        click.echo(f"{report.records:,} records in {short_duration(report.seconds)}, rounds: {report.rounds}")


def show_plan(plan: ReplayPlan, limit: RateLimit, *, as_json: bool) -> None:
    """Print what would be read, and how long it would take at least."""
    from trio_broker.spark.pipelines.progress import short_duration

    seconds = limit.seconds_for(plan.offset_count, None)
    duration = "" if seconds is None else f", in {short_duration(seconds)} or more"
    facts = {"offsets": plan.offset_count, "seconds_at_least": seconds}
    show_ranges(plan.ranges, as_json=as_json, facts=facts, words=duration)
