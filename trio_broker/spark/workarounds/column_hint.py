"""A line in the log about a large scan that reads all columns, with the options that name fewer.

Spark does not tell a Python source which columns a query uses, so the reader cannot leave out the others by itself, nor
know whether the query needs them all. The line is logged once in an application, and not where the user chose the
columns by the option ``columns``.

PySpark plans each frame in a process of its own, so that the line was logged is noted by an empty file among those of
the application that Spark removes at its end.

Source: pyspark.sql.worker.plan_data_source_read; docs/spark.md.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import attrs

from trio_broker.spark.schema import HEADERS, default_columns
from trio_broker.spark.workarounds.switch import are_workarounds_on

log = logging.getLogger(__name__)

MIN_OFFSETS: Final = 1_000_000
"""A scan of fewer records takes about a second with any columns."""

SPARK_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
"""The environment variable with the directories, separated by commas, that Spark removes when the application ends."""

MARKER: Final = "trio-broker-column-hint"


@attrs.define
class ColumnHint:
    """What a reader reads. ``are_chosen`` says that the user named the columns, and nothing is to be logged."""

    columns: tuple[str, ...]
    are_chosen: bool
    _offsets: int = 0

    def count(self, offsets: int) -> None:
        """Add the offsets of a plan, and log the line when there are many."""
        self._offsets += offsets
        if self.are_chosen or set(self.columns) < set(default_columns(HEADERS in self.columns)):
            return
        if self._offsets >= MIN_OFFSETS and are_workarounds_on() and is_first_time():
            log.warning(
                "%s records are read with all %d columns, since Spark does not tell a Python source which ones a query"
                " uses; naming those that it uses makes reading faster: .option('columns', 'value,offset'), or"
                " .schema('value binary, offset bigint')",
                f"{self._offsets:,}",
                len(self.columns),
            )
            self.are_chosen = True


def is_first_time() -> bool:
    """Whether no process of this application has called this before; True each time where that cannot be noted."""
    directory = os.environ.get(SPARK_LOCAL_DIRS, "").partition(",")[0]
    if not directory:
        return True
    try:
        Path(directory, MARKER).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
