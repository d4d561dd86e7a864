"""The cache of fetch sessions: its room, its ids, its epochs. What a session answers is tested with Fetch."""

from __future__ import annotations

from random import Random

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_UUID
from tests.partition.real_logs import make_replicas
from trio_broker.partition import fetch_sessions
from trio_broker.partition.fetch_operation import FetchedPartition, FetchTarget
from trio_broker.partition.fetch_sessions import MAX_EPOCH, FetchSessionCache, SessionKey
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.kafka_principal import KafkaPrincipal

ALICE = KafkaPrincipal("User", "alice")

NOTHING = KafkaError("not here", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def asked(*indexes):
    return {
        SessionKey("orders", NO_UUID, index): FetchTarget(index, fetch_offset=0, max_bytes=1, found=NOTHING)
        for index in indexes
    }


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def cache(clock):
    return FetchSessionCache(clock, Random(1), max_sessions=2)


def code_of(raised):
    return raised.value.code


def test_ids_are_positive_and_differ(cache):
    first, second = cache.create(asked(0), ALICE, by_id=False), cache.create(asked(0), ALICE, by_id=False)
    assert first.session_id > 0
    assert second.session_id > 0
    assert first.session_id != second.session_id


def test_without_slots_there_are_no_sessions(clock):
    assert FetchSessionCache(clock, Random(1), max_sessions=0).create(asked(0), ALICE, by_id=False) is None


def test_the_number_of_sessions_is_that_of_the_configuration(memory_path):
    replicas = make_replicas(memory_path, max_incremental_fetch_session_cache_slots="3")
    assert replicas.fetch_sessions.max_sessions == 3
    replicas.log_manager.close(clean=False)


def test_a_full_cache_of_busy_sessions_gives_no_new_one(cache, clock):
    for _ in range(2):
        assert cache.create(asked(0), ALICE, by_id=False)
    clock.advance(60)
    assert cache.create(asked(0), ALICE, by_id=False) is None


def test_the_session_unused_longest_makes_room_when_it_has_been_idle(cache, clock):
    first, second = cache.create(asked(0), ALICE, by_id=False), cache.create(asked(0), ALICE, by_id=False)
    clock.advance(100)
    cache.resume(first.session_id, 1, ALICE, by_id=False)
    clock.advance(30)
    assert cache.create(asked(0), ALICE, by_id=False)
    cache.resume(first.session_id, 2, ALICE, by_id=False)
    with pytest.raises(KafkaError) as raised:
        cache.resume(second.session_id, 1, ALICE, by_id=False)
    assert code_of(raised) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_to_1(cache):
    session = cache.create(asked(0), ALICE, by_id=False)
    session.next_epoch = MAX_EPOCH
    cache.resume(session.session_id, MAX_EPOCH, ALICE, by_id=False)
    cache.resume(session.session_id, 1, ALICE, by_id=False)
    with pytest.raises(KafkaError) as raised:
        cache.resume(session.session_id, 1, ALICE, by_id=False)
    assert code_of(raised) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_fetch_of_nothing_makes_no_session(cache):
    assert cache.create({}, ALICE, by_id=False) is None


def test_partitions_over_all_sessions_are_bounded(cache, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_SESSION_PARTITIONS", 3)
    assert cache.create(asked(0, 1, 2, 3), ALICE, by_id=False) is None
    session = cache.create(asked(0, 1), ALICE, by_id=False)
    cache.extend(session, asked(1, 2))
    with pytest.raises(KafkaError) as raised:
        cache.extend(session, asked(3))
    assert code_of(raised) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_partitions_that_gave_records_go_to_the_end(cache):
    session = cache.create(asked(0, 1, 2), ALICE, by_id=False)
    results = [FetchedPartition(index, high_watermark=5, log_start_offset=0) for index in range(3)]
    results[0].size_bytes = 100
    reported = session.incremental_changes(list(session.partitions.items()), results)
    assert [key.partition for key, _ in reported] == [0, 1, 2]
    assert [key.partition for key in session.partitions] == [1, 2, 0]


def test_a_partition_forgotten_while_it_was_read_stays_forgotten(cache):
    session = cache.create(asked(0, 1), ALICE, by_id=False)
    reads = list(session.partitions.items())
    session.forget([reads[0][0]])
    results = [FetchedPartition(index, high_watermark=5, log_start_offset=0, size_bytes=9) for index in range(2)]
    session.incremental_changes(reads, results)
    assert [key.partition for key in session.partitions] == [1]
