"""Tells PySpark of the format ``trio_broker_batches``. See ``pyspark_trio_broker`` for why this is all there is."""

from trio_broker.spark.batches_source import TrioBrokerBatchesDataSource as DefaultSource

__all__ = ["DefaultSource"]
