"""Producer states: duplicates, gaps, epochs, wrap-around, transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_wire.records.batch import BatchHeader, read_batch_header
from trio_broker.storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from trio_broker.storage.producer_state import MAX_REFUSED, ProducerStates, TransactionMarker
from trio_broker.storage.transaction_index import AbortedTransaction

MAX = 2**31 - 1
Header = Callable[..., BatchHeader]


@pytest.fixture
def header(batch: Callable[..., bytearray]) -> Header:
    """A header of a batch of producer 7 at a given offset."""

    def make(sequence: int, offset: int = 0, count: int = 1, epoch: int = 0, **kwargs: object) -> BatchHeader:
        data = batch(count, producer_id=7, producer_epoch=epoch, sequence=sequence, **kwargs)
        made = read_batch_header(data)
        made.base_offset = offset
        return made

    return make


@pytest.fixture
def states() -> ProducerStates:
    return ProducerStates()


def marker(offset: int, *, aborted: bool = True, epoch: int = 0, coordinator_epoch: int = 3) -> TransactionMarker:
    return TransactionMarker(7, epoch, coordinator_epoch, offset, 0, aborted)


def test_the_last_five_batches_are_recognised_and_the_sixth_is_not(states: ProducerStates, header: Header):
    for index in range(6):
        states.update(header(index * 2, 100 + index * 2, count=2))
    assert states.duplicate_of(header(0, count=2)) is None
    for index in range(1, 6):
        repeated = states.duplicate_of(header(index * 2, count=2))
        assert repeated is not None
        assert (repeated.first_offset, repeated.last_offset) == (100 + index * 2, 101 + index * 2)
    with pytest.raises(OutOfOrderSequence):
        states.check_sequence(header(0, count=2))


def test_batches_before_a_producer_was_forgotten_are_no_duplicates(states: ProducerStates, header: Header):
    """As a start reads them that finds all in the log (power-cut seed 13005919)."""
    states.update(header(0, 100))
    states.update(header(1, 101))
    states.update(header(0, 106))
    assert states.duplicate_of(header(1)) is None
    states.check_sequence(header(1))
    repeated = states.duplicate_of(header(0))
    assert repeated is not None
    assert repeated.first_offset == 106


def test_a_batch_that_overlaps_another_is_no_duplicate(states: ProducerStates, header: Header):
    states.update(header(0, count=4))
    assert states.duplicate_of(header(0, count=3)) is None
    with pytest.raises(OutOfOrderSequence):
        states.check_sequence(header(2, count=2))


def test_a_gap_is_out_of_order(states: ProducerStates, header: Header):
    states.update(header(0))
    states.check_sequence(header(1))
    with pytest.raises(OutOfOrderSequence):
        states.check_sequence(header(2))


def test_a_producer_nobody_remembers_may_begin_anywhere(states: ProducerStates, header: Header):
    states.check_epoch(header(1234))
    states.check_sequence(header(1234))


def test_an_old_epoch_is_fenced(states: ProducerStates, header: Header):
    states.update(header(0, epoch=5))
    with pytest.raises(InvalidProducerEpoch):
        states.check_epoch(header(1, epoch=4))


def test_a_new_epoch_begins_at_zero(states: ProducerStates, header: Header):
    states.update(header(0))
    states.check_sequence(header(0, epoch=1))
    with pytest.raises(OutOfOrderSequence):
        states.check_sequence(header(1, epoch=1))
    states.update(header(0, 1, epoch=1))
    assert states.duplicate_of(header(0)) is None
    assert states.duplicate_of(header(0, epoch=1)) is not None


def test_sequences_wrap_to_zero(states: ProducerStates, header: Header):
    states.update(header(MAX - 1, 10, count=4))
    repeated = states.duplicate_of(header(MAX - 1, count=4))
    assert repeated is not None
    assert (repeated.first_sequence, repeated.last_sequence) == (MAX - 1, 1)
    states.check_sequence(header(2))
    states.update(header(2, 14, count=1))
    with pytest.raises(OutOfOrderSequence):
        states.check_sequence(header(MAX))


def test_after_the_largest_sequence_zero_is_next(states: ProducerStates, header: Header):
    states.update(header(MAX))
    states.check_sequence(header(0))


def test_an_open_transaction_holds_the_first_unstable_offset(states: ProducerStates, header: Header):
    states.update(header(0, 10, transactional=True))
    states.update(header(1, 11, transactional=True))
    assert states.transactions.first_unstable_offset == 10
    assert states.complete(marker(12)) == AbortedTransaction(7, 10, 12, last_stable_offset=13)


def test_a_decided_transaction_is_unstable_until_its_marker_is_replicated(states: ProducerStates, header: Header):
    states.update(header(0, 10, transactional=True))
    states.complete(marker(12))
    states.transactions.advance_high_watermark(12)
    assert states.transactions.first_unstable_offset == 10
    states.transactions.advance_high_watermark(13)
    assert states.transactions.first_unstable_offset is None


def test_a_marker_without_records_completes_nothing(states: ProducerStates):
    assert states.complete(marker(5)) is None
    assert states.producers[7].coordinator_epoch == 3


def test_a_plain_write_inside_a_transaction_is_refused(states: ProducerStates, header: Header):
    states.update(header(0, transactional=True))
    with pytest.raises(InvalidTransactionState):
        states.check_epoch(header(1))
    states.check_epoch(header(1, transactional=True))


def test_markers_of_fenced_producers_and_coordinators_are_refused(states: ProducerStates):
    states.complete(marker(5, epoch=2, coordinator_epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        states.check_marker(marker(6, epoch=1))
    with pytest.raises(TransactionCoordinatorFenced):
        states.check_marker(marker(6, epoch=2, coordinator_epoch=2))
    states.check_marker(marker(6, epoch=2))


def test_silent_producers_expire_unless_a_transaction_is_open(states: ProducerStates, header: Header, now_ms: int):
    states.update(header(0, transactional=True))
    assert states.remove_expired(now_ms + 1000, 1000) == 0
    states.complete(TransactionMarker(7, 0, 0, 1, now_ms, aborted=False))
    assert states.remove_expired(now_ms + 999, 1000) == 0
    assert states.remove_expired(now_ms + 1000, 1000) == 1


def test_older_batches_are_put_back_only_in_an_unbroken_row(states: ProducerStates, header: Header):
    states.update(header(5, 105))
    for sequence in (4, 2, 3, 1):
        states.remember_older(header(sequence, 100 + sequence))
    assert [batch.last_sequence for batch in states.producers[7].batches] == [3, 4, 5]
    states.remember_older(header(2, 102, epoch=1))
    assert len(states.producers[7].batches) == 3


def test_refused_batches_are_remembered_of_some_producers_only(states: ProducerStates, header: Header):
    """A client may name any producer, and none of them is known."""
    later = header(4, transactional=True)
    states.note_refused(7, 0, 3)
    for producer_id in range(100, 99 + MAX_REFUSED):
        states.note_refused(producer_id, 0, 0)
    with pytest.raises(OutOfOrderSequence):
        states.check_sequence(later)
    states.note_refused(99, 0, 0)
    states.check_sequence(later)
