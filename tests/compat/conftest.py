"""A real broker as a process, shared by the tests of one file, for clients that were not written here."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.group_members import Crowd
from tests.oracles import absent
from tests.spark.session_fixture import ORACLE_JARS
from trio_broker.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

SPARKS_KAFKA_SOURCE = "spark-sql-kafka-0-10"
"""What the name of its jar begins with."""

LEAKED_SOCKET = "ignore:unclosed <socket:ResourceWarning"
"""kafka-python drops sockets that it was still connecting, to a broker that has gone, without closing them. The broker
is another process here, so whatever socket is left open in this one is a client's."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.compat)
            item.add_marker(pytest.mark.filterwarnings(LEAKED_SOCKET))


@pytest.fixture(autouse=True, scope="module")
def _what_clients_leak_goes_with_their_tests() -> Iterator[None]:
    """Sockets that were left open are collected here, and not while a test of our own sockets runs."""
    yield
    collect_leaks()


def pytest_sessionfinish() -> None:
    """What the very last test still held."""
    collect_leaks()


def collect_leaks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def has_admin() -> bool:
    """Whether ``broker`` has the admin page, a third of a start. A module that uses it has a fixture of this name."""
    return False


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, has_admin: bool) -> Iterator[BrokerProcess]:
    """A running broker with its defaults, the log in page-cache mode so that a slow disk does not decide how long tests
    take."""
    directory = tmp_path_factory.mktemp("broker")
    with BrokerProcess(directory, overrides={"log.durability": "page-cache"}, has_admin=has_admin) as process:
        yield process


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def crowd(broker: BrokerProcess) -> Iterator[Crowd]:
    """Members of groups that live in the test's own process."""
    made = Crowd(broker.bootstrap_servers)
    yield made
    made.leave(*list(made.members))


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker of one's own, with overrides; it is stopped at the end, however the test ends.

    It has no admin page unless ``has_admin`` says so.
    """
    started: list[BrokerProcess] = []

    def start(*, has_admin: bool = False, **overrides: str) -> BrokerProcess:
        settings = {key.replace("_", "."): value for key, value in overrides.items()}
        process = BrokerProcess(tmp_path / f"broker-{len(started)}", overrides=settings, has_admin=has_admin)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(topic_names: Iterator[str]) -> str:
    """The name of a topic that no other test uses."""
    return next(topic_names)


@pytest.fixture(scope="session")
def spark_oracle(request: pytest.FixtureRequest) -> SparkSession:
    """The session of the run, which has Spark's own Kafka source: Spark takes jars only when its JVM starts."""
    if not list(ORACLE_JARS.glob(f"{SPARKS_KAFKA_SOURCE}*.jar")):
        absent("spark", "the jars of Spark's own Kafka source were not fetched")
    session: SparkSession = request.getfixturevalue("spark")
    if SPARKS_KAFKA_SOURCE not in session.sparkContext.getConf().get("spark.jars", ""):
        absent("spark", "the session was started without the jars of Spark's own Kafka source")
    return session
