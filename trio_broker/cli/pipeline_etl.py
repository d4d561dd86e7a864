"""``trio-broker pipeline etl``: topics of JSON to a typed table, and to one of dead letters."""

from __future__ import annotations

import click

from trio_broker.cli.connecting import json_option
from trio_broker.cli.pipeline_options import SparkStart, reads_topics, runs_spark
from trio_broker.cli.pipeline_tables import TableOptions, show_plan, show_report, writes_tables


@click.command("etl")
@click.option("--schema", required=True, metavar="DDL", help="The columns, such as 'id BIGINT NOT NULL, name STRING'.")
@click.option(
    "--to", "to", required=True, metavar="FORMAT:NAME", help="parquet:DIR, delta:DIR or iceberg:NAMESPACE.TABLE"
)
@click.option(
    "--dead-letters",
    metavar="FORMAT:NAME",
    help="The table of records that do not fit.  [default: that of --to, with _dead_letters behind its name]",
)
@click.option("--with-origin", is_flag=True, help="Let each row have its record's topic, partition, offset and time.")
@click.option("--dry-run", is_flag=True, help="Only show what would be read.")
@reads_topics
@writes_tables
@runs_spark
@json_option
def etl_command(
    schema: str,
    to: str,
    dead_letters: str | None,
    with_origin: bool,
    dry_run: bool,
    source_options: dict[str, str],
    table_options: TableOptions,
    start_spark: SparkStart,
    as_json: bool,
) -> None:
    """Read what is new in topics of JSON into a table, every record exactly once."""
    from trio_broker.spark.pipelines.dry_run import plan_job
    from trio_broker.spark.pipelines.etl import DEAD_LETTERS, ROWS, etl_settings, run_etl
    from trio_broker.spark.pipelines.export import read_job_options
    from trio_broker.spark.pipelines.job_source import JobSource
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner
    from trio_broker.spark.tables.target import parse_target

    catalog = table_options.iceberg_catalog
    settings = etl_settings(
        schema,
        parse_target(to, catalog),
        dead_letters=None if dead_letters is None else parse_target(dead_letters, catalog, "dead-letters"),
        with_origin=with_origin,
        files=table_options.files,
        trigger=table_options.trigger,
        checkpoint=table_options.checkpoint,
    )
    with JobSource.of(read_job_options(source_options, settings.trigger)) as source:
        if dry_run:
            show_plan(plan_job(source, settings.checkpoint_directory, settings.trigger), as_json=as_json)
            return
        report = run_etl(source, settings, lambda: SparkTaskRunner(start_spark("trio-broker etl")))
    show_report(report, {ROWS: str(settings.target), DEAD_LETTERS: str(settings.dead_letters)}, as_json=as_json)
