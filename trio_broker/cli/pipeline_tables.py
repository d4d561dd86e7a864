"""The options, the dry run and the report of the pipelines that write tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import click

from trio_broker.cli.assignments import key_value
from trio_broker.cli.output import print_json
from trio_broker.cli.pipeline_options import option, show_ranges
from trio_broker.common.amounts import bytes_text, duration_text
from trio_broker.spark.pipelines.table_jobs.trigger import DEFAULT_BATCH_RECORDS, Trigger
from trio_broker.spark.tables.table_writer import DEFAULT_TARGET_BYTES, FileSettings, ParquetCodec
from trio_broker.spark.tables.target import LOCAL_CATALOG, IcebergCatalog, Target, parse_target

if TYPE_CHECKING:
    from trio_broker.spark.pipelines.table_jobs.dry_run import ReadPlan
    from trio_broker.spark.pipelines.table_jobs.micro_batches import JobReport

MIB: Final = 1024 * 1024
DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)

TABLE: Final = "FORMAT:NAME"


@attrs.frozen
class TableOptions:
    """Writing."""

    to: str = option("--to", required=True, metavar=TABLE, help="parquet:DIR, delta:DIR or iceberg:NAMESPACE.TABLE")
    codec: str = option(
        "--codec",
        type=click.Choice([each.value for each in ParquetCodec]),
        default=FileSettings().codec.value,
        show_default=True,
        help="How pages are compressed.",
    )
    target_mib: int = option(
        "--target-file-size",
        type=click.IntRange(min=1, max=1 << 14),
        default=DEFAULT_TARGET_BYTES // MIB,
        show_default=True,
        metavar="MIB",
        help="The size at which a file is closed and the next one begun.",
    )
    batch_records: int = option(
        "--batch-records",
        type=click.IntRange(min=1),
        default=DEFAULT_BATCH_RECORDS,
        show_default=True,
        metavar="COUNT",
        help="The most records of one commit.",
    )
    available_now: bool = option(
        "--available-now/--continuous",
        default=True,
        show_default=True,
        help="Stop at the present end of the topics, or wait for more records.",
    )
    interval: float = option(
        "--interval",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="With --continuous: the time between two reads.",
    )
    checkpoint: Path | None = option(
        "--checkpoint",
        type=DIRECTORY,
        help="The directory of the job's progress.  [default: in the table's directory]",
    )
    warehouse: Path | None = option(
        "--warehouse", type=DIRECTORY, help="Iceberg: a directory for tables, with a catalog of its own."
    )
    catalog: str | None = option(
        "--catalog", metavar="NAME", help="Iceberg: a catalog that pyiceberg is configured for."
    )
    catalog_property: tuple[tuple[str, str], ...] = option(
        "--catalog-property",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="Iceberg: a property of the catalog; repeatable.",
    )

    @property
    def files(self) -> FileSettings:
        """How files are written."""
        return FileSettings(ParquetCodec(self.codec), self.target_mib * MIB)

    @property
    def trigger(self) -> Trigger:
        """How many records are read at a time, and whether the job waits for more."""
        return Trigger(self.batch_records, None if self.available_now else self.interval)

    def target(self, text: str | None = None, name: str = "to") -> Target:
        """Return the table of ``--to``, or that of the option ``name``.

        Raises:
            click.UsageError: two catalogs are given.
            OptionError: the text does not name a table, or names an Iceberg table without a catalog.
            SparkJobError: the package for the table's format is not installed.
        """
        catalog = None
        if self.warehouse is not None and self.catalog is not None:
            raise click.UsageError("choose one Iceberg catalog: --warehouse or --catalog")
        if self.warehouse is not None or self.catalog is not None:
            catalog = IcebergCatalog(self.catalog or LOCAL_CATALOG, dict(self.catalog_property), self.warehouse)
        target = parse_target(self.to if text is None else text, catalog, name)
        # A dry run does not need the package, but the run after it does, and should not be the first to fail.
        target.require_package()
        return target


def show_report(report: JobReport, names: Mapping[str, str], *, as_json: bool) -> None:
    """Print the report of a run in one line; ``names`` has the table for each name in the report."""
    if as_json:
        print_json({**attrs.asdict(report), "tables": dict(names)})
        return
    if not report.batches:
        click.echo("nothing new")
        return
    parts = [
        f"{name}: {report.rows.get(key, 0):,} rows in {report.files.get(key, 0):,} files" for key, name in names.items()
    ]
    parts.append(f"{bytes_text(report.size_bytes)} in {duration_text(report.seconds)}, batches: {report.batches}")
    click.echo("; ".join(parts))


def show_plan(plan: ReadPlan, *, as_json: bool) -> None:
    """Print what a run would read."""
    size = "" if plan.log_bytes is None else f", about {bytes_text(plan.log_bytes)} of log"
    facts = {"batches": plan.batches, "log_bytes": plan.log_bytes}
    show_ranges(plan.ranges, as_json=as_json, facts=facts, words=f"{size}, batches: {plan.batches}")
