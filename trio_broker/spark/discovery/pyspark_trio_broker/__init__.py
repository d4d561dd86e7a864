"""Tells PySpark of the format ``trio_broker``.

PySpark imports every top-level module named ``pyspark_…`` and takes its ``DefaultSource`` for a data source; there can
be one in a module. It does so unguarded, and for every format that it does not know: an error in here would keep other
people's sources from being found, and a slow import would slow down theirs.
"""

from trio_broker.spark.source import TrioBrokerDataSource as DefaultSource

__all__ = ["DefaultSource"]
