"""The pytest plugin: a real broker as a fixture, without Java, containers, or ports that collide.

    def test_what_is_sent_arrives(kafka_broker):
        producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)

    @pytest.mark.kafka_broker(num_partitions=3, auto_create_topics_enable=False)
    def test_with_settings(kafka_broker): ...

    @pytest.mark.kafka_broker(security="scram+tls")  # or "tls", "mtls", "scram"
    def test_with_tls_and_a_login(kafka_broker):
        producer = KafkaProducer(**kafka_broker.client_settings.kafka_python)

==================================  =================================================================================
fixture                             what it is
==================================  =================================================================================
``kafka_broker``                    a new broker for each test; settings from the marker of the same name
``kafka_broker_factory``            a function that starts further brokers, with settings as keyword arguments
``kafka_broker_session``            one broker for the whole run, for tests that use topics with different names
``kafka_broker_session_settings``   its settings, none by default; a ``conftest.py`` may override this fixture
``kafka_cluster``                   a new cluster of three brokers for each test, or as its marker says, whose brokers
                                    are killed, restarted and cut off from each other
==================================  =================================================================================

The brokers are of the class ``trio_broker.testing.BrokerThread``, with ``bootstrap_servers``, ``create_topic``,
``client_settings``, ``advance_clock`` and more; a cluster is a ``trio_broker.testing.ClusterThread``.

The plugin is registered as an entry point, so every pytest run imports this file wherever the broker is installed. The
file therefore imports nothing but pytest until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trio_broker.testing.broker_thread import BrokerThread
    from trio_broker.testing.cluster_thread import ClusterThread

CLUSTER_MARKER = (
    "kafka_cluster(brokers=3, racks=(), **settings): brokers of the test's kafka_cluster, and their settings"
)
MARKER = (
    "kafka_broker(security=None, **settings): how clients reach the test's kafka_broker, None, tls, mtls, scram or"
    " scram+tls, and its settings, Kafka's keys with _ for the dots"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", CLUSTER_MARKER)


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    """A new broker for this test. For each key, the ``kafka_broker`` marker nearest to the test counts."""
    from trio_broker.testing.broker_thread import broker_in_thread

    with broker_in_thread(**settings_of(request, "kafka_broker")) as broker:
        yield broker


def settings_of(request: pytest.FixtureRequest, marker_name: str) -> dict[str, Any]:
    """The keyword arguments of a test's markers of one name."""
    settings: dict[str, Any] = {}
    for marker in request.node.iter_markers(marker_name):
        # ``iter_markers`` begins with the nearest marker, so keys that are set already stay.
        settings = {**marker.kwargs, **settings}
    return settings


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[ClusterThread]:
    """A new cluster for this test. For each key, the ``kafka_cluster`` marker nearest to the test counts."""
    from trio_broker.testing.cluster_thread import cluster_in_thread

    with cluster_in_thread(**settings_of(request, "kafka_cluster")) as cluster:
        yield cluster


@pytest.fixture
def kafka_broker_factory() -> Iterator[Callable[..., BrokerThread]]:
    """A function that starts brokers with settings of their own. They are stopped at the end of the test."""
    from trio_broker.testing.broker_thread import broker_in_thread

    with ExitStack() as brokers:

        def start(**settings: Any) -> BrokerThread:
            return brokers.enter_context(broker_in_thread(**settings))

        yield start


@pytest.fixture(scope="session")
def kafka_broker_session_settings() -> Mapping[str, Any]:
    """The settings of ``kafka_broker_session``: none, unless a ``conftest.py`` overrides this fixture."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker_session(kafka_broker_session_settings: Mapping[str, Any]) -> Iterator[BrokerThread]:
    """One broker for the whole run."""
    from trio_broker.testing.broker_thread import broker_in_thread

    with broker_in_thread(**kafka_broker_session_settings) as broker:
        yield broker
