"""The end of a process whose answers Spark does not want any more, without the traceback that PySpark would print.

``show``, ``limit``, ``take`` and ``head`` end their tasks as soon as they have enough rows: the JVM closes the
connection to the worker, which notices at its next write. PySpark then gives the worker up: it closes the generator of
the rows, tries to write what is left in its buffer, prints the traceback of the ``BrokenPipeError`` that this raises,
and ends the process. That happens with every source and function in Python, and looks like a failed query.

So a reader ends the process by itself when its generator is closed after such an error. Nothing is lost: the process
would only have tried one more write to a closed connection. When the generator is closed for another reason, PySpark
has an error to report, and the process goes on. Where the JVM closes the connection after the last row, while PySpark
sends its own last bytes, the traceback stays: no code of a reader runs then, nor in the processes that plan a batch.

The process that plans a stream waits for the next call until the query ends, which it learns by the end of what it
reads. PySpark takes that for an error and tries to report it, to nobody: over a Unix domain socket every query ended
with a traceback. Before that it stops the reader, which is when the process ends here.

Source: pyspark.worker, pyspark.daemon and pyspark.sql.streaming.python_streaming_source_runner;
``spark.python.daemon.killWorkerOnFlushFailure``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trio_broker.spark.workarounds.switch import are_workarounds_on
from trio_broker.spark.workarounds.worker_memory import STREAM_PLANNER, is_worker, main_module

CLOSED_BY_THE_JVM: Final = (BrokenPipeError, ConnectionResetError)


@contextmanager
def ending_quietly() -> Iterator[None]:
    """End this process if the block, which yields rows, is closed because the JVM reads no more of them."""
    try:
        yield
    except GeneratorExit as closed:
        # The error that PySpark is handling while it closes the generator.
        if isinstance(closed.__context__, CLOSED_BY_THE_JVM) and is_worker() and are_workarounds_on():
            os._exit(0)
        raise


def end_with_the_query() -> None:
    """End this process if it plans a stream, and stops because the JVM calls it no more."""
    if isinstance(sys.exc_info()[1], EOFError) and main_module() == STREAM_PLANNER and are_workarounds_on():
        os._exit(0)
