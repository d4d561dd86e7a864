"""``trio-broker pipeline export``: copies topics to Parquet files, an Iceberg table or a Delta table."""

from __future__ import annotations

from trio_broker.cli.pipeline_options import SourceOptions, SparkStart, dry_run_option, pipeline_command
from trio_broker.cli.pipeline_tables import TableOptions, show_plan, show_report


@pipeline_command(
    "export", "export --topic orders --to parquet:/data/orders", source_options=SourceOptions, table=TableOptions
)
@dry_run_option
def export_command(
    source_options: SourceOptions, table: TableOptions, start_spark: SparkStart, *, dry_run: bool, as_json: bool
) -> None:
    """Copy the new records of topics to a table, every record exactly once."""
    from trio_broker.spark.pipelines.export.job import ROWS, ExportSettings, read_job_options, run_export
    from trio_broker.spark.pipelines.job_source import JobSource
    from trio_broker.spark.pipelines.progress import Progress
    from trio_broker.spark.pipelines.table_jobs.dry_run import plan_job
    from trio_broker.spark.pipelines.task_runner import SparkTaskRunner

    settings = ExportSettings(table.target(), table.files, table.trigger, table.checkpoint)
    with JobSource.of(read_job_options(source_options.of_data_source(), settings.trigger)) as source:
        if dry_run:
            show_plan(plan_job(source, settings.checkpoint_directory, settings.trigger), as_json=as_json)
            return
        with Progress("export") as progress:
            report = run_export(
                source,
                settings,
                lambda: SparkTaskRunner(start_spark("trio-broker export", progress)),
                progress=progress,
            )
    show_report(report, {ROWS: str(settings.target)}, as_json=as_json)
