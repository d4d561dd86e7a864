"""Registers the format ``trio_broker`` with PySpark.

PySpark imports every top-level module named ``pyspark_…`` and takes its ``DefaultSource`` for a data source, one for
each module. It catches no errors, and does so for every format that it does not know: an error in here would hide the
sources of other packages, and a slow import would slow them down.
"""

from trio_broker.spark.source import TrioBrokerDataSource as DefaultSource

__all__ = ["DefaultSource"]
