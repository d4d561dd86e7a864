"""``trio-broker pipeline replay``: copies records of topics to another topic or another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from trio_broker.cli.output import print_json
from trio_broker.cli.pipeline_options import SourceOptions, SparkStart, dry_run_option, pipeline_command, show_ranges
from trio_broker.cli.pipeline_topics import TopicOptions
from trio_broker.common.amounts import duration_text

if TYPE_CHECKING:
    from trio_broker.spark.pipelines.replay.job import ReplayPlan
    from trio_broker.spark.pipelines.rounds.token_bucket import RateLimit


@pipeline_command(
    "replay",
    "replay --topic orders --from 2026-01-01 --to-topic orders-again --checkpoint /data/jobs/again",
    source_options=SourceOptions,
    target=TopicOptions,
)
@dry_run_option
def replay_command(
    source_options: SourceOptions, target: TopicOptions, start_spark: SparkStart, *, dry_run: bool, as_json: bool
) -> None:
    """Copy records to a topic, with their keys, headers and timestamps."""
    from trio_broker.spark.options.option import Mode
    from trio_broker.spark.options.read_options import read_options
    from trio_broker.spark.pipelines.job_source import JobSource
    from trio_broker.spark.pipelines.progress import Progress
    from trio_broker.spark.pipelines.replay.job import ReplaySettings, plan_replay, replay
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner

    given = source_options.of_data_source()
    options = read_options(given, Mode.BATCH)
    settings = ReplaySettings(**target.settings(options.kafka.connection))
    with JobSource.of(options) as source:
        if dry_run:
            show_plan(plan_replay(source, settings), settings.limit, as_json=as_json)
            return
        with Progress("replay") as progress:
            report = replay(
                source, settings, given, lambda: SparkTaskRunner(start_spark("trio-broker replay", progress)), progress
            )
    if as_json:
        print_json(attrs.asdict(report))
    elif not report.rounds:
        click.echo("nothing left to write")
    else:
        click.echo(f"{report.records:,} records in {duration_text(report.seconds)}, rounds: {report.rounds}")


def show_plan(plan: ReplayPlan, limit: RateLimit, *, as_json: bool) -> None:
    """Print the ranges that would be read, and the least time that the rate limit allows."""
    seconds = limit.seconds_for(plan.offset_count, None)
    duration = "" if seconds is None else f", in {duration_text(seconds)} or more"
    facts = {"offsets": plan.offset_count, "seconds_at_least": seconds}
    show_ranges(plan.ranges, as_json=as_json, facts=facts, words=duration)
