"""Fixtures that tests of several folders share, and how many examples a property test takes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import fork_server
from tests.in_memory import directory_in_memory
from tests.java_programs import Java, compiled_java
from tests.oracles import required_oracles
from tests.waits import scaled
from trio_broker.testing import process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Images of containers often forbid to write bytecode. Each broker, command and worker of Spark, of which a run starts
# hundreds, would compile all modules again, which takes a third of its start; so would pytest with the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Modules and what pytest makes of their tests leave no garbage, and are several hundred thousand objects.
gc.disable()

# The default run takes the same examples each time, so that it fails for the change at hand and nothing else. The
# nightly run (--hypothesis-profile=nightly) draws others each time, and a failure prints how to take the same again.
settings.register_profile(
    "default",
    max_examples=15,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", settings.get_profile("default"))
settings.register_profile(
    "nightly", settings.get_profile("default"), max_examples=1000, derandomize=False, print_blob=True
)
settings.load_profile("default")


def pytest_configure() -> None:
    try:
        required_oracles()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what was collected out of what the garbage collector searches while the tests run: it stays anyway.

    Else each full collection would search all of it, and many tests ask for one.
    """
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


process.launch = fork_server.launch

START_SECONDS, STOP_SECONDS = process.START_SECONDS, process.STOP_SECONDS
"""Of a process with a broker, on a quiet machine."""


@pytest.fixture(scope="module", autouse=True)
def _scaled_start_and_stop_of_brokers() -> None:
    """Let brokers that tests start and stop take as long as the machine's speed now asks for."""
    process.START_SECONDS = scaled(START_SECONDS)
    process.STOP_SECONDS = scaled(STOP_SECONDS)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory of the test's own in memory, or on the disk where the machine has none there.

    For tests that open logs for each of many cases, which otherwise wait for the disk most of the time. Not for tests
    of a broker that sends from files: for a file in memory Linux does not say whether a read would wait (RWF_NOWAIT),
    so that each send would go through a thread.
    """
    with directory_in_memory() as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def java() -> Java:
    """Java programs with Kafka's own code."""
    return compiled_java()


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run. Mark what uses it ``@pytest.mark.spark``."""
    from tests.spark.session_fixture import start_session

    has_one_session = "not soak" in pytestconfig.option.markexpr
    session = start_session(tmp_path_factory.mktemp("spark"), may_make_archive=not has_one_session)
    yield session
    session.stop()
