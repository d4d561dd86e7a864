"""BrokerHeartbeat: a broker is fenced until it has read its registration, and later does what the answers say."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from tests.handlers.second_broker import LOG_DIR, NODE_ID


async def test_a_broker_is_unfenced_when_it_has_read_its_registration(second_broker):
    await second_broker.register()
    behind = await second_broker.beat(current_metadata_offset=0)
    assert (behind.error_code, behind.is_caught_up, behind.is_fenced) == (0, False, True)
    caught_up = await second_broker.beat()
    assert (caught_up.is_caught_up, caught_up.is_fenced, caught_up.should_shut_down) == (True, False, False)
    assert not second_broker.wire.services.metadata_cache.image.brokers[NODE_ID].fenced


async def test_a_broker_without_partitions_may_stop_at_once(second_broker):
    await second_broker.register()
    await second_broker.beat()
    assert (await second_broker.beat(want_shut_down=True)).should_shut_down


async def test_an_earlier_life_of_the_broker_is_refused(second_broker):
    await second_broker.register()
    second_broker.broker_epoch -= 1
    assert (await second_broker.beat()).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_failed_directory_is_taken_out_of_the_registration(second_broker):
    other = b"\x08" * 16
    response = await second_broker.wire.ask(second_broker.registration(log_dirs=[LOG_DIR, other]), 4)
    second_broker.broker_epoch = response.broker_epoch
    await second_broker.beat()
    await second_broker.beat(offline_log_dirs=[LOG_DIR])
    assert second_broker.wire.services.metadata_cache.image.brokers[NODE_ID].log_dirs == (other,)
