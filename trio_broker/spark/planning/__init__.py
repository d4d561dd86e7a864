"""The offsets that a job reads.

``offset_planning`` decides about ranges and ``admission`` about micro-batches, both without I/O of their own;
``stream_offsets`` is their form in a checkpoint. ``spark.task_planning`` makes tasks of the ranges.
"""
