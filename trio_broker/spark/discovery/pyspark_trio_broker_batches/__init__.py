"""Registers the format ``trio_broker_batches`` with PySpark. See ``pyspark_trio_broker`` for why nothing else is
here."""

from trio_broker.spark.batches_source import TrioBrokerBatchesDataSource as DefaultSource

__all__ = ["DefaultSource"]
