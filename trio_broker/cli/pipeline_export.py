"""``trio-broker pipeline export``: topics to a directory of Parquet files, an Iceberg or a Delta table."""

from __future__ import annotations

import click

from trio_broker.cli.connecting import json_option
from trio_broker.cli.pipeline_options import SparkStart, reads_topics, runs_spark
from trio_broker.cli.pipeline_tables import TableOptions, show_plan, show_report, writes_tables


@click.command("export")
@click.option(
    "--to", "to", required=True, metavar="FORMAT:NAME", help="parquet:DIR, delta:DIR or iceberg:NAMESPACE.TABLE"
)
@click.option("--dry-run", is_flag=True, help="Only show what would be read.")
@reads_topics
@writes_tables
@runs_spark
@json_option
def export_command(
    to: str,
    dry_run: bool,
    source_options: dict[str, str],
    table_options: TableOptions,
    start_spark: SparkStart,
    as_json: bool,
) -> None:
    """Copy what is new in topics to a table, every record exactly once."""
    from trio_broker.spark.pipelines.dry_run import plan_job
    from trio_broker.spark.pipelines.export import ROWS, ExportSettings, read_job_options, run_export
    from trio_broker.spark.pipelines.job_source import JobSource
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner
    from trio_broker.spark.tables.target import parse_target

    target = parse_target(to, table_options.iceberg_catalog)
    settings = ExportSettings(target, table_options.files, table_options.trigger, table_options.checkpoint)
    with JobSource.of(read_job_options(source_options, settings.trigger)) as source:
        if dry_run:
            show_plan(plan_job(source, settings.checkpoint_directory, settings.trigger), as_json=as_json)
            return
        report = run_export(source, settings, lambda: SparkTaskRunner(start_spark("trio-broker export")))
    show_report(report, {ROWS: str(target)}, as_json=as_json)
