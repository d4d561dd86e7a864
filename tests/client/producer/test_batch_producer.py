"""The producer against brokers that fail in every way that can be scripted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import attrs
import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from tests.client.producer.scripted_logs import (
    PRODUCER_ID,
    TOPIC_ID,
    Lost,
    ScriptedLogs,
    Trouble,
    TurnedTime,
    settings_for,
)
from tests.fakes.scripted_kafka import SILENCE, Cluster, ScriptedKafka
from trio_broker.client.errors import RecordTooLarge, WriteFailed
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.producer_batch import UnsequencedBatch
from trio_broker.common.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)

ALL_RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
]


@attrs.define
class Scene:
    """One broker with the topic ``orders`` of two partitions, and a producer whose time is turned."""

    server: ScriptedKafka
    cluster: Cluster
    logs: ScriptedLogs
    time: TurnedTime
    producer: BatchProducer

    def deliver(self, *batches: UnsequencedBatch) -> dict[TopicPartition, int]:
        return self.producer.deliver(batches)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return self.logs.logs["orders", partition].values


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ScriptedKafka() as server:
        cluster, time = Cluster([server], {"orders": [1, 1]}), TurnedTime()
        logs = ScriptedLogs(cluster)
        with BatchProducer(settings_for(server), time.timer) as producer:
            yield Scene(server, cluster, logs, time, producer)


def batch(*values: bytes, partition: TopicPartition = ORDERS, codec: Codec = Codec.NONE) -> UnsequencedBatch:
    data = build_batch([NewRecord(1000 + number, b"k", value) for number, value in enumerate(values)], codec=codec)
    header = next(read_batches(data)).header
    return UnsequencedBatch(partition, len(values), 1000, header.max_timestamp, codec, (data[61:],))


def test_batches_are_appended_by_sequence_and_their_last_offsets_reported(scene: Scene):
    assert scene.deliver(batch(b"a", b"b"), batch(b"c")) == {ORDERS: 2}
    assert scene.deliver(batch(b"d")) == {ORDERS: 3}

    headers = [each.header for each in scene.logs.logs["orders", 0].batches]
    assert [(header.producer_id, header.base_sequence) for header in headers] == [
        (PRODUCER_ID, 0),
        (PRODUCER_ID, 2),
        (PRODUCER_ID, 3),
    ]
    assert scene.values() == [b"a", b"b", b"c", b"d"]
    assert {request.acks for request in scene.server.requests(ProduceRequest)} == {-1}


def test_one_id_serves_all_deliveries(scene: Scene):
    for _ in range(3):
        scene.deliver(batch(b"a"))

    assert len(scene.server.requests(InitProducerIdRequest)) == 1
    assert len(scene.server.requests(MetadataRequest)) == 1


def test_partitions_of_one_broker_share_a_request(scene: Scene):
    second = TopicPartition("orders", 1)

    assert scene.deliver(batch(b"a"), batch(b"b", partition=second), batch(b"c")) == {ORDERS: 1, second: 0}

    sent = [[part.index for part in request.topic_data[0].partition_data] for request in _produced(scene)]
    assert sent == [[0, 1], [0]]


def _produced(scene: Scene) -> list[ProduceRequest]:
    return scene.server.requests(ProduceRequest)


def test_a_request_is_no_larger_than_max_request_size(scene: Scene):
    second = TopicPartition("orders", 1)
    with BatchProducer(settings_for(scene.server, max_request_size=1500), scene.time.timer) as producer:
        producer.deliver([batch(bytes(900)), batch(bytes(900), partition=second)])

    assert [len(request.topic_data[0].partition_data) for request in _produced(scene)] == [1, 1]


# --- What is lost on its way ---


@pytest.mark.parametrize("trouble", list(Lost))
def test_a_lost_answer_leaves_every_record_once(scene: Scene, trouble: Lost):
    scene.logs.troubles = [trouble]

    assert scene.deliver(batch(b"a", b"b"), batch(b"c")) == {ORDERS: 2}

    assert scene.values() == [b"a", b"b", b"c"]


def test_what_is_sent_again_is_the_same_to_the_byte(scene: Scene):
    scene.logs.troubles = [Lost.AFTER_APPENDING, Lost.BEFORE_APPENDING, ErrorCode.NOT_ENOUGH_REPLICAS, None]

    scene.deliver(batch(b"a"), batch(b"b"))

    sent = [bytes(request.topic_data[0].partition_data[0].records or b"") for request in _produced(scene)]
    assert len(sent) == 5
    assert len(set(sent[:4])) == 1


def test_a_later_batch_never_overtakes_one_that_failed(scene: Scene):
    scene.logs.troubles = [ErrorCode.NOT_LEADER_OR_FOLLOWER, Lost.BEFORE_APPENDING, None, Lost.AFTER_APPENDING]

    scene.deliver(*(batch(b"%d" % number) for number in range(6)))

    assert scene.values() == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("code", ALL_RETRIED, ids=lambda code: code.name)
def test_what_may_pass_is_tried_again_where_another_broker_may_lead_by_then(scene: Scene, code: ErrorCode):
    scene.logs.troubles = [code, code]

    assert scene.deliver(batch(b"a")) == {ORDERS: 0}

    assert scene.values() == [b"a"]
    assert len(scene.server.requests(MetadataRequest)) == 3


def test_pauses_double_up_to_the_longest(scene: Scene):
    scene.logs.troubles = [ErrorCode.NOT_ENOUGH_REPLICAS] * 6

    scene.deliver(batch(b"a"))

    assert scene.time.seconds == pytest.approx(1000 + 0.1 + 0.2 + 0.4 + 0.8 + 1 + 1)


def test_a_duplicate_counts_as_written_at_an_offset_nobody_reported(scene: Scene):
    scene.logs.troubles = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]

    assert scene.deliver(batch(b"a")) == {ORDERS: -1}


def test_one_partition_that_fails_does_not_hold_up_another(scene: Scene):
    second = TopicPartition("orders", 1)
    scene.cluster.topics["orders"] = [-1, 1]
    written: list[list[bytes | None]] = []

    def elect_later() -> None:
        written.append(scene.values(1))
        if len(written) == 3:
            scene.cluster.topics["orders"] = [1, 1]

    scene.logs.on_produce = elect_later
    batches = [batch(b"%d" % number, partition=second) for number in range(4)]
    scene.deliver(batch(b"a"), *batches)

    assert written[3] == [b"0", b"1", b"2"]
    assert scene.values() == [b"a"]
    assert scene.values(1) == [b"0", b"1", b"2", b"3"]


def test_throttling_is_waited_for(scene: Scene):
    answer = scene.logs.produce

    def throttled(request: ProduceRequest, version: int) -> object:
        response = answer(request, version)
        response.throttle_time_ms = 2500
        return response

    scene.server.answers[ProduceRequest] = throttled
    scene.deliver(batch(b"a"))

    assert scene.time.seconds == 1002.5


# --- Leaders ---


def test_a_partition_is_followed_to_its_new_leader():
    with ScriptedKafka() as first, ScriptedKafka(node_id=2) as second:
        cluster, time = Cluster([first, second], {"orders": [1]}), TurnedTime()
        logs = ScriptedLogs(cluster, troubles=[None, ErrorCode.NOT_LEADER_OR_FOLLOWER])

        def move() -> None:
            cluster.topics["orders"] = [2]

        with BatchProducer(settings_for(first), time.timer) as producer:
            producer.deliver([batch(b"a")])
            logs.on_produce = move
            assert producer.deliver([batch(b"b")]) == {ORDERS: 1}

        assert logs.logs["orders", 0].values == [b"a", b"b"]
        assert len(second.requests(ProduceRequest)) == 1


def test_each_leader_gets_its_own_partitions():
    with ScriptedKafka() as first, ScriptedKafka(node_id=2) as second:
        cluster = Cluster([first, second], {"orders": [1, 2, 1]})
        logs = ScriptedLogs(cluster)
        partitions = [TopicPartition("orders", number) for number in range(3)]
        with BatchProducer(settings_for(first), TurnedTime().timer) as producer:
            producer.deliver([batch(b"%d" % each.partition, partition=each) for each in partitions])

        assert [logs.logs["orders", number].values for number in range(3)] == [[b"0"], [b"1"], [b"2"]]
        assert [part.index for part in second.requests(ProduceRequest)[0].topic_data[0].partition_data] == [1]


def test_a_broker_that_is_gone_is_looked_for_until_the_time_is_over(scene: Scene):
    scene.deliver(batch(b"a"))
    scene.server.__exit__(None, None, None)

    with pytest.raises(WriteFailed) as raised:
        scene.deliver(batch(b"b", b"c"))

    expected = "orders-0: 2 records perhaps written: not acknowledged within 120 s (delivery.timeout.ms): "
    assert str(raised.value).startswith(expected)
    assert 1119 < scene.time.seconds < 1121
    assert not scene.producer.is_usable


def test_records_that_were_surely_not_written_are_reported_as_such(scene: Scene):
    scene.cluster.topics["orders"] = [-1]

    with pytest.raises(WriteFailed, match=r"orders-0: 1 record not written: .* the partition has no leader now"):
        scene.deliver(batch(b"a"))


def test_a_broker_that_stays_silent_is_asked_again_when_its_time_is_over():
    with ScriptedKafka() as server:
        logs = ScriptedLogs(Cluster([server], {"orders": [1]}))
        server.answers[ProduceRequest] = [SILENCE, logs.produce]
        with BatchProducer(settings_for(server, request_timeout_ms=200)) as producer:
            assert producer.deliver([batch(b"a")]) == {ORDERS: 0}
        assert len(server.requests(ProduceRequest)) == 2


# --- What is refused for good ---


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the broker has lost records that it acknowledged"),
        (ErrorCode.UNKNOWN_PRODUCER_ID, "the broker has forgotten this producer"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "another producer took over this one's id"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_disagreement_about_sequences_is_never_papered_over(scene: Scene, code: ErrorCode, meaning: str):
    scene.deliver(batch(b"a", b"b"))
    scene.logs.troubles = [code]

    with pytest.raises(WriteFailed) as raised:
        scene.deliver(batch(b"c"))

    text = str(raised.value)
    assert f"orders-0: {code.name} for 1 record from sequence 2 of producer {PRODUCER_ID}: {meaning}" in text
    assert text.endswith("sending them again could write them twice")
    assert len(_produced(scene)) == 2
    assert not scene.producer.is_usable


def test_other_refusals_are_errors_at_once(scene: Scene):
    scene.logs.troubles = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    with pytest.raises(WriteFailed, match="orders-0: 1 record refused: TOPIC_AUTHORIZATION_FAILED"):
        scene.deliver(batch(b"a"))
    assert scene.time.seconds == 1000


def test_a_topic_that_does_not_exist_is_waited_for_a_little(scene: Scene):
    with pytest.raises(WriteFailed, match="there is no topic 'absent', and it is not created by being written to"):
        scene.producer.partition_count("absent")
    assert 1010 <= scene.time.seconds < 1012


def test_a_topic_that_is_being_created_is_found(scene: Scene):
    asked: list[object] = []
    answer = scene.logs.metadata

    def create(request: MetadataRequest, version: int) -> object:
        asked.append(request)
        if len(asked) == 3:
            scene.cluster.topics["new"] = [1, 1, 1]
        return answer(request, version)

    scene.server.answers[MetadataRequest] = create

    assert scene.producer.partition_count("new") == 3
    assert all(request.allow_auto_topic_creation for request in scene.server.requests(MetadataRequest))


def test_a_topic_created_anew_under_the_same_name_is_an_error(scene: Scene):
    scene.logs.topic_id = TOPIC_ID
    scene.deliver(batch(b"a"))
    scene.logs.topic_id, scene.logs.troubles = bytes(reversed(TOPIC_ID)), [ErrorCode.UNKNOWN_TOPIC_ID]

    with pytest.raises(WriteFailed, match="topic 'orders' was deleted and created again while it was written to"):
        scene.deliver(batch(b"b"))


def test_a_new_job_counts_from_zero_in_a_topic_created_anew(scene: Scene):
    scene.logs.topic_id = TOPIC_ID
    scene.deliver(batch(b"a"))
    scene.logs.topic_id = bytes(reversed(TOPIC_ID))
    scene.logs.logs.clear()

    scene.producer.begin()
    scene.deliver(batch(b"b"))

    assert scene.values() == [b"b"]


def test_no_producer_id_is_an_error(scene: Scene):
    scene.server.answers[InitProducerIdRequest] = InitProducerIdResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1
    )
    with pytest.raises(WriteFailed, match="the brokers give out no producer id: CLUSTER_AUTHORIZATION_FAILED"):
        scene.deliver(batch(b"a"))


def test_a_producer_id_is_waited_for_while_brokers_start(scene: Scene):
    scene.server.answers[InitProducerIdRequest] = [
        InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1),
        InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0),
    ]
    scene.deliver(batch(b"a"))

    assert scene.values() == [b"a"]


# --- Versions ---


def test_topics_go_by_id_where_both_sides_can(scene: Scene):
    scene.logs.topic_id = TOPIC_ID
    scene.deliver(batch(b"a"))

    assert scene.server.versions(ProduceRequest) == [13]
    assert scene.server.versions(InitProducerIdRequest) == [5]
    assert _produced(scene)[0].topic_data[0].topic_id == TOPIC_ID


def test_topics_go_by_name_where_brokers_have_no_ids(scene: Scene):
    scene.deliver(batch(b"a"))

    assert scene.server.versions(ProduceRequest) == [12]


def test_old_brokers_are_spoken_to_in_their_version():
    newest = {ApiKey.PRODUCE: 7, ApiKey.INIT_PRODUCER_ID: 1, ApiKey.METADATA: 5}
    served = {int(key): (0, high) for key, high in newest.items()}
    with ScriptedKafka(served=served) as server:
        logs = ScriptedLogs(Cluster([server], {"orders": [1]}))
        with BatchProducer(settings_for(server), TurnedTime().timer) as producer:
            assert producer.deliver([batch(b"a", codec=Codec.ZSTD)]) == {ORDERS: 0}
        assert logs.logs["orders", 0].values == [b"a"]
        assert server.versions(ProduceRequest) == [7]


def test_a_broker_without_producer_ids_is_refused():
    with ScriptedKafka(served={ApiKey.INIT_PRODUCER_ID: (0, -1)}) as server:
        ScriptedLogs(Cluster([server], {"orders": [1]}))
        with (
            BatchProducer(settings_for(server), TurnedTime().timer) as producer,
            pytest.raises(WriteFailed, match="does not serve InitProducerId"),
        ):
            producer.deliver([batch(b"a")])


# --- What is too large ---


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_batch_that_is_too_large_goes_in_halves(scene: Scene, codec: Codec):
    values = [hashlib.sha256(b"%d" % number).digest() for number in range(40)]
    scene.logs.logs["orders", 0].largest_bytes = 420

    assert scene.deliver(batch(*values, codec=codec), batch(b"last", codec=codec)) == {ORDERS: 40}

    assert scene.values() == [*values, b"last"]
    batches = scene.logs.logs["orders", 0].batches
    assert len(batches) > 2
    assert all(each.header.codec is codec for each in batches)
    assert [record.timestamp for record in scene.logs.logs["orders", 0].records[:40]] == list(range(1000, 1040))


def test_lost_answers_do_no_harm_to_halves(scene: Scene):
    scene.logs.logs["orders", 0].largest_bytes = 300
    troubles: list[Trouble] = [None, Lost.AFTER_APPENDING, None, Lost.BEFORE_APPENDING, Lost.AFTER_APPENDING]
    scene.logs.troubles = troubles
    values = [bytes([number]) * 50 for number in range(16)]

    scene.deliver(batch(*values))

    assert scene.values() == values


def test_a_record_that_is_too_large_is_named_with_the_limit(scene: Scene):
    scene.logs.logs["orders", 0].largest_bytes = 200
    entry = DescribeConfigsResourceResult(
        name="max.message.bytes", value="200", read_only=False, is_sensitive=False, synonyms=[]
    )
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="orders", configs=[entry]
    )
    scene.server.answers[DescribeConfigsRequest] = DescribeConfigsResponse(results=[result])

    with pytest.raises(RecordTooLarge) as raised:
        scene.deliver(batch(b"small", bytes(500), b"behind"))

    assert str(raised.value) == (
        "orders-0: a record of 571 bytes with its batch is too large: the limit is 200 bytes (max.message.bytes of the"
        " topic)"
    )


def test_a_record_larger_than_a_request_is_not_sent(scene: Scene):
    with (
        BatchProducer(settings_for(scene.server, max_request_size=2000), scene.time.timer) as producer,
        pytest.raises(RecordTooLarge, match=r"the limit is 2000 bytes \(max.request.size\)"),
    ):
        producer.deliver([batch(b"a", bytes(3000))])


def test_a_batch_larger_than_a_request_goes_in_halves(scene: Scene):
    with BatchProducer(settings_for(scene.server, max_request_size=2000), scene.time.timer) as producer:
        producer.deliver([batch(*[bytes(500)] * 8)])

    assert scene.values() == [bytes(500)] * 8
    assert all(len(data) <= 2000 for data in scene.logs.logs["orders", 0].raw)


# --- Other acks than all ---


def test_without_acks_of_all_replicas_no_producer_id_is_asked_for(scene: Scene):
    with BatchProducer(settings_for(scene.server, acks=1), scene.time.timer) as producer:
        assert producer.deliver([batch(b"a"), batch(b"b", b"c")]) == {ORDERS: 2}

    assert scene.server.requests(InitProducerIdRequest) == []
    assert [request.acks for request in _produced(scene)] == [1, 1]
    headers = [each.header for each in scene.logs.logs["orders", 0].batches]
    assert {(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers} == {(-1, -1, -1)}


def test_without_sequences_what_was_surely_not_written_is_tried_again(scene: Scene):
    scene.logs.troubles = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with BatchProducer(settings_for(scene.server, acks=1), scene.time.timer) as producer:
        producer.deliver([batch(b"a")])
    assert scene.values() == [b"a"]


@pytest.mark.parametrize("trouble", [*Lost, ErrorCode.REQUEST_TIMED_OUT])
def test_without_sequences_what_was_perhaps_written_is_not_sent_again(scene: Scene, trouble: Trouble):
    scene.logs.troubles = [trouble]
    with (
        BatchProducer(settings_for(scene.server, acks=1), scene.time.timer) as producer,
        pytest.raises(WriteFailed, match=r"orders-0: 1 record perhaps written: .*; only acks=all can send again"),
    ):
        producer.deliver([batch(b"a")])
    assert len(_produced(scene)) == 1


def test_without_acks_no_answer_is_waited_for(scene: Scene):
    with BatchProducer(settings_for(scene.server, acks=0), scene.time.timer) as producer:
        assert producer.deliver([batch(b"a"), batch(b"b")]) == {ORDERS: -1}
    scene.server.join()
    assert scene.values() == [b"a", b"b"]


def test_a_batch_without_sequence_is_halved_too(scene: Scene):
    scene.logs.logs["orders", 0].largest_bytes = 1000
    with BatchProducer(settings_for(scene.server, acks=1), scene.time.timer) as producer:
        producer.deliver([batch(*(bytes(400) for _ in range(4)))])
    assert [each.header.base_sequence for each in scene.logs.logs["orders", 0].batches] == [-1, -1]
    assert len(scene.values()) == 4


def test_a_topic_is_created_by_being_written_to_only_if_that_is_wanted(scene: Scene):
    for wanted in (False, True):
        with BatchProducer(settings_for(scene.server, allow_auto_topic_creation=wanted), scene.time.timer) as producer:
            producer.partition_count("orders")
            with pytest.raises(WriteFailed, match="there is no topic 'absent', and it is not created"):
                producer.partition_count("absent")
            assert (scene.time.seconds > 1000) == wanted
        assert scene.server.requests(MetadataRequest)[-1].allow_auto_topic_creation == wanted
