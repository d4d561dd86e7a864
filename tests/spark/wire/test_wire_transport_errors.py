"""Reading a range while its leader moves, restarts, or loses what was to be read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.fetch import FetchRequest, FetchResponse
from kafka_wire.messages.list_offsets import ListOffsetsRequest
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.primitives import uuid_text
from tests.client.scripted_client import unused_port
from tests.fakes.scripted_kafka import CLOSED, HOST, SILENCE, Raw, ScriptedKafka
from tests.spark.scripted_partition import (
    ORDERS_0,
    POLL_TIMEOUT_MS,
    TOPIC,
    TOPIC_ID,
    Reading,
    ScriptedPartition,
    Transaction,
    base_offsets,
    batch,
    batches,
    reading,
)
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.decoder import decode
from trio_broker.spark.errors import CorruptData, DataLoss, SourceUnavailable
from trio_broker.spark.ranges import OffsetRange

ONE_BATCH_BYTES = 1
OTHER_ID = bytes(reversed(range(16)))
WHOLE = list(range(0, 100, 10))

every_transient_trouble = pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[]),
        FetchResponse(responses=[]),
        CLOSED,
        Raw((b"\0\0\0\x20\0\0",)),
        Raw((b"HTTP/1.1 503 Service Unavailable\r\n",)),
    ],
    ids=lambda trouble: trouble.name if isinstance(trouble, ErrorCode) else type(trouble).__name__,
)


def small(each: Reading, **changes: Any) -> Any:
    """Settings with which every answer has one batch."""
    return each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES, **changes)


# What passes


@every_transient_trouble
@pytest.mark.parametrize("ask_ahead", [True, False])
def test_what_goes_wrong_for_a_moment_costs_a_pause_and_no_record(trouble: Any, ask_ahead: bool):
    with (
        reading(ScriptedPartition(batches(0, 100), troubles=[trouble])) as each,
        each.opened(0, 100, kafka=small(each), ask_ahead=ask_ahead) as chunks,
    ):
        found = base_offsets([next(chunks)])
        each.partition.troubles = [trouble, trouble]
        found += base_offsets(list(chunks))
        assert found == WHOLE
        assert each.partition.troubles == []
        assert each.pauses.made == pytest.approx([0.1, 0.1, 0.2])
        assert len(each.server.requests(MetadataRequest)) >= 4, "who leads is asked for each time"


def test_the_leader_is_followed():
    with (
        reading(ScriptedPartition(batches(0, 100))) as each,
        ScriptedKafka(node_id=2) as other,
        each.opened(0, 100, kafka=small(each)) as chunks,
    ):
        found = base_offsets([next(chunks)])

        each.cluster.servers.append(other)
        each.cluster.topics[TOPIC] = [2]
        each.partition.troubles = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        ScriptedPartition(each.partition.batches).on(other, each.cluster)
        found += base_offsets([next(chunks)])
        assert other.requests(FetchRequest)[0].topics[0].partitions[0].fetch_offset == 10
        found += base_offsets(list(chunks))
        assert found == WHOLE


def test_the_leader_is_followed_from_one_that_does_not_know_that_it_was_replaced():
    """Its log ends where it was cut off from the others."""
    with (
        reading(ScriptedPartition(batches(0, 50))) as each,
        ScriptedKafka(node_id=2) as other,
        each.opened(0, 100) as chunks,
    ):
        found = base_offsets([next(chunks)])
        each.cluster.servers.append(other)
        each.cluster.topics[TOPIC] = [2]
        ScriptedPartition(batches(0, 100)).on(other, each.cluster)
        assert found + base_offsets(list(chunks)) == WHOLE


def test_a_partition_without_a_leader_is_waited_for():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        each.cluster.topics[TOPIC] = [-1]
        answered = iter(range(4))

        def metadata(request: MetadataRequest, version: int) -> Any:
            if next(answered, None) is None:
                each.cluster.topics[TOPIC] = [1]
            return each.cluster.metadata(request, version)

        each.server.answers[MetadataRequest] = metadata
        assert base_offsets(each.chunks(0, 100)) == WHOLE
        assert len(each.pauses.made) == 4


def test_a_silent_broker_is_left_after_the_request_timeout():
    with reading(ScriptedPartition(batches(0, 20), troubles=[SILENCE])) as each:
        assert base_offsets(each.chunks(0, 20, kafka=each.with_settings(request_timeout_ms=50))) == [0, 10]
        assert each.pauses.made == [0.1]


def test_every_step_renews_the_timeout():
    with reading(ScriptedPartition(batches(0, 1000))) as each:
        trouble = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5
        with each.opened(0, 1000, kafka=small(each)) as chunks:
            for _ in chunks:
                each.partition.troubles = list(trouble)
            assert sum(each.pauses.made) > 5 * POLL_TIMEOUT_MS / 1000


def test_the_time_that_the_decoder_takes_does_not_count_towards_the_timeout():
    with (
        reading(ScriptedPartition(batches(0, 100))) as each,
        each.opened(0, 100, kafka=small(each), ask_ahead=True) as chunks,
    ):
        found: list[Chunk] = []
        for chunk in chunks:
            each.pauses.made.append(10 * POLL_TIMEOUT_MS / 1000)
            found.append(chunk)
        assert base_offsets(found) == WHOLE


# What does not pass


def failure(each: Reading, kind: type[Exception], start: int = 0, end: int = 100, **changes: Any) -> str:
    with pytest.raises(kind) as raised:
        each.chunks(start, end, **changes)
    return str(raised.value)


def test_without_progress_for_the_poll_timeout_the_partition_the_offset_and_the_last_failure_are_reported():
    with reading(ScriptedPartition(batches(0, 100), troubles=[ErrorCode.LEADER_NOT_AVAILABLE] * 1000)) as each:
        text = failure(each, SourceUnavailable, 30)
        assert "orders-0 at offset 30: no progress for 20 s" in text
        assert f"broker {each.server.address}: Fetch of orders-0: LEADER_NOT_AVAILABLE" in text
        assert 18 < sum(each.pauses.made) < 20


def test_a_leader_that_is_not_there_is_reported_with_its_address():
    port = unused_port()
    with reading(ScriptedPartition(batches(0, 100))) as each:
        each.cluster.other_nodes[2] = (HOST, port)
        each.cluster.topics[TOPIC] = [2]
        text = failure(each, SourceUnavailable)
        assert f"broker 2: cannot connect to {HOST}:{port}: Connection refused" in text


def test_a_cluster_that_is_not_there_is_reported_in_one_line():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        [address] = each.transport.kafka.bootstrap_servers
    text = failure(each, SourceUnavailable)
    assert f"no progress for 20 s: cannot connect to {address}" in text
    assert "\n" not in text


def test_answers_without_records_are_asked_again_until_the_poll_timeout():
    with reading(ScriptedPartition([batch(0)], high_watermark=100)) as each:
        text = failure(each, SourceUnavailable, 5)
        assert "orders-0 at offset 10: no progress for 20 s" in text
        assert f"broker {each.server.address} answers without records, although its last stable offset is 100" in text
        assert len(each.fetches) > 10


def test_records_that_come_late_are_read():
    with reading(ScriptedPartition(batches(0, 20))) as each:
        each.partition.troubles = [each.partition.nothing] * 4
        assert base_offsets(each.chunks(0, 20)) == [0, 10]
        assert each.pauses.made == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_a_permission_that_is_missing_is_reported_at_once():
    with reading(ScriptedPartition(batches(0, 100), troubles=[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 9)) as each:
        assert "orders-0 at offset 0" in failure(each, SourceUnavailable)
        assert each.pauses.made == []


def test_a_broker_without_a_version_of_fetch_that_we_speak_is_reported_at_once():
    with reading(ScriptedPartition(batches(0, 100)), served={1: (0, 3)}) as each:
        assert "Fetch in versions 0-3; versions 4-18 are needed" in failure(each, SourceUnavailable)
        assert each.pauses.made == []


# What is gone


def test_a_range_that_begins_before_the_log_is_lost_data():
    with reading(ScriptedPartition(batches(50, 100), log_start_offset=50)) as each:
        each.partition.troubles = [ErrorCode.OFFSET_OUT_OF_RANGE]
        text = failure(each, DataLoss, 20)
        assert text == "orders-0 at offset 20: the log begins at offset 50 now and ends at 100"


def test_without_fail_on_data_loss_a_range_goes_on_where_the_log_begins(caplog: pytest.LogCaptureFixture):
    with reading(ScriptedPartition(batches(50, 100), log_start_offset=50)) as each:
        each.partition.troubles = [ErrorCode.OFFSET_OUT_OF_RANGE]
        first, *others = each.chunks(20, 100, fail_on_data_loss=False, kafka=small(each))
        assert base_offsets([first, *others]) == [50, 60, 70, 80, 90]
        assert first.resumes_at == 50
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith("orders-0: skipping offsets 20 to 49: the log begins at offset 50")


def test_without_fail_on_data_loss_a_range_before_the_log_is_empty(caplog: pytest.LogCaptureFixture):
    with reading(ScriptedPartition(batches(50, 100), log_start_offset=50)) as each:
        each.partition.troubles = [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert each.chunks(20, 40, fail_on_data_loss=False) == []
        assert "skipping offsets 20 to 39" in caplog.text


def test_retention_that_overtakes_the_reader_is_lost_data():
    with reading(ScriptedPartition(batches(0, 100))) as each, each.opened(0, 100, kafka=small(each)) as chunks:
        next(chunks)
        each.partition.log_start_offset = 50
        each.partition.troubles = [ErrorCode.OFFSET_OUT_OF_RANGE]
        with pytest.raises(DataLoss, match="orders-0 at offset 10: the log begins at offset 50"):
            next(chunks)


def test_a_log_that_begins_later_only_since_its_answer_was_read_has_lost_nothing_yet():
    with reading(ScriptedPartition(batches(0, 20))) as each:
        each.partition.log_start_offset = 20
        assert base_offsets(each.chunks(0, 20)) == [0, 10]


def test_a_hole_up_to_the_new_log_start_is_no_compaction():
    with reading(ScriptedPartition(batches(50, 100), log_start_offset=50)) as each:
        assert "the log begins at offset 50 now" in failure(each, DataLoss, 20)


def test_behind_a_loss_nothing_before_the_log_start_is_a_row_and_no_lost_abort_goes_on():
    """Producer 7 aborted, then committed; that it aborted was never seen, since that marker is lost."""
    of_seven: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    before = [batch(0), batch(10, **of_seven)]
    partition = ScriptedPartition([*before, *batches(20, 70)], aborted=[Transaction(7, 10, 40)])

    def overtaken(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        yield next(chunks)
        yield next(chunks)
        partition.batches = [batch(50), batch(60, **of_seven)]
        partition.log_start_offset = 55
        partition.troubles = [ErrorCode.OFFSET_OUT_OF_RANGE]
        yield from chunks

    with (
        reading(partition) as each,
        each.opened(0, 70, kafka=small(each), fail_on_data_loss=False) as chunks,
    ):
        rows = decode(overtaken(chunks), OffsetRange(ORDERS_0, 0, 70), Decoding(columns=("offset",)))
        offsets = [offset for found in rows for offset in found.column("offset").to_pylist()]
        assert offsets == [*range(10), *range(55, 70)]


def test_a_log_that_was_cut_before_the_wanted_offset_is_lost_data(caplog: pytest.LogCaptureFixture):
    with reading(ScriptedPartition(batches(0, 50), troubles=[ErrorCode.OFFSET_OUT_OF_RANGE] * 2)) as each:
        text = failure(each, DataLoss, 70)
        assert text == "orders-0 at offset 70: the log was cut: it begins at offset 0 and ends at 50"
        assert each.chunks(70, 100, fail_on_data_loss=False) == []
        assert "skipping offsets 70 to 99" in caplog.text


def test_a_log_that_was_cut_within_the_range_is_lost_data_after_the_poll_timeout():
    """A new leader may not have heard how far the log is replicated, so its high watermark may still grow."""
    with reading(ScriptedPartition(batches(0, 50))) as each:
        text = failure(each, DataLoss, 20)
        assert text == "orders-0 at offset 50: the log was cut: its last stable offset is 50, and 100 was planned with"
        assert sum(each.pauses.made) > 18
        assert base_offsets(each.chunks(20, 100, fail_on_data_loss=False)) == [20, 30, 40]


def test_an_offset_out_of_range_that_the_log_has_is_asked_for_again_and_reported_in_the_end():
    with reading(ScriptedPartition(batches(0, 100), troubles=[ErrorCode.OFFSET_OUT_OF_RANGE] * 1000)) as each:
        assert "OFFSET_OUT_OF_RANGE" in failure(each, SourceUnavailable, 20)
        assert len(each.server.requests(ListOffsetsRequest)) > 10


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_that_its_leader_does_not_know_is_lost_data_soon(code: ErrorCode):
    with reading(ScriptedPartition(batches(0, 100), troubles=[code] * 100)) as each:
        assert f"orders-0 at offset 0: broker {each.server.address}: Fetch of orders-0: {code.name}" in failure(
            each, DataLoss
        )
        assert 1 < sum(each.pauses.made) < 2


def test_a_deleted_topic_is_lost_data():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        del each.cluster.topics[TOPIC]
        assert "topic 'orders': UNKNOWN_TOPIC_OR_PARTITION" in failure(each, DataLoss)
        assert each.chunks(0, 100, fail_on_data_loss=False) == []


def test_a_topic_with_fewer_partitions_than_planned_is_lost_data():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        each.cluster.topics[TOPIC] = []
        assert "partition orders-0: UNKNOWN_TOPIC_OR_PARTITION" in failure(each, DataLoss)


def test_a_topic_that_was_created_again_since_the_plan_is_lost_data():
    with reading(ScriptedPartition(batches(0, 100), topic_id=OTHER_ID)) as each:
        text = failure(each, DataLoss, topic_id=uuid_text(TOPIC_ID))
        assert "topic 'orders': INCONSISTENT_TOPIC_ID: it was deleted and created again" in text
        assert uuid_text(OTHER_ID) in text
        assert each.fetches == []
        assert each.pauses.made == []


def test_a_topic_that_is_created_again_during_the_task_is_lost_data():
    with reading(ScriptedPartition(batches(0, 100))) as each, each.opened(0, 100, kafka=small(each)) as chunks:
        next(chunks)
        each.partition.topic_id = OTHER_ID
        each.partition.troubles = [ErrorCode.UNKNOWN_TOPIC_ID]
        with pytest.raises(DataLoss, match="deleted and created again"):
            next(chunks)


# What makes no sense


def test_a_broker_that_finds_its_own_records_corrupt_is_believed():
    with reading(ScriptedPartition(batches(0, 100), troubles=[ErrorCode.CORRUPT_MESSAGE])) as each:
        assert "orders-0 at offset 30" in failure(each, CorruptData, 30)


def test_batches_before_the_damage_come_first():
    damaged = bytearray(batch(20))
    damaged[16] = 9
    with reading(ScriptedPartition([batch(0), batch(10), bytes(damaged)])) as each, each.opened(0, 100) as chunks:
        assert base_offsets([next(chunks)]) == [0, 10]
        with pytest.raises(CorruptData, match=r"orders-0 at offset 20: broker .*magic 9") as raised:
            next(chunks)
        assert (raised.value.partition, raised.value.offset) == (ORDERS_0, 20)


def test_damage_behind_the_range_is_nobodys_business():
    damaged = bytearray(batch(20))
    damaged[16] = 9
    with reading(ScriptedPartition([batch(0), batch(10), bytes(damaged)])) as each:
        assert base_offsets(each.chunks(0, 20)) == [0, 10]


def test_a_broker_that_repeats_itself_is_no_progress(monkeypatch):
    with reading(ScriptedPartition(batches(0, 100))) as each:
        monkeypatch.setattr(each.partition, "read", lambda offset, max_bytes: (batch(0), 10))
        assert "orders-0 at offset 10: no progress" in failure(each, SourceUnavailable)
