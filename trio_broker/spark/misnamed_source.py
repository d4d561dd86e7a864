"""The format ``trio-broker``, which is the name of the package: an error that says how the format is called.

Without it Spark answers with some hundred lines that name nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.job_errors import without_traceback
from trio_broker.spark.source import FORMAT

MISNAMED: Final = "trio-broker"


class MisnamedDataSource(DataSource):
    """A source that cannot be made."""

    @without_traceback
    def __init__(self, options: dict[str, str]) -> None:
        """Refuse.

        Raises:
            SparkJobError: always.
        """
        raise SparkJobError(f"the format is called {FORMAT!r}, with an underscore, not {MISNAMED!r}")

    @classmethod
    def name(cls) -> str:
        return MISNAMED
