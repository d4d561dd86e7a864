"""Renders the tables of options as ``docs/spark-options.md``; ``python -m`` this module writes it.

A test compares the page with the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from trio_broker.spark.options.kafka_options import (
    PREFIX,
    READ_OPTIONS,
    REFUSED_IN_READING,
    UNUSED_IN_READING,
)
from trio_broker.spark.options.option import Mode, Option
from trio_broker.spark.options.read_option_table import OPTION_GROUPS
from trio_broker.spark.schema import COLUMNS, SPARK_TYPES

INTRODUCTION: Final = """\
# Options for reading with Spark

This page is written by `python -m trio_broker.spark.options.documentation` from the tables in `trio_broker/spark`.

Names, defaults and meanings are those of Spark's own Kafka source (`spark-sql-kafka-0-10`), so that a job moves by
changing `format("kafka")` to `format("trio_broker")`; the last column says what is different. Names are compared
without regard to case. An unknown option is an error and not ignored: it is most likely misspelt.

## Rules

* Offsets and times are named for all partitions that are read, and for no others.
* A start after its end is an error, also when both are times.
* An offset is where the next record would be read: ends are exclusive. Numbers of offsets are not numbers of records:
  compaction, markers and aborted transactions leave gaps, which are no data loss.
* The offsets of a batch are fixed when its frame is first used. A second action on the same frame reads the same.
* A stream begins where its checkpoint says, as soon as its first micro-batch is planned
  ([its form](formats/spark-offset-log.md)); `starting…` counts for a new one only. Partitions that it finds later begin
  at their earliest offset, which should be 0, or records were deleted before they were seen.
* `maxOffsetsPerTrigger` is shared out in proportion and rounded down, but a partition with anything to give gives at
  least one offset, so a micro-batch may be larger by as many offsets as there are partitions.
* `minPartitions` and `maxRecordsPerPartition` together: first cut for the second, then for the first.
"""

COLUMNS_INTRODUCTION: Final = """\
## Columns

A row has these, `headers` only if asked for. A schema given to the reader may name some of them, in any order; these
are the only types, and none can be `NOT NULL`.
"""

KAFKA_INTRODUCTION: Final = """\
## Options of Kafka's consumer

These begin with `kafka.` and mean what they mean to Kafka.
"""

REFUSED_INTRODUCTION: Final = """\
### Refused

Spark's Kafka source refuses these, too.
"""


def render() -> str:
    """Return the whole page."""
    sections = [INTRODUCTION, COLUMNS_INTRODUCTION + "\n" + _columns()]
    sections += [f"## {title}\n\n{_options(options)}" for title, options in OPTION_GROUPS.items()]
    sections += [KAFKA_INTRODUCTION + "\n" + _options(READ_OPTIONS)]
    sections += [REFUSED_INTRODUCTION + "\n" + _refused(), _without_effect()]
    return "\n".join(sections)


def _columns() -> str:
    return _table(("column", "type"), [(f"`{column}`", f"`{SPARK_TYPES[column]}`") for column in COLUMNS])


def _options(options: Iterable[Option[Any]]) -> str:
    rows = [
        (
            f"`{option.name}`",
            option.form,
            _modes(option),
            option.documented_default(),
            option.meaning,
            option.difference,
        )
        for option in options
    ]
    return _table(("option", "value", "queries", "default", "meaning", "different from Spark's Kafka source"), rows)


def _refused() -> str:
    return _table(("option", "reason"), [(f"`{name}`", reason) for name, reason in sorted(REFUSED_IN_READING.items())])


def _without_effect() -> str:
    names = ", ".join(f"`{name.removeprefix(PREFIX)}`" for name in sorted(UNUSED_IN_READING))
    return (
        "### Without effect\n\nThese are taken with one warning in the log. Other names that begin with"
        f" `{PREFIX}` are errors.\n\nWith `{PREFIX}` before them: {names}.\n"
    )


def _modes(option: Option[Any]) -> str:
    return ", ".join(mode.value for mode in Mode if mode in option.modes)


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n" for cells in lines)


if __name__ == "__main__":
    from pathlib import Path

    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/spark-options.md")
    page.write_text(render(), encoding="utf-8")
