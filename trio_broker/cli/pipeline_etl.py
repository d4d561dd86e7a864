"""``trio-broker pipeline etl``: writes topics of JSON to a typed table, and invalid rows to a table of dead letters."""

from __future__ import annotations

import click

from trio_broker.cli.pipeline_options import SourceOptions, SparkStart, dry_run_option, pipeline_command
from trio_broker.cli.pipeline_tables import TABLE, TableOptions, show_plan, show_report


@pipeline_command(
    "etl",
    "etl --topic orders --schema 'id BIGINT NOT NULL, name STRING' --to delta:/data/orders",
    source_options=SourceOptions,
    table=TableOptions,
)
@click.option("--schema", required=True, metavar="DDL", help="The columns, such as 'id BIGINT NOT NULL, name STRING'.")
@click.option(
    "--dead-letters",
    metavar=TABLE,
    help="The table of records that do not fit the schema.  [default: the name of --to with _dead_letters appended]",
)
@click.option(
    "--with-origin", is_flag=True, help="Add to each row the topic, partition, offset and timestamp of its record."
)
@dry_run_option
def etl_command(
    source_options: SourceOptions,
    table: TableOptions,
    start_spark: SparkStart,
    *,
    schema: str,
    dead_letters: str | None,
    with_origin: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the new records of JSON topics to a table, every record exactly once."""
    from trio_broker.spark.pipelines.etl.job import DEAD_LETTERS, ROWS, etl_settings, run_etl
    from trio_broker.spark.pipelines.export.job import read_job_options
    from trio_broker.spark.pipelines.job_source import JobSource
    from trio_broker.spark.pipelines.progress import Progress
    from trio_broker.spark.pipelines.table_jobs.dry_run import plan_job
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner

    settings = etl_settings(
        schema,
        table.target(),
        dead_letters=None if dead_letters is None else table.target(dead_letters, "dead-letters"),
        with_origin=with_origin,
        files=table.files,
        trigger=table.trigger,
        checkpoint=table.checkpoint,
    )
    with JobSource.of(read_job_options(source_options.of_data_source(), settings.trigger)) as source:
        if dry_run:
            show_plan(plan_job(source, settings.checkpoint_directory, settings.trigger), as_json=as_json)
            return
        with Progress("etl") as progress:
            report = run_etl(
                source, settings, lambda: SparkTaskRunner(start_spark("trio-broker etl", progress)), progress=progress
            )
    show_report(report, {ROWS: str(settings.target), DEAD_LETTERS: str(settings.dead_letters)}, as_json=as_json)
