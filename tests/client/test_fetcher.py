"""The fetcher: whom it asks for what, what it makes of the answers, and when it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from kafka_wire.records.batch import TimestampType, build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import Record
from tests.client.scripted_client import Pauses, client_of
from tests.fakes.scripted_kafka import CLOSED, Cluster, ScriptedKafka, fetched, served_up_to
from trio_broker.client.errors import DamagedRecords, Refused, TopicReplaced
from trio_broker.client.fetcher import Fetcher, PartitionRecords
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.topic_partition import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, *values: bytes, **settings: Any) -> bytes:
    """A batch of records from ``base_offset`` on."""
    records = [Record(base_offset + number, 1000, None, value) for number, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, **settings)


def transactional(base_offset: int, value: bytes, producer_id: int) -> bytes:
    return batch(base_offset, value, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(base_offset: int, producer_id: int, *, committed: bool) -> bytes:
    return build_control_batch(
        EndTransactionMarker(committed, 0),
        timestamp=1000,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
    )


# --- What came of one partition ---


def read(data: bytes, offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> list[bytes | None]:
    """The values that a reader gets of an answer."""
    records = PartitionRecords(T0, offset, memoryview(data), aborted)
    return [record.value for each in records.batches() for record in each.records]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_batches_of_every_codec_are_read(codec: Codec):
    assert read(batch(0, b"a", b"b", codec=codec) + batch(2, b"c")) == [b"a", b"b", b"c"]


def test_what_a_batch_has_before_the_wanted_offset_is_left_out():
    assert read(batch(0, b"a", b"b", b"c"), offset=1) == [b"b", b"c"]


def test_a_batch_that_is_cut_short_is_left_for_the_next_answer():
    records = PartitionRecords(T0, 0, memoryview(batch(0, b"a") + batch(1, b"b")[:-1]), ())
    assert [each.next_offset for each in records.batches()] == [1]


def test_a_batch_that_never_comes_whole_is_an_error_rather_than_a_loop():
    with pytest.raises(DamagedRecords, match="t-0: no whole batch came from offset 0 on"):
        read(batch(0, b"a")[:-1])


def test_a_wrong_checksum_is_an_error_behind_what_was_good():
    damaged = bytearray(batch(1, b"b"))
    damaged[-1] ^= 1
    batches = PartitionRecords(T0, 0, memoryview(batch(0, b"a") + damaged), ()).batches()
    assert [record.value for record in next(batches).records] == [b"a"]
    with pytest.raises(DamagedRecords, match="t-0: batch at offset 1: CRC is"):
        next(batches)


def test_a_format_of_old_is_refused_in_words():
    with pytest.raises(DamagedRecords, match="t-0: magic 1 at offset 0: only 2 is supported"):
        read(bytes(16) + b"\1" + bytes(60))


def test_control_batches_are_passed_over_and_moved_behind():
    records = PartitionRecords(T0, 0, memoryview(transactional(0, b"a", 7) + marker(1, 7, committed=True)), ())
    assert [(len(each.records), each.next_offset) for each in records.batches()] == [(1, 1), (0, 2)]


def test_an_aborted_transaction_is_left_out_up_to_its_marker():
    data = (
        transactional(0, b"kept before", 7)
        + marker(1, 7, committed=True)
        + transactional(2, b"aborted", 7)
        + transactional(3, b"another's", 8)
        + batch(4, b"plain")
        + marker(5, 7, committed=False)
        + transactional(6, b"kept behind", 7)
    )
    assert read(data, aborted=((2, 7),)) == [b"kept before", b"another's", b"plain", b"kept behind"]


def test_the_type_of_the_timestamp_is_reported():
    records = PartitionRecords(T0, 0, memoryview(batch(0, b"a", timestamp_type=TimestampType.LOG_APPEND_TIME)), ())
    [only] = records.batches()
    assert only.timestamp_type is TimestampType.LOG_APPEND_TIME


# --- Rounds ---


def answering(logs: dict[int, Sequence[bytes]]) -> Any:
    """Answer each Fetch with the batches from the wanted offset on; ``logs`` has one record in each batch."""

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        return fetched(request, lambda asked: data(asked, b"".join(logs[asked.partition][asked.fetch_offset :])))

    return answer


def data(asked: FetchPartition, records: bytes = b"", error_code: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=asked.partition,
        error_code=error_code,
        high_watermark=-1 if error_code else 100,
        aborted_transactions=None,
        records=records,
    )


def failing(code: int) -> Any:
    return lambda request, version: fetched(request, lambda asked: data(asked, error_code=code))


LOG = [batch(offset, b"%d" % offset) for offset in range(3)]


def fetcher(client: KafkaClient, positions: dict[TopicPartition, int], lost: list[str] | None = None) -> Fetcher:
    return Fetcher(client, positions, read_committed=True, on_lost=([] if lost is None else lost).append)


def values(fetched: list[PartitionRecords]) -> dict[TopicPartition, list[bytes | None]]:
    return {each.partition: [record.value for got in each.batches() for record in got.records] for each in fetched}


def test_a_round_asks_each_leader_once_for_all_that_it_leads():
    with ScriptedKafka(node_id=1) as one, ScriptedKafka(node_id=2) as two:
        Cluster([one, two], topics={"t": [1, 2, 1]})
        for server in (one, two):
            server.answers[FetchRequest] = answering({0: LOG, 1: LOG, 2: LOG})
        with client_of(one, two) as client:
            got = values(fetcher(client, {T0: 0, T1: 1, TopicPartition("t", 2): 2}).fetch())
        assert got == {T0: [b"0", b"1", b"2"], T1: [b"1", b"2"], TopicPartition("t", 2): [b"2"]}
        [first], [second] = one.requests(FetchRequest), two.requests(FetchRequest)
        assert [each.partition for each in first.topics[0].partitions] == [0, 2]
        assert [each.partition for each in second.topics[0].partitions] == [1]
        assert first.isolation_level == 1


def test_what_was_served_is_asked_for_last_the_next_time():
    with ScriptedKafka({FetchRequest: answering({0: LOG, 1: []})}) as server:
        Cluster([server], topics={"t": [1, 1]})
        with client_of(server) as client:
            reader = fetcher(client, {T0: 0, T1: 0})
            reader.fetch()
            reader.fetch()
        order = [[each.partition for each in request.topics[0].partitions] for request in server.requests(FetchRequest)]
        assert order == [[0, 1], [1, 0]]


def test_topics_without_an_id_are_asked_for_by_name():
    with ScriptedKafka({FetchRequest: answering({0: LOG})}) as server:
        Cluster([server], topics={"t": [1]})
        with client_of(server) as client:
            fetcher(client, {T0: 0}).fetch()
        assert server.versions(FetchRequest) == [12]


def with_topic_id(cluster: Cluster, *ids: bytes) -> Any:
    """Answer Metadata with one id after the other, the last one for ever."""
    left = list(ids)

    def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        response = cluster.metadata(request, version)
        for topic in response.topics:
            topic.topic_id = left[0]
        if response.topics and len(left) > 1:
            left.pop(0)
        return response

    return answer


def test_topics_with_an_id_are_asked_for_by_it_and_named_in_what_comes():
    with ScriptedKafka({FetchRequest: answering({0: LOG})}) as server:
        server.answers[MetadataRequest] = with_topic_id(Cluster([server], topics={"t": [1]}), bytes(range(16)))
        with client_of(server) as client:
            assert values(fetcher(client, {T0: 2}).fetch()) == {T0: [b"2"]}
        assert server.versions(FetchRequest)[0] > 12


@pytest.mark.parametrize(
    "trouble", [CLOSED, failing(ErrorCode.NOT_LEADER_OR_FOLLOWER), failing(ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_what_may_pass_is_asked_again_after_another_look_for_the_leader(trouble: Any):
    with ScriptedKafka() as server:
        Cluster([server], topics={"t": [1]})
        server.answers[FetchRequest] = [trouble, answering({0: LOG})]
        pauses = Pauses()
        with client_of(server, pauses=pauses) as client:
            assert values(fetcher(client, {T0: 1}).fetch()) == {T0: [b"1", b"2"]}
        assert pauses.made == [0.1]


def test_a_partition_that_moves_is_followed():
    with ScriptedKafka(node_id=1) as one, ScriptedKafka(node_id=2) as two:
        cluster = Cluster([one, two], topics={"t": [1]})

        def moved(request: FetchRequest, version: int) -> FetchResponse:
            cluster.topics["t"] = [2]
            response: FetchResponse = failing(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request, version)
            return response

        one.answers[FetchRequest], two.answers[FetchRequest] = moved, answering({0: LOG})
        with client_of(one, two) as client:
            assert values(fetcher(client, {T0: 2}).fetch()) == {T0: [b"2"]}


def test_a_topic_that_stays_missing_is_believed_after_a_while():
    with ScriptedKafka() as server:
        Cluster([server])
        pauses = Pauses()
        with client_of(server, pauses=pauses) as client, pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            fetcher(client, {T0: 0}).fetch()
        assert len(pauses.made) == 4


def test_a_topic_that_was_created_again_ends_the_reading():
    with ScriptedKafka() as server:
        server.answers[FetchRequest] = failing(ErrorCode.UNKNOWN_TOPIC_ID)
        cluster = Cluster([server], topics={"t": [1]})
        server.answers[MetadataRequest] = with_topic_id(cluster, bytes(range(16)), bytes(range(1, 17)))
        with client_of(server) as client, pytest.raises(TopicReplaced):
            fetcher(client, {T0: 0}).fetch()


def test_what_cannot_pass_is_reported_at_once():
    with ScriptedKafka({FetchRequest: failing(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}) as server:
        Cluster([server], topics={"t": [1]})
        with client_of(server) as client, pytest.raises(Refused, match="partition t-0: TOPIC_AUTHORIZATION_FAILED"):
            fetcher(client, {T0: 0}).fetch()
        assert len(server.requests(FetchRequest)) == 1


def test_a_cluster_that_does_not_answer_is_given_up_when_the_time_is_over():
    with ScriptedKafka({FetchRequest: failing(ErrorCode.NOT_LEADER_OR_FOLLOWER)}) as server:
        Cluster([server], topics={"t": [1]})
        pauses = Pauses()
        with client_of(server, pauses=pauses) as client:
            reader = fetcher(client, {T0: 0})
            seconds = client.deadline.timeout_seconds
            with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
                reader.fetch()
        assert seconds - 2 < sum(pauses.made) < seconds


def list_offsets(earliest: int, latest: int) -> Any:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        [topic] = request.topics
        [partition] = topic.partitions
        offset = earliest if partition.timestamp == -2 else latest
        found = ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[found])])

    return answer


def test_records_that_are_gone_are_reported_and_passed_over():
    with ScriptedKafka({FetchRequest: failing(ErrorCode.OFFSET_OUT_OF_RANGE)}) as server:
        server.answers[ListOffsetsRequest] = list_offsets(40, 90)
        Cluster([server], topics={"t": [1]})
        lost: list[str] = []
        with client_of(server) as client:
            reader = fetcher(client, {T0: 3}, lost)
            assert reader.fetch() == []
        assert reader.positions == {T0: 40}
        assert lost == ["t-0: offsets 3 to 39 are gone; the log begins behind them"]


def test_a_log_that_became_shorter_ends_the_reading():
    with ScriptedKafka({FetchRequest: failing(ErrorCode.OFFSET_OUT_OF_RANGE)}) as server:
        server.answers[ListOffsetsRequest] = list_offsets(0, 2)
        Cluster([server], topics={"t": [1]})
        with (
            client_of(server) as client,
            pytest.raises(Refused, match="offset 3 was to be read, and the log ends at 2"),
        ):
            fetcher(client, {T0: 3}).fetch()


def test_an_answer_that_was_not_waited_for_is_not_taken_for_the_next():
    """Two leaders are asked, the first one fails: the second one's answer is still on its way."""
    with ScriptedKafka(node_id=1) as one, ScriptedKafka(node_id=2) as two:
        Cluster([one, two], topics={"t": [1, 2]})
        one.answers[FetchRequest] = [failing(ErrorCode.NOT_LEADER_OR_FOLLOWER), answering({0: LOG})]
        two.answers[FetchRequest] = answering({1: LOG})
        with client_of(one, two) as client:
            assert values(fetcher(client, {T0: 2, T1: 2}).fetch()) == {T0: [b"2"], T1: [b"2"]}


def test_aborted_transactions_are_taken_from_the_answer():
    def answer(request: FetchRequest, version: int) -> FetchResponse:
        response: FetchResponse = answering({0: [transactional(0, b"a", 7), marker(1, 7, committed=False)]})(request, 0)
        aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
        response.responses[0].partitions[0].aborted_transactions = aborted
        return response

    with ScriptedKafka({FetchRequest: answer}) as server:
        Cluster([server], topics={"t": [1]})
        with client_of(server) as client:
            assert values(fetcher(client, {T0: 0}).fetch()) == {T0: []}


def test_a_broker_that_serves_old_versions_only_is_asked_in_those():
    with ScriptedKafka({FetchRequest: answering({0: LOG})}, served=served_up_to(ApiKey.FETCH, 4)) as server:
        Cluster([server], topics={"t": [1]})
        with client_of(server) as client:
            assert values(fetcher(client, {T0: 2}).fetch()) == {T0: [b"2"]}
        assert server.versions(FetchRequest) == [4]
