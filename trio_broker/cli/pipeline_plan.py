"""What a dry run shows: the ranges that a pipeline would read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from trio_broker.cli.output import print_json, print_table

if TYPE_CHECKING:
    from trio_broker.spark.ranges import OffsetRange

COLUMNS: Final = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "FROM": "start_offset",
    "TO": "end_offset",
    "OFFSETS": "offsets",
}


def show_ranges(ranges: Sequence[OffsetRange], *, as_json: bool, facts: Mapping[str, Any], words: str) -> None:
    """Print what would be read: as JSON with further ``facts``, or as a table with a line that ends in ``words``."""
    rows: list[dict[str, Any]] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "start_offset": each.start_offset,
            "end_offset": each.end_offset,
            "offsets": each.offset_count,
        }
        for each in ranges
    ]
    if as_json:
        print_json({"dry_run": True, "partitions": rows, **facts})
        return
    print_table(COLUMNS, rows)
    count = sum(each.offset_count for each in ranges)
    click.echo(f"dry run: up to {count:,} records{words}; nothing was written")
