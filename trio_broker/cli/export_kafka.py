"""``trio-broker export-kafka``: makes of data directories such that Kafka starts on them."""

from __future__ import annotations

from pathlib import Path

import click

from trio_broker.cli.failure import fail


@click.command("export-kafka")
@click.argument("paths", metavar="DATA_DIR TARGET [DATA_DIR TARGET]...", nargs=-1, type=click.Path(path_type=Path))
def export_kafka(paths: tuple[Path, ...]) -> None:
    """Copy each DATA_DIR, which a stopped broker left, to the TARGET behind it, in the form that Kafka 4 starts on."""
    from trio_broker.cluster.kafka_export import export_to_kafka
    from trio_broker.cluster.kafka_handover import HandoverRefused
    from trio_broker.runtime.clock import SystemClock
    from trio_broker.runtime.real_disk import RealDisk

    sources, targets = paths[::2], paths[1::2]
    if not paths or len(sources) != len(targets) or len(set(paths)) != len(paths):
        raise click.UsageError("name a TARGET behind each DATA_DIR, no directory twice")
    try:
        done = export_to_kafka(RealDisk(), dict(zip(sources, targets, strict=True)), SystemClock().now_ms())
    except (HandoverRefused, OSError) as error:
        fail(str(error))
    log_dirs = ",".join(map(str, done.log_dirs))
    click.echo(f"{done.topics} topics with {done.partitions} partitions of cluster {done.cluster_id} are in {log_dirs}")
    click.echo(f"start Kafka with process.roles=broker,controller, node.id={done.node_id} and log.dirs={log_dirs}")
