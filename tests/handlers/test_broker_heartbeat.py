"""BrokerHeartbeat."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from tests.handlers.brokers_client import SECOND, BrokersClient
from tests.handlers.two_brokers import FROM_BROKER, HERE, Locator, Peers, in_cluster


@pytest.fixture
def locator():
    return Locator(HERE)


@pytest.fixture
def controller(wire, locator):
    return in_cluster(wire, locator, Peers(), FROM_BROKER)


@pytest.fixture
async def second(controller):
    client = BrokersClient(controller)
    await client.register()
    return client


async def test_a_broker_serves_once_it_has_read_its_registration(second, controller):
    waiting = await second.beat(current_metadata_offset=second.epoch - 1)
    assert (waiting.is_caught_up, waiting.is_fenced, waiting.should_shut_down) == (False, True, False)
    served = await second.beat()
    assert (served.is_caught_up, served.is_fenced, served.should_shut_down) == (True, False, False)
    assert controller.services.metadata_cache.image.brokers[SECOND].is_active


async def test_a_broker_that_leads_nothing_may_end_at_once(second, controller):
    await second.beat()
    ended = await second.beat(want_shut_down=True)
    assert (ended.is_fenced, ended.should_shut_down) == (True, True)
    assert controller.services.metadata_cache.image.brokers[SECOND].fenced


async def test_a_failed_directory_is_taken_out_of_the_registration(controller):
    client = BrokersClient(controller)
    directories = [bytes(14) + b"\x01" + bytes([number]) for number in (2, 3)]
    await client.register(log_dirs=directories)
    await client.beat()
    await client.beat(offline_log_dirs=directories[:1])
    assert controller.services.metadata_cache.image.brokers[SECOND].log_dirs == tuple(directories[1:])


async def test_a_broker_of_an_earlier_life_is_stale(second):
    assert (await second.beat(broker_epoch=second.epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert (await second.beat(broker_id=9)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_only_the_controller_answers(second, locator):
    locator.controller_name = "another"
    assert (await second.beat()).error_code == ErrorCode.NOT_CONTROLLER
