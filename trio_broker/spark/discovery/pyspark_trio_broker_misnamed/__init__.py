"""Registers the name ``trio-broker`` with PySpark, for an error with the right one. See ``pyspark_trio_broker`` for why
nothing else is here."""

from trio_broker.spark.misnamed_source import MisnamedDataSource as DefaultSource

__all__ = ["DefaultSource"]
