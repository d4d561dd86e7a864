"""Which offsets a job reads, and the tasks that they are cut into.

``offset_planning`` decides about ranges and ``admission`` about micro-batches, both without I/O; ``task_planning`` puts
them together with whoever knows the offsets. ``stream_offsets`` is how a checkpoint has them.
"""
