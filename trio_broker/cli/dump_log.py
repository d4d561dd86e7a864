"""``trio-broker dump-log``: prints the contents of the files of a data directory, without a broker."""

from __future__ import annotations

from pathlib import Path

import click

from trio_broker.cli.failure import fail


@click.command("dump-log")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--deep", is_flag=True, help="List every record of every batch.")
@click.option("--records", is_flag=True, help="Print the keys and values of the records too; implies --deep.")
def dump_log(paths: tuple[Path, ...], deep: bool, records: bool) -> None:
    """Print the contents of segments (.log), indexes, producer snapshots and checkpoints, or of a whole directory."""
    from trio_broker.runtime.real_disk import RealDisk
    from trio_broker.storage.dump import dump

    disk = RealDisk()

    for path in paths:
        try:
            for line in dump(disk, path, deep=deep, print_records=records):
                click.echo(line)
        except (OSError, ValueError) as error:
            fail(str(error))
