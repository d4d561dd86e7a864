"""Spark reads the logs: a data source for batches and streams, a sink, and the pipelines built on them.

    spark.read.format("trio_broker").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders")

PySpark finds the format by itself where this package is installed with its extra ``spark``. Options, schema and
defaults are those of Spark's own Kafka source.

Start reading at ``source``: it makes a plan in the driver, cut into tasks (``tasks.ReadTask``), and every task is one
pure function of its plan: ``tasks.read_task`` takes raw batches from a transport (``wire`` or ``files``) and gives them
to the ``decoder``. The pipelines use the same function without Spark's rows in between.

Nothing here imports an event loop, or anything of the broker but its file formats; nothing heavy is imported before it
is needed, because Spark imports every data source that it finds in order to ask for its name.
"""
