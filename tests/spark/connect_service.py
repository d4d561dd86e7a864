"""A server of Spark Connect in the JVM of a session; as a program, in a process of its own that a test can kill.

Argument: a directory. Prints the address of the server, and runs until its standard input ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.session_fixture import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def connect_service(spark: SparkSession) -> Iterator[str]:
    """The address of a server of Spark Connect that runs in the JVM of ``spark`` for the time of the block."""
    jvm: Any = spark._jvm
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


def main(directory: str) -> None:
    with connect_service(start_session(Path(directory))) as address:
        print(address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
