"""Sessions of brokers by the clock, and the state that a heartbeat leads to."""

from __future__ import annotations

import attrs
import pytest

from tests.fakes.clusters import cluster_image
from trio_broker.cluster.broker_heartbeat_manager import BrokerControlState, BrokerHeartbeat, BrokerHeartbeatManager

FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerControlState

TIMEOUT_SECONDS = 9.0


def heartbeat(broker_id, offset=100, **wants):
    return BrokerHeartbeat(broker_id=broker_id, broker_epoch=10 * broker_id, current_metadata_offset=offset, **wants)


def changed(image, broker_id, **fields):
    brokers = {**image.brokers, broker_id: attrs.evolve(image.brokers[broker_id], **fields)}
    return attrs.evolve(image, brokers=brokers)


@pytest.fixture
def image():
    return cluster_image([1, 2, 3])


@pytest.fixture
def sessions(image):
    made = BrokerHeartbeatManager(TIMEOUT_SECONDS)
    made.begin(image, now=0.0)
    return made


def test_a_session_lasts_for_its_timeout_from_the_last_contact(sessions):
    assert sessions.has_valid_session(1, now=9.0)
    assert not sessions.has_valid_session(1, now=9.1)
    sessions.touch(heartbeat(1), now=5.0)
    assert sessions.has_valid_session(1, now=14.0)
    assert not sessions.has_valid_session(1, now=14.1)


def test_a_broker_that_is_fenced_unknown_or_asked_to_stop_has_no_session(image):
    sessions = BrokerHeartbeatManager(TIMEOUT_SECONDS)
    sessions.begin(changed(image, 2, fenced=True), now=0.0)
    assert [sessions.has_valid_session(each, now=0.0) for each in (1, 2, 3, 4)] == [True, False, True, False]
    sessions.end(1)
    assert not sessions.has_valid_session(1, now=0.0)


def test_a_fenced_broker_in_contact_has_a_session(sessions):
    """No other process may take the id of one that is about to begin."""
    sessions.register(4, 40, now=1.0)
    assert sessions.has_valid_session(4, now=10.0)


def test_stale_brokers_come_one_after_the_other_the_longest_silent_first(sessions, image):
    sessions.touch(heartbeat(1), now=4.0)
    sessions.touch(heartbeat(2), now=2.0)
    sessions.touch(heartbeat(3), now=8.0)
    assert sessions.stale_broker(image, now=11.0) is None
    assert sessions.stale_broker(image, now=14.0) == 2
    assert sessions.stale_broker(changed(image, 2, fenced=True), now=14.0) == 1
    assert sessions.stale_broker(changed(changed(image, 2, fenced=True), 1, fenced=True), now=14.0) is None


def test_the_session_of_an_earlier_life_does_not_count_for_the_next(sessions):
    sessions.touch(heartbeat(1, offset=500), now=1.0)
    sessions.begin_controlled_shutdown(1, 400)
    sessions.register(1, 600, now=2.0)
    image = changed(cluster_image([1]), 1, broker_epoch=600)
    assert sessions.lowest_active_offset(image) == -1


def test_the_lowest_offset_is_that_of_active_brokers(sessions, image):
    for broker_id, offset in ((1, 70), (2, 50), (3, 60)):
        sessions.touch(heartbeat(broker_id, offset), now=1.0)
    assert sessions.lowest_active_offset(image) == 50
    assert sessions.lowest_active_offset(changed(image, 2, fenced=True)) == 60
    assert sessions.lowest_active_offset(changed(image, 2, in_controlled_shutdown=True)) == 60
    assert sessions.lowest_active_offset(cluster_image([])) is None


@pytest.mark.parametrize(
    ("state", "offset", "wants", "leads", "following"),
    [
        ({"fenced": True}, 9, {}, False, FENCED),
        ({"fenced": True}, 10, {}, False, UNFENCED),
        ({"fenced": True}, 10, {"want_fence": True}, False, FENCED),
        ({"fenced": True}, 9, {"want_shut_down": True}, False, SHUTDOWN_NOW),
        ({}, 9, {}, True, UNFENCED),
        ({}, 10, {"want_fence": True}, True, FENCED),
        ({}, 10, {"want_shut_down": True}, True, CONTROLLED_SHUTDOWN),
        ({}, 10, {"want_shut_down": True}, False, SHUTDOWN_NOW),
        ({}, 10, {"want_fence": True, "want_shut_down": True}, True, SHUTDOWN_NOW),
        ({"in_controlled_shutdown": True}, 10, {"want_shut_down": True}, True, CONTROLLED_SHUTDOWN),
        ({"in_controlled_shutdown": True, "fenced": True}, 10, {"want_shut_down": True}, False, SHUTDOWN_NOW),
    ],
)
def test_the_next_state_follows_from_the_present_and_what_the_broker_wants(
    sessions, image, state, offset, wants, leads, following
):
    image = changed(image, 1, **state)
    wanted = heartbeat(1, offset, **wants)
    assert sessions.next_state(image, image.brokers[1], wanted, leads=leads) is following


def test_a_broker_stops_when_all_active_ones_have_read_that_others_lead(sessions, image):
    image = changed(image, 1, in_controlled_shutdown=True)

    def next_state():
        return sessions.next_state(image, image.brokers[1], heartbeat(1, want_shut_down=True), leads=False)

    assert next_state() is CONTROLLED_SHUTDOWN, "a new controller does not know yet which record it was"
    sessions.begin_controlled_shutdown(1, 200)
    sessions.touch(heartbeat(2, 200), now=1.0)
    sessions.touch(heartbeat(3, 199), now=1.0)
    assert next_state() is CONTROLLED_SHUTDOWN
    sessions.begin_controlled_shutdown(1, 300)
    sessions.touch(heartbeat(3, 200), now=1.0)
    assert next_state() is SHUTDOWN_NOW


def test_the_last_active_broker_waits_for_nobody(sessions):
    image = changed(cluster_image([1]), 1, in_controlled_shutdown=True)
    sessions.begin_controlled_shutdown(1, 200)
    assert sessions.next_state(image, image.brokers[1], heartbeat(1), leads=False) is SHUTDOWN_NOW
