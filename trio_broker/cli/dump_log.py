"""``trio-broker dump-log``: prints the contents of the files of a data directory, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from trio_broker.cli.failure import fail
from trio_broker.cli.output import let_everything_be_printed
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

DECODERS: Final = {
    "--offsets-decoder": CONSUMER_OFFSETS_TOPIC,
    "--transaction-log-decoder": TRANSACTION_STATE_TOPIC,
    "--cluster-metadata-decoder": CLUSTER_METADATA_TOPIC,
}
"""Kafka's options that say whose records a file has, and the topic that each of them stands for."""


def decoder_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``DECODERS``, of which the last one counts, as the argument ``topic``."""
    for option, topic in reversed(DECODERS.items()):
        text = f"Decode the records as those of {topic}, wherever the file lies; implies --records."
        command = click.option(option, "topic", flag_value=topic, default=None, help=text)(command)
    return command


@click.command("dump-log")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--deep", is_flag=True, help="List every record of every batch.")
@click.option("--records", is_flag=True, help="Print the keys and values of the records too; implies --deep.")
@decoder_options
def dump_log(paths: tuple[Path, ...], deep: bool, records: bool, topic: str | None) -> None:
    """Print the contents of segments (.log), indexes, producer snapshots and checkpoints, or of a whole directory."""
    from trio_broker.runtime.real_disk import RealDisk
    from trio_broker.storage.dump import dump

    let_everything_be_printed()
    disk = RealDisk()
    for path in paths:
        lines = dump(disk, path, deep=deep, print_records=records or topic is not None, topic=topic)
        for line in _without_failures(lines):
            click.echo(line)


def _without_failures(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines; a failure to read the files ends the command. One to print them is click's to handle: where a
    reader such as ``head`` has enough, it ends the command without a word."""
    try:
        yield from lines
    except (OSError, ValueError) as error:
        fail(str(error))
