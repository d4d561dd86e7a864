"""Errors of the rows that are to be written."""

from __future__ import annotations

from trio_broker.spark.errors import SparkJobError


class UnwritableRow(SparkJobError):
    """A row or its columns cannot become a record: a column is missing, of a wrong type, or has an impossible value."""
