"""One task: a range of one partition, the transport that its bytes come by, and how they are decoded.

A ``ReadTask`` is made in the driver, pickled, and read by a worker, perhaps several times: Spark repeats a task that
failed and may run one twice at once. Reading is therefore a pure function of the task; nothing else decides which rows
it yields.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

import attrs

from trio_broker.spark.chunk import Decoding, Transport
from trio_broker.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class ReadTask:
    """Everything that a worker needs to know."""

    offsets: OffsetRange
    transport: Transport
    decoding: Decoding


def read_task(task: ReadTask) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of ``task`` as Arrow batches of ``task.decoding.columns``.

    Raises:
        SparkJobError: as the transport, or the decoder for what the bytes hold.
    """
    from trio_broker.spark.decoder import decode

    with closing(task.transport.chunks(task.offsets)) as chunks:
        yield from decode(chunks, task.offsets, task.decoding)
