"""``trio-broker pipeline restore``: writes Parquet files to a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from kafka_wire.limits import MAX_PARTITION_COUNT
from trio_broker.cli.assignments import key_value
from trio_broker.cli.connecting import DEFAULT_BOOTSTRAP_SERVER, addresses
from trio_broker.cli.output import print_json, print_table
from trio_broker.cli.pipeline_options import SparkStart, dry_run_option, option, pipeline_command
from trio_broker.cli.pipeline_topics import TopicOptions
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.common.amounts import duration_text
from trio_broker.spark.options.kafka_options import DEFAULT_CLIENT_ID
from trio_broker.spark.pipelines.rounds.target_topics import NewTopics

if TYPE_CHECKING:
    from trio_broker.spark.pipelines.restore.job import RestorePlan
    from trio_broker.spark.pipelines.rounds.token_bucket import RateLimit


@attrs.frozen
class NewTopicOptions:
    """New topics."""

    create_topic: bool = option("--create-topic", is_flag=True, help="Create topics that are missing.")
    topic_partitions: int | None = option(
        "--topic-partitions",
        type=click.IntRange(1, MAX_PARTITION_COUNT),
        metavar="COUNT",
        help="The partitions of a created topic.  [default: as many as the rows need]",
    )
    topic_config: tuple[tuple[str, str], ...] = option(
        "--topic-config",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the created topics; repeatable.",
    )

    def new_topics(self) -> NewTopics | None:
        """Return the settings of missing topics, or None if they are not to be created.

        Raises:
            click.UsageError: settings for new topics are given without ``--create-topic``.
        """
        if self.create_topic:
            return NewTopics(self.topic_partitions, configs=dict(self.topic_config))
        if self.topic_partitions is not None or self.topic_config:
            raise click.UsageError(
                "--topic-partitions and --topic-config are for topics that are created: --create-topic"
            )
        return None


@pipeline_command(
    "restore",
    "restore /data/orders --to-topic orders --checkpoint /data/jobs/restore",
    target=TopicOptions,
    new=NewTopicOptions,
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@dry_run_option
def restore_command(
    target: TopicOptions,
    new: NewTopicOptions,
    start_spark: SparkStart,
    *,
    paths: tuple[Path, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the rows of Parquet files in the order of their offsets.

    The files are those of an export, or any others with a column "value".
    """
    from trio_broker.spark.pipelines.progress import Progress
    from trio_broker.spark.pipelines.restore.job import RestoreSettings, plan_restore, restore
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner

    here = ConnectionSettings(addresses(DEFAULT_BOOTSTRAP_SERVER), DEFAULT_CLIENT_ID)
    settings = RestoreSettings(**target.settings(here), new=new.new_topics())
    if dry_run:
        show_plan(plan_restore(paths, settings), settings.limit, as_json=as_json)
        return
    with Progress("restore") as progress:
        report = restore(
            paths, settings, lambda: SparkTaskRunner(start_spark("trio-broker restore", progress)), progress
        )
    if as_json:
        print_json(attrs.asdict(report))
        return
    for topic in report.new_topics:
        click.echo(f"topic {topic}: created")
    if not report.rounds:
        click.echo("nothing left to write")
        return
    duration = duration_text(report.seconds)
    click.echo(f"{report.records:,} records out of {report.files:,} files in {duration}, rounds: {report.rounds}")


def show_plan(plan: RestorePlan, limit: RateLimit, *, as_json: bool) -> None:
    """Print the rows that would be written, by their origin, and the least time that the rate limit allows."""
    rows = [
        {
            "topic": group[0].origin.topic or None,
            "partition": group[0].origin.partition if group[0].origin.partition >= 0 else None,
            "files": len({part.path for part in group}),
            "rows": sum(part.rows for part in group),
            "first_offset": group[0].first_offset,
            "last_offset": max((part.last_offset for part in group if part.last_offset is not None), default=None),
        }
        for group in plan.groups
    ]
    seconds = limit.seconds_for(plan.rows, None)
    if as_json:
        print_json(
            {
                "dry_run": True,
                "groups": rows,
                "rows": plan.rows,
                "new_topics": list(plan.new_topics),
                "seconds_at_least": seconds,
            }
        )
        return
    columns = {
        "FROM TOPIC": "topic",
        "PARTITION": "partition",
        "FILES": "files",
        "ROWS": "rows",
        "FIRST OFFSET": "first_offset",
        "LAST OFFSET": "last_offset",
    }
    print_table(columns, rows)
    for topic in plan.new_topics:
        click.echo(f"topic {topic}: would be created")
    duration = "" if seconds is None else f", in {duration_text(seconds)} or more"
    click.echo(f"dry run: {plan.rows:,} records{duration}; nothing was written")
