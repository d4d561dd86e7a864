"""Spark on Kafka's logs: a data source for batches and streams, a sink, and pipelines built on them.

    spark.read.format("trio_broker").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders")

PySpark finds the format by itself where this package is installed with its extra ``spark``. Options, schema and
defaults are those of Spark's own Kafka source.

Reading starts at ``source``: the driver makes a plan and cuts it into tasks (``tasks.ReadTask``). Every task is a pure
function of its plan: ``tasks.read_task`` takes raw batches from a transport (``wire`` or ``files``) and passes them to
the ``decoder``. The pipelines use the same function without Spark's rows in between.

Nothing here imports an event loop, or anything of the broker but its file formats. Nothing heavy is imported before it
is needed, because Spark imports every data source that it finds to ask for its name.
"""
