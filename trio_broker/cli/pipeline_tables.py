"""What the pipelines that fill tables have in common: options that say which table, and the report at the end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from trio_broker.cli.assignments import key_value
from trio_broker.cli.output import print_json
from trio_broker.cli.pipeline_plan import show_ranges

if TYPE_CHECKING:
    from trio_broker.spark.pipelines.dry_run import ReadPlan
    from trio_broker.spark.pipelines.micro_batches import JobReport, Trigger
    from trio_broker.spark.tables.table_writer import FileSettings
    from trio_broker.spark.tables.target import IcebergCatalog

DEFAULT_TARGET_MIB: Final = 128
DEFAULT_BATCH_RECORDS: Final = 10_000_000
CODECS: Final = ("snappy", "zstd", "none")

Command = Callable[..., None]


@attrs.frozen
class TableOptions:
    """The options of a table, as they were given; what they mean is told by the job's own modules."""

    codec: str
    target_mib: int
    batch_records: int
    interval_seconds: float | None
    checkpoint: Path | None
    warehouse: Path | None
    catalog: str | None
    catalog_properties: Mapping[str, str]

    @property
    def files(self) -> FileSettings:
        """How files are written."""
        from trio_broker.spark.tables.table_writer import FileSettings, ParquetCodec

        return FileSettings(ParquetCodec(self.codec), self.target_mib * 1024 * 1024)

    @property
    def trigger(self) -> Trigger:
        """How much is read at a time, and whether the job waits for more."""
        from trio_broker.spark.pipelines.micro_batches import Trigger

        return Trigger(self.batch_records, self.interval_seconds)

    @property
    def iceberg_catalog(self) -> IcebergCatalog | None:
        """Where an Iceberg table is found, if that is said.

        Raises:
            click.UsageError: it is said twice.
        """
        from trio_broker.spark.tables.target import LOCAL_CATALOG, IcebergCatalog

        if self.warehouse is not None and self.catalog is not None:
            raise click.UsageError("say where the Iceberg catalog is: --warehouse or --catalog")
        if self.warehouse is None and self.catalog is None:
            return None
        return IcebergCatalog(self.catalog or LOCAL_CATALOG, self.catalog_properties, self.warehouse)


def writes_tables(command: Command) -> Command:
    """Give a command the options of the tables it writes, as ``table_options``."""

    @click.option(
        "--codec", type=click.Choice(CODECS), default=CODECS[0], show_default=True, help="How pages are compressed."
    )
    @click.option(
        "--target-file-size",
        "target_mib",
        type=click.IntRange(min=1, max=1 << 14),
        default=DEFAULT_TARGET_MIB,
        show_default=True,
        metavar="MIB",
        help="A file about so large is closed, and the next begun.",
    )
    @click.option(
        "--batch-records",
        type=click.IntRange(min=1),
        default=DEFAULT_BATCH_RECORDS,
        show_default=True,
        metavar="COUNT",
        help="Records that are committed at a time.",
    )
    @click.option(
        "--available-now/--continuous",
        default=True,
        show_default=True,
        help="End where the topics end now, or wait for more.",
    )
    @click.option(
        "--interval",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="With --continuous: how often to look.",
    )
    @click.option(
        "--checkpoint",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the job notes what it did.  [default: in the table's directory]",
    )
    @click.option(
        "--warehouse",
        type=click.Path(file_okay=False, path_type=Path),
        help="Iceberg: a directory for tables, with a catalog of its own.",
    )
    @click.option("--catalog", metavar="NAME", help="Iceberg: a catalog that pyiceberg is configured for.")
    @click.option(
        "--catalog-property",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="Iceberg: a property of the catalog; may be repeated.",
    )
    @functools.wraps(command)
    def run(
        *arguments: Any,
        codec: str,
        target_mib: int,
        batch_records: int,
        available_now: bool,
        interval: float,
        checkpoint: Path | None,
        warehouse: Path | None,
        catalog: str | None,
        catalog_property: tuple[tuple[str, str], ...],
        **options: Any,
    ) -> None:
        interval_seconds = None if available_now else interval
        table_options = TableOptions(
            codec, target_mib, batch_records, interval_seconds, checkpoint, warehouse, catalog, dict(catalog_property)
        )
        command(*arguments, table_options=table_options, **options)

    return run


def show_report(report: JobReport, names: Mapping[str, str], *, as_json: bool) -> None:
    """Print in one line what a run did; ``names`` has the table of each name in the report."""
    from trio_broker.spark.pipelines.progress import short_bytes, short_duration

    if as_json:
        print_json({**attrs.asdict(report), "tables": dict(names)})
        return
    if not report.batches:
        click.echo("nothing new")
        return
    parts = [
        f"{name}: {report.rows.get(key, 0):,} rows in {report.files.get(key, 0):,} files" for key, name in names.items()
    ]
    parts.append(f"{short_bytes(report.size_bytes)} in {short_duration(report.seconds)}, batches: {report.batches}")
    click.echo("; ".join(parts))


def show_plan(plan: ReadPlan, *, as_json: bool) -> None:
    """Print what a run would read."""
    from trio_broker.spark.pipelines.progress import short_bytes

    size = "" if plan.log_bytes is None else f", about {short_bytes(plan.log_bytes)} of log"
    facts = {"batches": plan.batches, "log_bytes": plan.log_bytes}
    show_ranges(plan.ranges, as_json=as_json, facts=facts, words=f"{size}, batches: {plan.batches}")
