"""Writing: Arrow batches in, records in a cluster's logs out, each of them once for as long as the task lives.

``record_writer.RecordWriter`` is what the sink and the pipelines use. It takes the columns of an Arrow batch
(``row_columns``), gives each row a partition (``partitioner``), gathers the rows of each partition to record batches
(``record_encoder``, with ``jit_encoder`` where numba is there), and has the client's ``BatchProducer`` deliver them.
``row_ids`` marks records so that consumers can drop what a repeated task wrote twice.

Nothing is imported before it is used: settings and row ids are for drivers and consumers without Arrow.
"""
