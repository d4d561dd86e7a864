"""Where the controller is, by the claim on the metadata log and the registration of its broker."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.stored.metadata import BrokerEndpoint
from tests.fakes.images import broker_record, image_of
from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import NO_LEADER, EndpointImage
from trio_broker.cluster.metadata_store import LeaderAndEpoch
from trio_broker.cluster.stored_controller_locator import StoredControllerLocator

BROKERS = BrokerEndpoint(name="BROKERS", host="b2", port=9093, security_protocol=0)
CLIENTS = BrokerEndpoint(name="CLIENTS", host="public", port=9092, security_protocol=0)
NOWHERE = BrokerEndpoint(name="BROKERS", host="", port=9093, security_protocol=0)


OWN, ANOTHER = bytes(15) + b"\x01", bytes(15) + b"\x02"


def locator(leader_id: int, *endpoints: BrokerEndpoint, process: bytes = OWN) -> StoredControllerLocator:
    """That of broker 1, of the image in which brokers 1 and 2 have ``endpoints``; ``process`` leads."""
    image = image_of(*(broker_record(each, end_points=list(endpoints)) for each in (1, 2)))
    leader = LeaderAndEpoch(leader_id, 5, process)
    return StoredControllerLocator(1, OWN, lambda: leader, MetadataCache(image), "BROKERS")


def test_it_is_this_broker_or_another_one_at_the_address_for_brokers():
    assert locator(1).controller() is None
    assert locator(2, CLIENTS, BROKERS).controller() == EndpointImage("BROKERS", "b2", 9093, 0)


def test_a_second_process_of_the_controller_s_id_asks_the_first_one():
    there = EndpointImage("BROKERS", "b2", 9093, 0)
    assert locator(1, BROKERS, process=ANOTHER).controller() == there


@pytest.mark.parametrize(
    ("leader_id", "endpoints", "reason"),
    [
        (NO_LEADER, (BROKERS,), "no controller"),
        (3, (BROKERS,), "broker 3 is the controller, and has no address"),
        (2, (CLIENTS,), "broker 2 is the controller, and has no address by listener BROKERS"),
        (2, (NOWHERE,), "has no address"),
    ],
)
def test_without_an_address_there_is_no_controller(leader_id, endpoints, reason):
    with pytest.raises(NotController, match=reason) as raised:
        locator(leader_id, *endpoints).controller()
    assert raised.value.code == ErrorCode.NOT_CONTROLLER
