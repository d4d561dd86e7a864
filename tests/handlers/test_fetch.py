"""Fetch as consumers of all versions see it."""

from __future__ import annotations

import errno
from functools import partial

import pytest
import trio
import trio.testing

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.fetch import (
    NAMES_UP_TO,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import read_batches
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from tests.handlers.handler_client import Client, joined
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, TOPIC_ID, add_topic, batch, delete_topics, make_replicas
from tests.waits import fail_after
from trio_broker.common.request_phase import RequestPhase
from trio_broker.handlers.fetch import (
    ENCODED_SINCE_VERSION,
    encoded_records,
    error_response,
    fetch,
    partition_data,
)
from trio_broker.partition.fetch_operation import FetchedPartition
from trio_broker.partition.fetch_sessions import SessionKey
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log_reader import ReadableLog

OTHER_ID = bytes(range(16, 32))
COMMITTED = 1


def wanted(index=0, offset=0, max_bytes=1 << 20, **fields):
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def request(
    *partitions, topic="orders", topic_id=NO_UUID, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, forget=(), **fields
):
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))] if partitions else []
    forgotten = [ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forget))] if forget else []
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=topics,
        forgotten_topics_data=forgotten,
        **fields,
    )


@pytest.mark.parametrize("version", range(ENCODED_SINCE_VERSION, FetchRequest.VERSIONS.high + 1))
@pytest.mark.parametrize("size", [1, 126, 127, 70_000])
def test_the_answer_with_records_alone_is_encoded_as_every_other(version, size):
    key = SessionKey("orders" if version <= NAMES_UP_TO else "", TOPIC_ID if version > NAMES_UP_TO else NO_UUID, 7)
    result = FetchedPartition(7, ErrorCode.NONE, 2**40, 2**39, 5, bytes(size), size)
    topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[partition_data(result)])
    expected = FetchResponse(session_id=2**30, responses=[topic])
    assert joined(encoded_records(version, 2**30, key, result)) == encode_bytes(expected, version)


async def ask(client, *partitions, version=11, **fields):
    """The partitions of the one topic in the response."""
    response = await client.ask(fetch, request(*partitions, **fields), version)
    assert response.error_code == 0
    [topic] = response.responses
    return topic.partitions


def values(partition) -> list[bytes | None]:
    return [record.value for each in read_batches(partition.records) for record in each.records()]


async def produce(replicas, partition, *records):
    return await append_to_leader(replicas, partition, batch(*records))


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_by_name(client, replicas, version):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b")
    [answer] = await ask(client, wanted(), version=version)
    assert values(answer) == [b"a", b"b"]
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("version", range(13, 19))
async def test_from_version_13_on_topics_go_by_id(client, replicas, version):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    [answer] = await ask(client, wanted(), version=version, topic_id=TOPIC_ID)
    assert values(answer) == [b"a"]
    [unknown] = await ask(client, wanted(), version=version, topic_id=OTHER_ID)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_unknown_topic_or_partition_answers_3(client, replicas):
    await add_topic(replicas)
    [answer] = await ask(client, wanted(), topic="nothing")
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [answer] = await ask(client, wanted(9))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_are_never_null(client, replicas):
    await add_topic(replicas)
    answers = await ask(client, wanted(), wanted(5))
    assert [bytes(answer.records) for answer in answers] == [b"", b""]
    response = error_response(request(wanted()), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert response.responses[0].partitions[0].records == b""


async def test_the_current_leader_epoch_is_checked(client, replicas):
    await add_topic(replicas, leader_epoch=5)
    codes = [(await ask(client, wanted(current_leader_epoch=epoch)))[0].error_code for epoch in (-1, -7, 5, 4, 6)]
    assert codes == [0, 0, 0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]


async def test_a_negative_epoch_of_the_last_record_is_none(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    [answer] = await ask(client, wanted(last_fetched_epoch=-7), version=12)
    assert (answer.error_code, answer.diverging_epoch.epoch, values(answer)) == (0, -1, [b"a"])


@pytest.mark.parametrize("version", [11, ENCODED_SINCE_VERSION])
async def test_the_first_batch_comes_whole_and_then_limits_hold(client, replicas, version):
    partitions = await add_topic(replicas, partitions=3)
    for partition in partitions[1:]:
        await produce(replicas, partition, b"v" * 1000)
        await produce(replicas, partition, b"w" * 1000)
    answers = await ask(client, wanted(0), wanted(1, max_bytes=10), wanted(2, max_bytes=10), version=version)
    assert [len(values(answer)) for answer in answers] == [0, 1, 0]
    answers = await ask(client, wanted(1), wanted(2), max_bytes=10, version=version)
    assert [len(values(answer)) for answer in answers] == [1, 0]
    assert answers[1].high_watermark == 2


async def test_partitions_are_walked_in_the_order_of_the_request(client, replicas):
    partitions = await add_topic(replicas, partitions=2)
    for partition in partitions:
        await produce(replicas, partition, b"v" * 1000)
    answers = await ask(client, wanted(1), wanted(0), max_bytes=100)
    assert [(answer.partition_index, len(values(answer))) for answer in answers] == [(1, 1), (0, 0)]


async def test_the_batch_that_contains_the_offset_comes_from_its_beginning(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b", b"c")
    [answer] = await ask(client, wanted(offset=2))
    assert values(answer) == [b"a", b"b", b"c"]


async def test_an_offset_beyond_the_log_end_answers_1_and_at_the_end_is_empty(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    [at_end] = await ask(client, wanted(offset=1))
    assert (at_end.error_code, bytes(at_end.records)) == (0, b"")
    [beyond] = await ask(client, wanted(offset=2))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await replicas.record_deletion.delete({partition: 1})
    [before] = await ask(client, wanted(offset=0))
    assert before.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_between_high_watermark_and_log_end_is_empty(durable_client, durable_replicas, monkeypatch):
    [partition] = await add_topic(durable_replicas)
    monkeypatch.setattr(durable_replicas.flusher, "request", lambda partition: None)
    await produce(durable_replicas, partition, b"a", b"b")
    for offset in (0, 1, 2):
        [answer] = await ask(durable_client, wanted(offset=offset))
        assert (answer.error_code, bytes(answer.records), answer.high_watermark) == (0, b"", 0)


async def test_offsets_are_given_without_records_and_are_minus_one_only_with_errors(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b")
    await replicas.record_deletion.delete({partition: 1})
    [empty, error] = await ask(client, wanted(offset=2), wanted(9))
    assert (empty.high_watermark, empty.last_stable_offset, empty.log_start_offset) == (2, 2, 1)
    assert (error.high_watermark, error.last_stable_offset, error.log_start_offset) == (-1, -1, -1)


async def test_no_replica_is_preferred(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    [answer] = await ask(client, wanted(), rack_id="somewhere")
    assert answer.preferred_read_replica == -1


async def test_a_client_that_says_it_is_a_replica_is_refused(client, replicas):
    await add_topic(replicas)
    for version, fields in ((11, {"replica_id": 3}), (17, {"replica_state": ReplicaState(replica_id=3)})):
        with pytest.raises(KafkaError) as raised:
            await ask(client, wanted(), version=version, **fields)
        assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# ---- waiting
#
# A jumping clock does not know of worker threads and jumps while one works; so time is only jumped where none does.


async def poll_while(act, client, *partitions, **fields):
    """Begin a fetch that may wait a minute, do ``act`` when it waits, and return its answer, which must come soon."""
    answers = []

    async def poll():
        answers.append(await ask(client, *partitions, max_wait_ms=60_000, **fields))

    with fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            while not client.delayed:
                await trio.testing.wait_all_tasks_blocked()
            await act()
    return answers[0]


@pytest.fixture
def idle_client(tmp_path):
    """A client of a replica manager without background tasks, for tests that let time jump."""
    made = make_replicas(tmp_path / "idle", log_durability="page-cache")
    yield Client(made)
    made.log_manager.close(clean=False)


async def test_a_fetch_waits_until_its_time_is_over(idle_client, autojump_clock):
    await add_topic(idle_client.replicas)
    begin = trio.current_time()
    [answer] = await ask(idle_client, wanted(), max_wait_ms=500)
    assert trio.current_time() - begin == 0.5
    assert (answer.error_code, bytes(answer.records)) == (0, b"")
    assert idle_client.delayed == 1


async def test_an_error_in_any_partition_answers_at_once(client, replicas):
    await add_topic(replicas)
    answers = await ask(client, wanted(0), wanted(9), max_wait_ms=60_000)
    assert [answer.error_code for answer in answers] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.delayed == 0


async def test_a_fetch_of_nothing_answers_at_once(client, replicas):
    response = await client.ask(fetch, request(max_wait_ms=60_000), 11)
    assert response.responses == []
    assert client.delayed == 0


async def test_a_fetch_answers_when_min_bytes_are_there_from_whichever_partitions(client, replicas):
    partitions = await add_topic(replicas, partitions=2)
    for partition in partitions:
        await produce(replicas, partition, b"v" * 1000)
    delayed = []

    async def more():
        await produce(replicas, partitions[1], b"v" * 1000)
        await trio.testing.wait_all_tasks_blocked()
        delayed.append(replicas.statistics().delayed_fetches)
        await produce(replicas, partitions[0], b"v" * 1000)

    answers = await poll_while(more, client, wanted(0), wanted(1), min_bytes=4000)
    assert [len(values(answer)) for answer in answers] == [2, 2]
    assert delayed == [1], "three records are too few"


async def test_min_bytes_beyond_max_bytes_are_not_waited_for(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"v" * 1000)
    await ask(client, wanted(), max_wait_ms=60_000, min_bytes=10**6, max_bytes=500)
    assert RequestPhase.PURGATORY not in client.waits


async def test_deleting_the_topic_answers_at_once(client, replicas):
    await add_topic(replicas)
    [answer] = await poll_while(lambda: delete_topics(replicas, "orders"), client, wanted())
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_new_leader_epoch_answers_at_once_who_knows_the_old_one(client, replicas):
    await add_topic(replicas, leader_epoch=1)
    lead_again = partial(add_topic, replicas, leader_epoch=2)
    [answer] = await poll_while(lead_again, client, wanted(current_leader_epoch=1))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_stopping_answers_waiting_fetches_with_what_there_is(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")

    async def stop():
        assert replicas.statistics().delayed_fetches == 1
        replicas.stop_waiting()

    [answer] = await poll_while(stop, client, wanted(), min_bytes=10_000)
    assert values(answer) == [b"a"]
    await ask(client, wanted(offset=1), max_wait_ms=60_000)
    assert client.delayed == 1


async def test_many_waiting_fetches_leave_nothing_behind(idle_client, autojump_clock):
    [partition] = await add_topic(idle_client.replicas)
    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(lambda: ask(Client(idle_client.replicas), wanted(), max_wait_ms=100))
    assert not partition.delayed.fetches
    assert idle_client.replicas.statistics().delayed_fetches == 0


async def test_a_cold_log_is_read_in_a_worker_thread(client, replicas, monkeypatch):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    read = ReadableLog.read
    waits = []

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if nowait:
            raise BlockingIOError(errno.EAGAIN, "not in the cache")
        waits.append(offset)
        return read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)

    monkeypatch.setattr(ReadableLog, "read", cold)
    [answer] = await ask(client, wanted())
    assert values(answer) == [b"a"]
    assert waits == [0]
    assert client.waits == [RequestPhase.DISK]
    assert partition.failure is None


async def test_what_became_visible_during_a_cold_read_is_not_missed(client, replicas, monkeypatch):
    """A fetch that is not registered yet is woken by nobody, so it looks again before it is delayed."""
    first, second = await add_topic(replicas, partitions=2)
    for partition in (first, second):
        await produce(replicas, partition, b"a")
    read = ReadableLog.read

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if first.log_end_offset == 1:
            if nowait:
                raise BlockingIOError(errno.EAGAIN, "not in the cache")
            trio.from_thread.run_sync(lambda: first.writer.append(batch(b"v" * 5000), now_ms=NOW_MS))
        return read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)

    monkeypatch.setattr(ReadableLog, "read", cold)
    answers = await ask(client, wanted(0, offset=1), wanted(1), max_wait_ms=60_000, min_bytes=3000)
    assert client.waits == [RequestPhase.DISK] * len(client.waits)
    assert values(answers[0]) == [b"v" * 5000]


async def test_a_disk_that_fails_on_reading_answers_storage_error(client, replicas, monkeypatch):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")

    def fail(self, *arguments, **keywords):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(ReadableLog, "read", fail)
    [answer] = await ask(client, wanted())
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.failure is not None


# ---- isolation


def transactional(value, sequence=0):
    return batch(value, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_transaction(partition, *, committed):
    marker = EndTransactionMarker(committed=committed, coordinator_epoch=0)
    records = build_control_batch(marker, timestamp=NOW_MS, producer_id=9, producer_epoch=0)
    partition.writer.append(memoryview(bytearray(records)), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


async def test_a_committed_reader_stops_at_an_open_transaction_and_is_woken_by_its_end(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"plain")
    partition.writer.append(transactional(b"open"), now_ms=NOW_MS)
    [seen] = await ask(client, wanted(), isolation_level=COMMITTED)
    assert (values(seen), seen.last_stable_offset, seen.high_watermark) == ([b"plain"], 1, 2)
    [dirty] = await ask(client, wanted())
    assert values(dirty) == [b"plain", b"open"]

    async def commit():
        end_transaction(partition, committed=True)

    [answer] = await poll_while(commit, client, wanted(offset=1), isolation_level=COMMITTED)
    assert values(answer)[0] == b"open"


@pytest.mark.parametrize("version", [11, ENCODED_SINCE_VERSION])
async def test_aborted_transactions_are_given_to_committed_readers(client, replicas, version):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"plain")
    partition.writer.append(transactional(b"undone"), now_ms=NOW_MS)
    end_transaction(partition, committed=False)
    [committed] = await ask(client, wanted(), isolation_level=COMMITTED, version=version)
    assert [(each.producer_id, each.first_offset) for each in committed.aborted_transactions] == [(9, 1)]
    [uncommitted] = await ask(client, wanted(), version=version)
    assert not uncommitted.aborted_transactions


async def test_only_the_aborted_transactions_of_the_records_read_are_given(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"plain")
    for sequence in range(3):
        partition.writer.append(transactional(b"undone", sequence), now_ms=NOW_MS)
        end_transaction(partition, committed=False)
    [first] = await ask(client, wanted(offset=1, max_bytes=1), isolation_level=COMMITTED)
    assert [each.first_offset for each in first.aborted_transactions] == [1]
    [rest] = await ask(client, wanted(offset=3), isolation_level=COMMITTED)
    assert [each.first_offset for each in rest.aborted_transactions] == [3, 5]


async def test_an_unknown_isolation_level_is_refused(client, replicas):
    with pytest.raises(KafkaError) as raised:
        await ask(client, wanted(), isolation_level=2)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


# ---- divergence


async def test_an_empty_partition_knows_the_epoch_in_which_it_began(client, replicas):
    """A consumer that committed offset 0 with the epoch of the metadata asks so; an error would reset it."""
    await add_topic(replicas, leader_epoch=0)
    [answer] = await ask(client, wanted(offset=0, last_fetched_epoch=0), version=12)
    assert (answer.error_code, answer.high_watermark, answer.diverging_epoch.epoch) == (0, 0, -1)


async def test_a_reader_whose_last_epoch_ended_earlier_here_receives_its_end(client, replicas):
    [partition] = await add_topic(replicas, leader_epoch=1)
    await produce(replicas, partition, b"a")
    await add_topic(replicas, leader_epoch=4)
    await produce(replicas, partition, b"b")
    [fine] = await ask(client, wanted(offset=1, last_fetched_epoch=1), version=12)
    assert values(fine) == [b"b"]
    [diverged] = await ask(client, wanted(offset=2, last_fetched_epoch=1), version=12)
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (1, 1)
    assert bytes(diverged.records) == b""
    [unheard_of] = await ask(client, wanted(offset=2, last_fetched_epoch=9), version=12)
    assert unheard_of.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# ---- sessions


async def begin_session(client, *partitions, version=11, **fields):
    response = await client.ask(fetch, request(*partitions, session_id=0, session_epoch=0, **fields), version)
    assert response.session_id > 0
    return response


async def test_a_topic_named_in_two_places_is_answered_in_the_order_asked(client, replicas):
    await add_topic(replicas, partitions=3)
    await add_topic(replicas, "others", topic_id=OTHER_ID)
    asked = request(wanted(2))
    asked.topics += [FetchTopic(topic="others", partitions=[wanted(0)])]
    asked.topics += [FetchTopic(topic="orders", partitions=[wanted(0), wanted(1)])]
    response = await client.ask(fetch, asked, 11)
    answered = [(topic.topic, [each.partition_index for each in topic.partitions]) for topic in response.responses]
    assert answered == [("orders", [2]), ("others", [0]), ("orders", [0, 1])]


async def test_a_partition_named_twice_is_answered_once_as_it_was_asked_for_last(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    await produce(replicas, partition, b"b")
    [answer] = await ask(client, wanted(offset=0), wanted(offset=1))
    assert values(answer) == [b"b"]


async def test_no_session_wanted_gives_none(client, replicas):
    await add_topic(replicas)
    response = await client.ask(fetch, request(wanted(), session_id=0, session_epoch=-1), 11)
    assert response.session_id == 0
    assert len(replicas.fetch_sessions) == 0


@pytest.mark.parametrize("version", [11, ENCODED_SINCE_VERSION])
async def test_a_session_answers_with_news_only(client, replicas, version):
    partitions = await add_topic(replicas, partitions=3)
    first = await begin_session(client, wanted(0), wanted(1), wanted(2), version=version)
    assert len(first.responses[0].partitions) == 3
    session_id = first.session_id
    quiet = await client.ask(fetch, request(session_id=session_id, session_epoch=1), version)
    assert (quiet.session_id, quiet.responses) == (session_id, [])
    await produce(replicas, partitions[1], b"a")
    news = await client.ask(fetch, request(session_id=session_id, session_epoch=2), version)
    [partition] = news.responses[0].partitions
    assert (news.session_id, partition.partition_index, values(partition)) == (session_id, 1, [b"a"])
    moved = await client.ask(fetch, request(wanted(1, offset=1), session_id=session_id, session_epoch=3), version)
    assert moved.responses == []


async def test_a_new_log_start_offset_is_news(client, replicas):
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    first = await begin_session(client, wanted(offset=1))
    await replicas.record_deletion.delete({partition: 1})
    news = await client.ask(fetch, request(session_id=first.session_id, session_epoch=1), 11)
    assert news.responses[0].partitions[0].log_start_offset == 1


async def test_an_error_is_news_each_time_and_its_end_too(client, replicas):
    first = await begin_session(client, wanted(), topic="later")
    for epoch in (1, 2):
        news = await client.ask(fetch, request(session_id=first.session_id, session_epoch=epoch), 11)
        assert news.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await add_topic(replicas, "later")
    news = await client.ask(fetch, request(session_id=first.session_id, session_epoch=3), 11)
    assert news.responses[0].partitions[0].error_code == 0


async def test_forgotten_partitions_leave_and_new_ones_join(client, replicas):
    partitions = await add_topic(replicas, partitions=3)
    first = await begin_session(client, wanted(0), wanted(1))
    for partition in partitions:
        await produce(replicas, partition, b"a")
    change = request(wanted(2), forget=[0], session_id=first.session_id, session_epoch=1)
    news = await client.ask(fetch, change, 11)
    assert [each.partition_index for each in news.responses[0].partitions] == [1, 2]


async def test_a_wrong_epoch_answers_71_and_an_unknown_id_70(client, replicas):
    await add_topic(replicas)
    first = await begin_session(client, wanted())
    wrong = await client.ask(fetch, request(session_id=first.session_id, session_epoch=5), 11)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    unknown = await client.ask(fetch, request(session_id=first.session_id ^ 1, session_epoch=1), 11)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_does_not_change_between_names_and_ids(client, replicas):
    await add_topic(replicas)
    first = await begin_session(client, wanted())
    mixed = await client.ask(fetch, request(session_id=first.session_id, session_epoch=1), 13)
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_the_final_epoch_ends_the_session(client, replicas):
    await add_topic(replicas)
    first = await begin_session(client, wanted())
    response = await client.ask(fetch, request(wanted(), session_id=first.session_id, session_epoch=-1), 11)
    assert response.session_id == 0
    assert len(response.responses[0].partitions) == 1
    assert len(replicas.fetch_sessions) == 0


async def test_a_session_waits_for_all_its_partitions(client, replicas):
    partitions = await add_topic(replicas, partitions=3)
    first = await begin_session(client, wanted(0), wanted(1), wanted(2), topic_id=TOPIC_ID, version=17)
    again = {"session_id": first.session_id, "session_epoch": 1, "topic_id": TOPIC_ID, "version": 17}
    [answer] = await poll_while(lambda: produce(replicas, partitions[2], b"a"), client, **again)
    assert (answer.partition_index, values(answer)) == (2, [b"a"])


async def test_a_session_of_a_topic_made_again_under_its_name_reads_the_new_one(client, replicas):
    [old] = await add_topic(replicas)
    await produce(replicas, old, b"old")
    first = await begin_session(client, wanted())
    [new] = await add_topic(replicas, topic_id=OTHER_ID)
    await produce(replicas, new, b"new")
    news = await client.ask(fetch, request(session_id=first.session_id, session_epoch=1), 11)
    assert values(news.responses[0].partitions[0]) == [b"new"]
