"""The errors that clients were answered with last."""

from __future__ import annotations

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from trio_broker.network.client_activity import ClientSoftware
from trio_broker.network.recent_errors import MAX_CLIENT_ID_CHARACTERS, MAX_RECENT_ERRORS, RecentErrors
from trio_broker.network.statistics import RecentError

KCAT = ClientSoftware("librdkafka", "2.3.0")
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_errors_of_one_client_are_counted_and_the_latest_come_first():
    errors = RecentErrors()
    errors.add(ApiKey.PRODUCE, {UNKNOWN_TOPIC: 2}, "loader", KCAT, 1000)
    errors.add(ApiKey.FETCH, {ErrorCode.OFFSET_OUT_OF_RANGE: 1}, None, ClientSoftware(), 2000)
    errors.add(ApiKey.PRODUCE, {UNKNOWN_TOPIC: 3}, "loader", KCAT, 3000)
    assert errors.latest_first() == [
        RecentError(
            api="Produce",
            error="UNKNOWN_TOPIC_OR_PARTITION",
            client_id="loader",
            software_name="librdkafka",
            software_version="2.3.0",
            count=5,
            first_at_ms=1000,
            last_at_ms=3000,
        ),
        RecentError(
            api="Fetch",
            error="OFFSET_OUT_OF_RANGE",
            client_id=None,
            software_name="",
            software_version="",
            count=1,
            first_at_ms=2000,
            last_at_ms=2000,
        ),
    ]


def test_answers_that_belong_to_every_rebalance_are_no_errors():
    errors = RecentErrors()
    errors.add(ApiKey.JOIN_GROUP, {ErrorCode.MEMBER_ID_REQUIRED: 1}, "worker", KCAT, 1000)
    errors.add(ApiKey.HEARTBEAT, {ErrorCode.REBALANCE_IN_PROGRESS: 1}, "worker", KCAT, 1000)
    assert errors.latest_first() == []


def test_the_oldest_make_room_and_client_ids_are_cut():
    errors = RecentErrors()
    for number in range(MAX_RECENT_ERRORS + 5):
        errors.add(ApiKey.PRODUCE, {UNKNOWN_TOPIC: 1}, f"{number:03}" * 1000, KCAT, number)
    kept = errors.latest_first()
    assert len(kept) == MAX_RECENT_ERRORS
    assert [kept[0].last_at_ms, kept[-1].last_at_ms] == [MAX_RECENT_ERRORS + 4, 5]
    assert all(len(each.client_id or "") == MAX_CLIENT_ID_CHARACTERS for each in kept)
