"""The clients of other brokers are found by their ids."""

from __future__ import annotations

import pytest

from tests.fakes.followed_metadata import registered
from tests.fakes.images import image_of
from trio_broker.cluster.broker_clients import BrokerClients
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.network.errors import RequestNotSent
from trio_broker.network.network_clients import NetworkClients
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime


@pytest.fixture
def brokers() -> BrokerClients:
    clients = NetworkClients(real_runtime(ManualClock()).network, "broker-1")
    return BrokerClients(MetadataCache(image_of(registered(2, 9093))), clients, "PLAINTEXT")


def test_a_broker_has_the_client_of_its_address(brokers):
    assert str(brokers.client(2)) == "broker-2.test:9093"
    assert brokers.client(2) is brokers.client(2)


def test_a_broker_that_has_moved_has_another_client(brokers):
    before = brokers.client(2)
    brokers.metadata_cache.set_image(image_of(registered(2, 9094)))
    assert (brokers.client(2) is before, str(brokers.client(2))) == (False, "broker-2.test:9094")


@pytest.mark.parametrize(
    "record", [registered(3, 1), registered(2, 1, fenced=True), registered(2, 1, listener="CLIENTS")]
)
def test_a_broker_that_cannot_be_reached_has_none(brokers, record):
    brokers.metadata_cache.set_image(image_of(record))
    with pytest.raises(RequestNotSent, match="broker 2 is not there, or has no address by listener PLAINTEXT"):
        brokers.client(2)
