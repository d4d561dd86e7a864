"""A streaming query as a process that can be killed: a topic goes to another in transactions, without an end.

Arguments: the address of a broker, a topic, the topic to write, a directory. Run as a module, from the root of the
repository.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.session_fixture import start_session


def main(servers: str, source: str, target: str, directory: str) -> None:
    spark = start_session(Path(directory) / f"session-{os.getpid()}")
    query = (
        spark.readStream.format("trio_broker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
        .select("key", "value")
        .writeStream.format("trio_broker")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(Path(directory) / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
