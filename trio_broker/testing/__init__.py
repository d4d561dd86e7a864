"""Real brokers for tests. They run in the test's own process and start in milliseconds.

    from trio_broker.testing import broker_in_thread

    def test_what_is_sent_arrives():
        with broker_in_thread(num_partitions=3) as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

``broker_thread`` has a broker in a thread, ``cluster_thread`` several, ``process`` one in a process of its own,
``pytest_plugin`` the fixtures.

The modules are imported on first use only. Pytest loads the plugin, and with it this package, in every run wherever the
broker is installed, also for tests that need no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trio_broker.testing.broker_thread import BrokerThread, broker_in_thread
    from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread
    from trio_broker.testing.process import BrokerProcess

__all__ = ["BrokerProcess", "BrokerThread", "ClusterThread", "broker_in_thread", "cluster_in_thread"]

_HOMES = {
    "BrokerProcess": "process",
    "BrokerThread": "broker_thread",
    "ClusterThread": "cluster_thread",
    "broker_in_thread": "broker_thread",
    "cluster_in_thread": "cluster_thread",
}


def __getattr__(name: str) -> Any:
    """Import a name from its module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
