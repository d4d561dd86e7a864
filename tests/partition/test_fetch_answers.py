"""What a follower does with each answer of its leader."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.fetch import EpochEndOffset, PartitionData
from trio_broker.partition.fetch_answers import (
    Append,
    AwaitLeader,
    AwaitMetadata,
    Delay,
    FindRange,
    FollowerPosition,
    Truncate,
    next_step,
    step_into_range,
    truncation_offset,
)
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.leader_epochs import EpochEntry, LeaderEpochs

ASKED = FollowerPosition(leader_epoch=7, fetch_offset=30, last_fetched_epoch=5, log_start_offset=0)


def epochs_of(**starts: int) -> LeaderEpochs:
    """``e2=10``: epoch 2 begins at offset 10."""
    entries = [EpochEntry(int(name[1:]), start) for name, start in starts.items()]
    return LeaderEpochs(RealDisk(), Path("unused"), entries)


EPOCHS = epochs_of(e2=0, e4=10, e5=20)


def answer(code: int = 0, *, diverging: EpochEndOffset | None = None, records: bytes | None = b"") -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=29,
        log_start_offset=3,
        diverging_epoch=diverging or EpochEndOffset(),
        aborted_transactions=None,
        records=records,
    )


@pytest.mark.parametrize("records", [b"batch", b"", None])
def test_what_the_leader_has_is_appended_with_its_offsets(records):
    step = next_step(ASKED, ASKED, EPOCHS, answer(records=records))
    assert isinstance(step, Append)
    assert (bytes(step.records), step.high_watermark, step.log_start_offset) == (records or b"", 29, 3)


@pytest.mark.parametrize(
    "present",
    [
        FollowerPosition(leader_epoch=8, fetch_offset=30, last_fetched_epoch=5, log_start_offset=0),
        FollowerPosition(leader_epoch=7, fetch_offset=20, last_fetched_epoch=4, log_start_offset=0),
        FollowerPosition(leader_epoch=7, fetch_offset=31, last_fetched_epoch=5, log_start_offset=0),
    ],
    ids=["another leader epoch", "a log that was cut", "a log that has grown"],
)
@pytest.mark.parametrize(
    "stale",
    [
        answer(records=b"batch"),
        answer(diverging=EpochEndOffset(epoch=4, end_offset=15)),
        answer(ErrorCode.OFFSET_OUT_OF_RANGE),
        answer(ErrorCode.FENCED_LEADER_EPOCH),
    ],
    ids=["records", "divergence", "out of range", "fenced"],
)
def test_an_answer_to_an_earlier_question_counts_no_more(present, stale):
    assert next_step(ASKED, present, EPOCHS, stale) is None


def test_what_comes_beside_a_divergence_is_not_taken():
    step = next_step(ASKED, ASKED, EPOCHS, answer(diverging=EpochEndOffset(epoch=4, end_offset=15), records=b"batch"))
    assert step == Truncate(15)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, FindRange),
        (ErrorCode.FENCED_LEADER_EPOCH, AwaitMetadata),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, AwaitLeader),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, AwaitLeader),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, AwaitLeader),
        (ErrorCode.UNKNOWN_TOPIC_ID, AwaitLeader),
        (ErrorCode.INCONSISTENT_TOPIC_ID, Delay),
        (ErrorCode.KAFKA_STORAGE_ERROR, Delay),
        (ErrorCode.CORRUPT_MESSAGE, Delay),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Delay),
        (12345, Delay),
    ],
)
def test_each_error_has_its_consequence(code, kind):
    assert isinstance(next_step(ASKED, ASKED, EPOCHS, answer(code)), kind)


@pytest.mark.parametrize(
    ("own", "log_end", "leader_epoch", "leader_end", "cut"),
    [
        (EPOCHS, 30, 5, 25, 25),
        (EPOCHS, 30, 4, 15, 15),
        (EPOCHS, 30, 4, 25, 20),
        (EPOCHS, 30, 3, 18, 10),
        (EPOCHS, 30, 1, 5, 0),
        (epochs_of(e4=10, e5=20), 30, 2, 8, 8),
        (epochs_of(e4=10, e5=20), 30, 2, 18, 10),
        (epochs_of(e5=20), 20, 4, 15, 15),
        (epochs_of(), 30, 4, 15, 15),
        (epochs_of(), 10, 4, 15, 10),
    ],
    ids=[
        "the leader has less of the last epoch",
        "the leader has less of an earlier epoch",
        "the leader has more of an earlier epoch",
        "an epoch unknown here: all later ones go",
        "an epoch before all: all goes",
        "an epoch before the log start, which ends before it",
        "an epoch before the log start, which ends behind it",
        "an epoch was begun here and has no records",
        "no epoch is known",
        "no epoch is known, and the leader has more",
    ],
)
def test_a_log_is_cut_where_both_may_be_the_same(own, log_end, leader_epoch, leader_end, cut):
    assert truncation_offset(own, log_end, leader_epoch, leader_end) == cut


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "step"),
    [(0, 20, Truncate(20)), (40, 50, Truncate(40, begins_anew=True)), (40, 40, Truncate(40, begins_anew=True))],
    ids=["ahead of the leader", "behind the leader's log start", "behind an empty log"],
)
def test_a_follower_out_of_range_goes_where_the_leader_is(leader_start, leader_end, step):
    assert step_into_range(ASKED, leader_start, leader_end) == step


@pytest.mark.parametrize(("leader_start", "leader_end"), [(0, 30), (30, 40), (0, 50)])
def test_a_follower_that_is_within_the_range_meanwhile_asks_again_later(leader_start, leader_end):
    assert isinstance(step_into_range(ASKED, leader_start, leader_end), Delay)
