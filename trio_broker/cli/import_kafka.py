"""``trio-broker import-kafka``: makes the data directories of a stopped Kafka ours."""

from __future__ import annotations

from pathlib import Path

import click

from trio_broker.cli.failure import fail


@click.command("import-kafka")
@click.argument("data_directories", metavar="DATA_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
def import_kafka(data_directories: tuple[Path, ...]) -> None:
    """Take over, in place, all directories that a stopped Kafka of one node has in log.dirs and metadata.log.dir."""
    from trio_broker.cluster.kafka_handover import HandoverRefused
    from trio_broker.cluster.kafka_import import import_from_kafka
    from trio_broker.runtime.clock import SystemClock
    from trio_broker.runtime.real_disk import RealDisk

    if len(set(data_directories)) != len(data_directories):
        raise click.UsageError("name no directory twice")
    try:
        done = import_from_kafka(RealDisk(), data_directories, SystemClock().now_ms())
    except (HandoverRefused, OSError) as error:
        fail(str(error))
    log_dirs = ",".join(map(str, done.log_dirs))
    click.echo(f"{done.topics} topics with {done.partitions} partitions of cluster {done.cluster_id} are taken over")
    click.echo(f"start trio-broker with node.id={done.node_id} and log.dirs={log_dirs}")
    click.echo(f"or give them back to Kafka by removing {done.snapshot}")
