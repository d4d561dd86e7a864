"""What a follower asks the leader of one partition for, and what it does with the answer.

Offsets, epochs and error codes in, decisions out; no I/O, no clock. The follower always asks for what follows its own
log, and names the leader epoch of its last record. Where the two logs differ, the leader says so by the largest epoch
that it has of those up to that one, and where it ends there, and the follower cuts its log at the last offset that both
may have. It never cuts at its own high watermark: what is behind that may be committed (KIP-101).

An answer counts only if the follower still follows in the epoch, and its log still ends at the offset, that it asked
with.

Source: Kafka's AbstractFetcherThread (``processFetchRequest``, ``getOffsetTruncationState``,
``fetchOffsetAndTruncate``); KIP-101, KIP-279 and KIP-595 for the cut.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import fetch
from trio_broker.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs

ERROR_CODES = frozenset(ErrorCode)

UNKNOWN_TO_LEADER = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The refusals of a leader that has yet to read the metadata by which it is followed."""


@attrs.frozen
class FollowerPosition:
    """How far a follower's log goes: ``fetch_offset`` is its end. ``last_fetched_epoch`` is that of its last record, -1
    where there is none."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


@attrs.frozen(eq=False)
class Append:
    """Append what the leader has, maybe nothing, and follow its high watermark and its log start."""

    records: memoryview
    high_watermark: int
    log_start_offset: int


@attrs.frozen
class Truncate:
    """Cut the log at ``offset``. With ``begins_anew`` it drops all that it has, and begins there."""

    offset: int
    begins_anew: bool = False


@attrs.frozen
class FindRange:
    """Ask the leader where its log begins and ends, and then ``step_into_range``."""


@attrs.frozen
class Delay:
    """Ask again after ``replica.fetch.backoff.ms``."""

    reason: str


@attrs.frozen
class AwaitLeader:
    """Ask again soon: the leader has yet to read that it leads."""

    reason: str


@attrs.frozen
class AwaitMetadata:
    """Ask no more in this leader epoch: it is over, and the metadata will tell the next."""

    reason: str


Step: TypeAlias = Append | Truncate | FindRange | Delay | AwaitLeader | AwaitMetadata
"""What follows from an answer."""


def next_step(
    asked: FollowerPosition, present: FollowerPosition, epochs: LeaderEpochs, answer: fetch.PartitionData
) -> Step | None:
    """Return what to do about ``answer``, None for one that counts no more. ``present`` and ``epochs`` are of now."""
    if (asked.leader_epoch, asked.fetch_offset) != (present.leader_epoch, present.fetch_offset):
        return None
    match answer.error_code:
        case ErrorCode.NONE:
            return _step_of_data(present, epochs, answer)
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return FindRange()
        case ErrorCode.FENCED_LEADER_EPOCH:
            return AwaitMetadata(f"leader epoch {asked.leader_epoch} is over")
        case code if code in UNKNOWN_TO_LEADER:
            return AwaitLeader(f"the leader answers {name_of(code)}")
        case code:
            return Delay(f"the leader answers {name_of(code)}")


def name_of(code: int) -> str:
    """The name of an error code, also of one that this version does not know."""
    return ErrorCode(code).name if code in ERROR_CODES else f"error {code}"


def _step_of_data(present: FollowerPosition, epochs: LeaderEpochs, answer: fetch.PartitionData) -> Step:
    diverging = answer.diverging_epoch
    if diverging.epoch != UNDEFINED_EPOCH:
        # What else the answer says is of a log that this one is not yet the beginning of.
        return Truncate(truncation_offset(epochs, present.fetch_offset, diverging.epoch, diverging.end_offset))
    return Append(memoryview(answer.records or b""), answer.high_watermark, answer.log_start_offset)


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """Return where to cut a log of which the leader has ``leader_epoch`` last, which ends at ``leader_end_offset``
    there.

    A follower without that epoch cuts all later ones, and learns at the next Fetch whether that was enough.
    """
    own = epochs.end_offset_for(leader_epoch, log_end_offset)
    if own.epoch == UNDEFINED_EPOCH:
        return min(leader_end_offset, log_end_offset)
    if own.epoch != leader_epoch:
        return min(own.end_offset, log_end_offset)
    return min(leader_end_offset, own.end_offset, log_end_offset)


def step_into_range(present: FollowerPosition, leader_start_offset: int, leader_end_offset: int) -> Step:
    """Return what to do where the leader, whose log has this range, does not have what was asked for."""
    if leader_end_offset < present.fetch_offset:
        # After an unclean election. What both have may differ, which the next Fetch finds out by the epochs.
        return Truncate(leader_end_offset)
    if leader_start_offset > present.fetch_offset:
        return Truncate(leader_start_offset, begins_anew=True)
    # The leader's log has moved since its answer.
    return Delay("the log of the leader reaches the offset now")
