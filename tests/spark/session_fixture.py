"""The Spark session of the tests: one for the whole run, because its JVM takes longer than most of the tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.java_programs import QUICK_START
from trio_broker.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The whole heap is collected each time the classes' memory outgrows what it begins with, which is little.
JAVA_OPTIONS: Final = " ".join((*QUICK_START, "-XX:MetaspaceSize=192m"))
"""What a JVM of the tests starts with, of Java 17 and later ones."""

ORACLE_JARS: Final = Path(__file__).parent.parent / "compat" / "spark" / "target" / "jars"
"""Spark's own Kafka source, where it was fetched: a JVM has to be given its jars when it starts."""


def start_session(
    directory: Path, *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of this process, started now if it is the first time; its files go to ``directory``."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    chosen = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        # What the reader yields is checked by the JVM, too, which is off by default.
        "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
        # Only used by the test that starts a server of Spark Connect.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        # Tests change checkpoints by hand.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    if jars := sorted(ORACLE_JARS.glob("*.jar")):
        chosen["spark.jars"] = ",".join(str(jar) for jar in jars)
    return spark_session("trio-broker tests", master=master, settings={**chosen, **(settings or {})})
