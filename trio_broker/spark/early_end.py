"""The end of a worker whose rows Spark does not want any more, without the traceback that PySpark would print.

``show``, ``limit``, ``take`` and ``head`` end their tasks as soon as they have enough rows: the JVM closes the
connection to the worker, which notices at its next write. PySpark then gives the worker up: it closes the generator of
the rows, tries to write what is left in its buffer, prints the traceback of the ``BrokenPipeError`` that this raises,
and ends the process. That happens with every source and function in Python, and looks like a failed query.

So a reader ends the process by itself when its generator is closed after such an error. Nothing is lost: the process
would only have tried one more write to a closed connection. When the generator is closed for another reason, PySpark
has an error to report, and the process goes on. Where the JVM closes the connection after the last row, while PySpark
sends its own last bytes, the traceback stays: no code of a reader runs then, nor in the processes that plan.

Source: pyspark.worker and pyspark.daemon; ``spark.python.daemon.killWorkerOnFlushFailure``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trio_broker.spark.worker_memory import is_worker

CLOSED_BY_THE_JVM: Final = (BrokenPipeError, ConnectionResetError)


@contextmanager
def ending_quietly() -> Iterator[None]:
    """End this process if the block, which yields rows, is closed because the JVM reads no more of them."""
    try:
        yield
    except GeneratorExit as closed:
        # The error that PySpark is handling while it closes the generator.
        if isinstance(closed.__context__, CLOSED_BY_THE_JVM) and is_worker():
            os._exit(0)
        raise
