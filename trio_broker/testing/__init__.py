"""Brokers for tests: real ones, in this very process, in milliseconds.

    from trio_broker.testing import broker_in_thread

    def test_what_is_sent_arrives():
        with broker_in_thread(num_partitions=3) as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

``broker_thread`` holds the broker in a thread, ``process`` one in a process of its own, ``pytest_plugin`` the fixtures.

Nothing is imported until it is asked for: pytest loads the plugin, and with it this package, in every run of everybody
who has the broker installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trio_broker.testing.broker_thread import BrokerThread, broker_in_thread
    from trio_broker.testing.process import BrokerProcess

__all__ = ["BrokerProcess", "BrokerThread", "broker_in_thread"]

_HOMES = {"BrokerProcess": "process", "BrokerThread": "broker_thread", "broker_in_thread": "broker_thread"}


def __getattr__(name: str) -> Any:
    """Import what is asked for from the module that it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
