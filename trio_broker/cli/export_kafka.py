"""``trio-broker export-kafka``: makes of a data directory one that Kafka starts on."""

from __future__ import annotations

from pathlib import Path

import click

from trio_broker.cli.failure import fail


@click.command("export-kafka")
@click.argument("data_directory", metavar="DATA_DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
def export_kafka(data_directory: Path, target: Path) -> None:
    """Copy DATA_DIR, which a stopped broker left, to TARGET, in the form that Kafka 4 starts on."""
    from trio_broker.cluster.kafka_export import ExportRefused, export_to_kafka
    from trio_broker.runtime.clock import SystemClock
    from trio_broker.runtime.real_disk import RealDisk

    try:
        done = export_to_kafka(RealDisk(), data_directory, target, SystemClock().now_ms())
    except (ExportRefused, OSError) as error:
        fail(str(error))
    click.echo(f"{done.topics} topics with {done.partitions} partitions of cluster {done.cluster_id} are in {target}")
    click.echo(f"start Kafka with process.roles=broker,controller, node.id={done.node_id} and log.dirs={target}")
