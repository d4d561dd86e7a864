"""Who may do what with a transactional id, in which state, and what it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import NO_PRODUCER_ID
from kafka_wire.stored.transactions import TransactionStatus
from tests.coordinator.transactions.transaction_driver import (
    FIRST_ID,
    SETTINGS,
    START_MS,
    T0,
    T1,
    TIMEOUT_MS,
    U0,
    TransactionDriver,
    producer_of,
    replayed,
)
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions.requests import (
    AbortTransaction,
    CompleteTransaction,
    EndTransaction,
    InitProducerId,
)
from trio_broker.coordinator.transactions.transaction_machine import TransactionRecord
from trio_broker.coordinator.transactions.transaction_metadata import MAX_EPOCH, TransactionMetadata

EMPTY, ONGOING = TransactionStatus.EMPTY, TransactionStatus.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT

FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, INVALID_STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
LAST_EPOCH = MAX_EPOCH - 1
"""The last one that a producer gets."""


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as raised:
        yield
    assert raised.value.code is code


def at_epoch(driver: TransactionDriver, epoch: int) -> ProducerIdAndEpoch:
    """A producer whose id has come to ``epoch``, without a transaction."""
    driver.begin()
    driver.machine.transactions["id"] = attrs.evolve(driver.state(), producer_epoch=epoch)
    return driver.state().producer


def before(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, producer.epoch - 1)


def after(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)


def another(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id + 77, producer.epoch)


def in_state(driver: TransactionDriver, status: TransactionStatus, version: int = 0) -> ProducerIdAndEpoch:
    """The current producer, whose transactional id is in ``status``."""
    producer = driver.begin()
    if status is EMPTY:
        return producer
    driver.add(producer, T0, U0, version=version)
    if status is ONGOING:
        return producer
    driver.end(producer, commits=status in (PREPARE_COMMIT, COMPLETE_COMMIT), version=version)
    if status in (COMPLETE_COMMIT, COMPLETE_ABORT):
        driver.complete()
    assert driver.state().status is status
    return driver.state().producer


# ---- InitProducerId --------------------------------------------------------------------------------------------------


def test_a_new_id_gets_a_producer_id_of_its_own_at_epoch_0(driver):
    assert driver.begin("id") == ProducerIdAndEpoch(FIRST_ID, 0)
    assert driver.begin("other") == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert driver.state().status is EMPTY
    assert (driver.state().timeout_ms, driver.state().last_update_ms) == (TIMEOUT_MS, START_MS)


def test_the_next_producer_gets_the_same_id_and_the_next_epoch_and_fences_the_one_before(driver):
    first, second = driver.begin(), driver.begin()
    assert second == after(first)
    with refused(FENCED):
        driver.add(first)
    driver.add(second)


def test_each_start_brings_its_own_timeout(driver):
    driver.init(timeout_ms=1000)
    driver.init(timeout_ms=2000)
    assert driver.state().timeout_ms == 2000


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_a_start_after_any_end_begins_anew(driver, status, version):
    producer = in_state(driver, status, version)
    driver.advance(1)
    assert driver.begin() == after(producer)
    state = driver.state()
    assert (state.status, state.partitions, state.start_ms) == (EMPTY, frozenset(), -1)
    assert state.last_update_ms == START_MS + 1000


@pytest.mark.parametrize("status", [PREPARE_COMMIT, PREPARE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_a_start_has_to_wait_for_the_end_that_is_decided(driver, status, version):
    producer = in_state(driver, status, version)
    records = len(driver.log)
    for expected in (None, producer):
        with refused(CONCURRENT):
            driver.init(expected=expected)
    assert len(driver.log) == records
    driver.complete()
    assert driver.begin() == after(producer)


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_start_in_an_open_transaction_aborts_it_and_has_to_come_again(transaction_version):
    driver = TransactionDriver(transaction_version)
    producer = in_state(driver, ONGOING)
    response = driver.init()
    assert (response.error_code, response.producer_id, response.producer_epoch) == (CONCURRENT, -1, -1)
    state = driver.state()
    assert (state.status, state.partitions) == (PREPARE_ABORT, frozenset({T0, U0}))
    assert state.producer_epoch > producer.epoch
    assert driver.prepared == ["id"]
    with refused(FENCED):
        driver.end(producer)
    with refused(CONCURRENT):
        driver.init()
    fencing = driver.state().producer
    driver.complete()
    assert driver.state().status is COMPLETE_ABORT
    assert driver.begin() == after(fencing)


def test_the_producer_of_an_aborted_transaction_goes_on_until_another_has_taken_its_id(driver):
    producer = in_state(driver, ONGOING)
    driver.init()
    driver.complete()
    with refused(FENCED):
        driver.init(expected=before(producer))
    assert producer_of(driver.init(expected=producer)) == after(producer)
    driver.init()
    with refused(FENCED):
        driver.init(expected=producer)


# ---- InitProducerId of a producer that goes on (KIP-360) -------------------------------------------------------------


def test_a_producer_that_goes_on_gets_the_next_epoch(driver):
    producer = driver.begin()
    assert producer_of(driver.init(expected=producer)) == after(producer)


def test_a_producer_that_repeats_its_request_gets_the_same_epoch_again(driver):
    producer = driver.begin()
    raised = producer_of(driver.init(expected=producer))
    for _ in range(3):
        assert producer_of(driver.init(expected=producer)) == raised
    driver.add(raised)


def test_a_producer_that_was_fenced_cannot_go_on(driver):
    first = driver.begin()
    second = driver.begin()
    records = len(driver.log)
    with refused(FENCED):
        driver.init(expected=first)
    with refused(FENCED):
        driver.init(expected=after(second))
    assert len(driver.log) == records


def test_a_producer_that_goes_on_with_an_id_of_another_is_fenced_unless_an_end_is_under_way(driver):
    for status in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT):
        fresh = TransactionDriver()
        producer = in_state(fresh, status)
        records = len(fresh.log)
        with refused(FENCED):
            fresh.init(expected=another(producer))
        assert len(fresh.log) == records


def test_after_a_restart_the_repeated_request_of_before_is_not_recognised(driver):
    producer = driver.begin()
    raised = producer_of(driver.init(expected=producer))
    driver.restart()
    with refused(FENCED):
        driver.init(expected=producer)
    assert producer_of(driver.init(expected=raised)) == after(raised)


def test_a_producer_whose_id_was_forgotten_gets_a_new_one(driver):
    unknown = ProducerIdAndEpoch(17, 5)
    assert producer_of(driver.init(expected=unknown)) == ProducerIdAndEpoch(FIRST_ID, 0)


def test_a_producer_that_goes_on_in_an_open_transaction_has_it_aborted(driver):
    producer = in_state(driver, ONGOING)
    assert driver.init(expected=producer).error_code == CONCURRENT
    assert driver.state().status is PREPARE_ABORT


# ---- epochs are used up ----------------------------------------------------------------------------------------------


def test_the_last_epoch_is_followed_by_a_new_id(driver):
    producer = at_epoch(driver, LAST_EPOCH - 1)
    assert driver.begin() == ProducerIdAndEpoch(producer.producer_id, LAST_EPOCH)
    assert driver.begin() == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert driver.state().previous_producer_id == FIRST_ID


def test_a_producer_that_goes_on_gets_a_new_id_after_the_last_epoch_and_may_repeat_it(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    renewed = producer_of(driver.init(expected=producer))
    assert renewed == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert producer_of(driver.init(expected=producer)) == renewed
    with refused(FENCED):
        driver.init(expected=before(producer))
    driver.add(renewed)


def test_a_transaction_is_fenced_at_the_last_epoch_too_and_the_next_producer_has_a_new_id(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer)
    assert driver.init().error_code == CONCURRENT
    assert driver.state().producer == ProducerIdAndEpoch(FIRST_ID, MAX_EPOCH)
    driver.complete()
    renewed = driver.state().producer
    assert (renewed.producer_id > FIRST_ID, renewed.epoch) == (True, 0)
    assert driver.begin() == after(renewed)


def fence_by_a_timeout(driver: TransactionDriver, producer: ProducerIdAndEpoch) -> None:
    driver.advance(TIMEOUT_MS / 1000)
    assert driver.tick()


def fence_by_a_start(driver: TransactionDriver, producer: ProducerIdAndEpoch) -> None:
    assert driver.init().error_code == CONCURRENT


def fence_by_an_administrator(driver: TransactionDriver, producer: ProducerIdAndEpoch) -> None:
    driver.call(AbortTransaction("id", producer, driver.state().start_ms))


def fence_by_a_start_of_the_broker(driver: TransactionDriver, producer: ProducerIdAndEpoch) -> None:
    # As the log has it: the driver has put the state there without a record.
    driver.log.append(driver.machine.encode(TransactionRecord("id", driver.state())))
    driver.restart({producer.producer_id: {T1: producer.epoch}})


FENCES = [fence_by_a_timeout, fence_by_a_start, fence_by_an_administrator, fence_by_a_start_of_the_broker]


@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("transaction_version", [0, 2])
def test_an_abort_at_the_last_epoch_ends_with_another_id_for_each_way_to_abort(transaction_version, fence):
    driver = TransactionDriver(transaction_version)
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, T0, version=transaction_version)
    fence(driver, producer)
    assert (driver.state().status, driver.state().producer_epoch) == (PREPARE_ABORT, MAX_EPOCH)
    driver.complete()
    state = driver.state()
    assert (state.producer_id > FIRST_ID, state.producer_epoch, state.status) == (True, 0, COMPLETE_ABORT)
    assert state.previous_producer_id == FIRST_ID


@pytest.mark.parametrize("fence", FENCES)
def test_a_producer_whose_last_epoch_was_aborted_goes_on_with_the_other_id(driver, fence):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, T0, version=2)
    fence(driver, producer)
    for commits in (False, True):
        with refused(CONCURRENT):
            driver.end(producer, commits=commits, version=2)
    driver.complete()
    with refused(FENCED):
        driver.end(producer, commits=True, version=2)
    renewed = producer_of(driver.end(producer, commits=False, version=2))
    assert (renewed, renewed.epoch) == (driver.state().producer, 0)
    driver.add(renewed, version=2)
    assert producer_of(driver.end(renewed, version=2)) == after(renewed)


def test_a_producer_whose_last_epoch_timed_out_may_also_begin_anew(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, T0, version=2)
    fence_by_a_timeout(driver, producer)
    driver.complete()
    renewed = producer_of(driver.init(expected=producer))
    assert (renewed, renewed.epoch) == (driver.state().producer, 0)


def test_an_abort_at_the_last_epoch_is_not_complete_before_there_is_another_id(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, T0, version=2)
    fence_by_a_timeout(driver, producer)
    with refused(CONCURRENT):
        driver.call(CompleteTransaction("id", driver.state().producer, driver.state().partitions, None))
    assert driver.state().status is PREPARE_ABORT
    assert driver.machine.needs_producer_id("id")


@pytest.mark.parametrize("status", [EMPTY, ONGOING, COMPLETE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_a_log_in_which_a_client_has_the_epoch_of_none_is_put_right(driver, status, version):
    """An earlier version has given it out, or a Kafka before 4.3."""
    producer = in_state(driver, status, version)
    known = attrs.evolve(driver.state(), producer_epoch=MAX_EPOCH)
    driver.log.append(driver.machine.encode(TransactionRecord("id", known)))
    driver.restart({producer.producer_id: {T0: MAX_EPOCH}} if status is ONGOING else {})
    state = driver.state()
    assert (state.status, state.producer_epoch, driver.prepared) == (PREPARE_ABORT, MAX_EPOCH, ["id"])
    assert state.partitions == known.partitions
    assert state.client_transaction_version == 0, "a partition takes no raised epoch"
    driver.complete()
    assert (driver.state().producer_id > producer.producer_id, driver.state().producer_epoch) == (True, 0)


@pytest.mark.parametrize("epoch", [LAST_EPOCH, MAX_EPOCH])
def test_a_commit_that_has_replaced_the_id_is_written_again_where_its_marker_was_lost(driver, epoch):
    """With the last epoch, or with the one beyond, which an earlier version has given out."""
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, T0, T1, version=2)
    renewed = producer_of(driver.end(producer, version=2))
    driver.complete()
    driver.restart({producer.producer_id: {T1: epoch}})
    state = driver.state()
    assert (state.status, state.producer, state.partitions) == (PREPARE_COMMIT, (after(producer)), {T1})
    driver.complete()
    assert (driver.state().status, driver.state().producer) == (COMPLETE_COMMIT, renewed)


def test_what_hangs_behind_a_commit_of_the_last_epoch_is_aborted_before_the_id_is_replaced(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, T0, version=2)
    driver.end(producer, version=2)
    driver.restart({producer.producer_id: {T0: LAST_EPOCH, T1: LAST_EPOCH}})
    assert driver.state().partitions == {T0}
    driver.complete()
    state = driver.state()
    assert (state.status, state.partitions) == (PREPARE_ABORT, {T1})
    assert state.producer == after(producer)
    driver.complete()
    assert driver.state().producer_epoch == 0


def test_a_request_for_which_no_id_was_allocated_is_tried_again(driver):
    with refused(CONCURRENT):
        driver.call(InitProducerId("id", TIMEOUT_MS, None, None))
    producer = at_epoch(driver, LAST_EPOCH)
    with refused(CONCURRENT):
        driver.call(InitProducerId("id", TIMEOUT_MS, None, None))
    driver.add(producer, version=2)
    with refused(CONCURRENT):
        driver.call(EndTransaction("id", producer, True, 2, None))
    assert driver.state().status is ONGOING


@pytest.mark.parametrize("epoch", [0, 5, LAST_EPOCH - 1, LAST_EPOCH])
def test_an_id_is_allocated_only_where_it_may_be_needed(driver, epoch):
    assert driver.machine.needs_producer_id("id")
    at_epoch(driver, epoch)
    assert driver.machine.needs_producer_id("id") == (epoch == LAST_EPOCH)


# ---- AddPartitions, and who may write --------------------------------------------------------------------------------

ADDING: list[Callable[[TransactionDriver, ProducerIdAndEpoch], Any]] = [
    lambda driver, producer: driver.add(producer, T0),
    lambda driver, producer: driver.verify(producer),
    lambda driver, producer: driver.machine.require_added("id", producer, T0),
]


@pytest.mark.parametrize("ask", ADDING)
def test_an_unknown_transactional_id_has_no_producer(driver, ask):
    with refused(MAPPING):
        ask(driver, ProducerIdAndEpoch(0, 0))
    assert driver.log == []


@pytest.mark.parametrize("ask", ADDING)
@pytest.mark.parametrize("status", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_the_current_producer_may_write(driver, ask, status):
    producer = in_state(driver, status)
    records = len(driver.log)
    for other, code in ((another(producer), MAPPING), (before(producer), FENCED), (after(producer), FENCED)):
        with refused(code):
            ask(driver, other)
    assert len(driver.log) == records


@pytest.mark.parametrize("ask", ADDING)
@pytest.mark.parametrize("status", [PREPARE_COMMIT, PREPARE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_nothing_is_added_to_a_transaction_whose_end_is_decided(driver, ask, status, version):
    producer = in_state(driver, status, version)
    with refused(CONCURRENT):
        ask(driver, producer)
    with refused(FENCED):
        ask(driver, before(producer))


@pytest.mark.parametrize("ask", ADDING)
def test_a_producer_whose_id_the_end_replaces_waits_for_the_markers_too(driver, ask):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, version=2)
    response = driver.end(producer, version=2)
    renewed = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    assert renewed.producer_id != producer.producer_id
    with refused(CONCURRENT):
        ask(driver, renewed)
    for other in (ProducerIdAndEpoch(-1, 0), after(renewed)):
        with refused(MAPPING):
            ask(driver, other)
    driver.complete()
    driver.add(renewed, T0)


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(driver, status):
    producer = in_state(driver, status)
    driver.advance(5)
    driver.add(producer, T1)
    state = driver.state()
    assert (state.status, state.partitions) == (ONGOING, {T1})
    assert state.start_ms == state.last_update_ms == START_MS + 5000


def test_more_partitions_extend_the_transaction_but_not_its_time(driver):
    producer = in_state(driver, ONGOING)
    driver.advance(5)
    driver.add(producer, T0, T1)
    state = driver.state()
    assert (state.status, state.partitions) == (ONGOING, {T0, T1, U0})
    assert (state.start_ms, state.last_update_ms) == (START_MS, START_MS + 5000)


@pytest.mark.parametrize("again", [(T0,), (U0,), (T0, U0), (U0, T0, T0)])
def test_partitions_that_are_part_of_it_already_cost_no_record(driver, again):
    producer = in_state(driver, ONGOING)
    records = len(driver.log)
    driver.add(producer, *again)
    assert len(driver.log) == records


def test_a_verification_costs_no_record(driver):
    producer = in_state(driver, ONGOING)
    records = len(driver.log)
    driver.verify(producer)
    assert len(driver.log) == records


def test_a_batch_may_be_written_only_where_it_was_added(driver):
    producer = in_state(driver, ONGOING)
    driver.machine.require_added("id", producer, T0)
    with refused(ErrorCode.TRANSACTION_ABORTABLE):
        driver.machine.require_added("id", producer, T1)


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_batch_may_not_be_written_without_a_transaction(driver, status):
    producer = in_state(driver, status)
    with refused(ErrorCode.TRANSACTION_ABORTABLE):
        driver.machine.require_added("id", producer, T0)


# ---- EndTxn of the first protocol ------------------------------------------------------------------------------------

FIRST_PROTOCOL: dict[TransactionStatus, tuple[TransactionStatus | ErrorCode, ...]] = {
    # status: (what a commit leads to, and an abort): a status, NONE where nothing changes, or the refusal
    EMPTY: (INVALID_STATE, INVALID_STATE),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    COMPLETE_COMMIT: (ErrorCode.NONE, INVALID_STATE),
    COMPLETE_ABORT: (INVALID_STATE, ErrorCode.NONE),
}


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("status", FIRST_PROTOCOL)
def test_the_first_protocol_ends_a_transaction_and_keeps_the_epoch(driver, status, commits):
    producer = in_state(driver, status)
    outcome, previous = FIRST_PROTOCOL[status][not commits], driver.state()
    driver.prepared.clear()
    if isinstance(outcome, TransactionStatus):
        driver.advance(1)
        assert driver.end(producer, commits=commits).error_code == 0
        state = driver.state()
        assert (state.status, state.producer, state.partitions) == (outcome, producer, previous.partitions)
        assert (state.start_ms, state.last_update_ms) == (START_MS, START_MS + 1000)
        assert driver.prepared == ["id"]
        return
    if outcome is ErrorCode.NONE:
        response = driver.end(producer, commits=commits)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, -1, -1)
    else:
        with refused(outcome):
            driver.end(producer, commits=commits)
    assert (driver.state(), driver.prepared) == (previous, [])


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("status", FIRST_PROTOCOL)
def test_only_the_current_producer_ends_its_transaction(driver, status, commits, version):
    producer = in_state(driver, status)
    previous = driver.state()
    with refused(MAPPING):
        driver.end(another(producer), commits=commits, version=version)
    with refused(FENCED):
        driver.end(after(producer), commits=commits, version=version)
    # Two epochs before, of which the second protocol takes none for a repetition.
    with refused(FENCED):
        driver.end(before(before(producer)), commits=commits, version=version)
    if version == 0:
        with refused(FENCED):
            driver.end(before(producer), commits=commits)
    assert driver.state() == previous


@pytest.mark.parametrize("version", [0, 2])
def test_an_unknown_transactional_id_has_no_transaction_to_end(driver, version):
    with refused(MAPPING):
        driver.end(ProducerIdAndEpoch(0, 0), version=version)


@pytest.mark.parametrize("commits", [True, False])
def test_once_all_markers_are_written_the_transaction_is_complete(driver, commits):
    in_state(driver, PREPARE_COMMIT if commits else PREPARE_ABORT)
    previous = driver.state()
    driver.advance(1)
    driver.complete()
    assert driver.state() == attrs.evolve(
        previous,
        status=COMPLETE_COMMIT if commits else COMPLETE_ABORT,
        partitions=frozenset(),
        last_update_ms=START_MS + 1000,
    )


@pytest.mark.parametrize("status", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_nothing_is_completed_that_is_not_ending(driver, status):
    producer = in_state(driver, status)
    previous, records = driver.state(), len(driver.log)
    driver.complete_as(producer)
    driver.complete_as(producer, "unknown")
    assert (driver.state(), len(driver.log)) == (previous, records)


def test_markers_of_an_earlier_transaction_complete_no_later_one(driver):
    producer = in_state(driver, PREPARE_COMMIT, 2)
    driver.complete_as(before(producer))
    assert driver.state().status is PREPARE_COMMIT


def test_markers_in_other_partitions_than_those_of_the_transaction_complete_nothing(driver):
    producer = in_state(driver, PREPARE_COMMIT, 2)
    driver.call(CompleteTransaction("id", producer, driver.state().partitions - {T0}))
    assert driver.state().status is PREPARE_COMMIT


# ---- EndTxn of the second protocol -----------------------------------------------------------------------------------

RAISED = "ends with a raised epoch"
REPEATED = "receives the raised epoch again"

SECOND_PROTOCOL = {
    # status: commit of the current epoch, abort of it, and the same with the epoch before
    EMPTY: (INVALID_STATE, RAISED, FENCED, FENCED),
    ONGOING: (RAISED, RAISED, FENCED, FENCED),
    # The current epoch is that of the next transaction, which begins when this one has ended.
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    COMPLETE_COMMIT: (INVALID_STATE, RAISED, REPEATED, INVALID_STATE),
    # No producer repeats its abort as a commit: the coordinator has aborted, and a fenced producer begins anew.
    COMPLETE_ABORT: (INVALID_STATE, RAISED, FENCED, REPEATED),
}


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_retry", [False, True])
@pytest.mark.parametrize("status", SECOND_PROTOCOL)
def test_the_second_protocol_raises_the_epoch_and_recognises_what_is_repeated(driver, status, is_retry, commits):
    driver.begin()
    producer = in_state(driver, status, 2)
    outcome, previous = SECOND_PROTOCOL[status][2 * is_retry + (not commits)], driver.state()
    driver.prepared.clear()
    sender = before(producer) if is_retry else producer
    if isinstance(outcome, ErrorCode):
        with refused(outcome):
            driver.end(sender, commits=commits, version=2)
        assert (driver.state(), driver.prepared) == (previous, [])
        return
    response = driver.end(sender, commits=commits, version=2)
    assert producer_of(response) == driver.state().producer
    if outcome is REPEATED:
        assert (driver.state(), driver.prepared) == (previous, [])
        return
    state = driver.state()
    assert (state.status, state.producer) == (PREPARE_COMMIT if commits else PREPARE_ABORT, after(producer))
    assert (state.partitions, driver.prepared) == (previous.partitions, ["id"])
    driver.complete()
    driver.add(after(producer), version=2)


def test_an_abort_of_nothing_fences_the_batch_that_comes_late(driver):
    producer = in_state(driver, EMPTY)
    raised = producer_of(driver.end(producer, commits=False, version=2))
    assert driver.state().start_ms == START_MS
    driver.complete()
    with refused(FENCED):
        driver.add(producer, version=2)
    driver.add(raised, version=2)


def test_the_last_epoch_ends_with_the_next_id_and_the_end_may_be_repeated(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, version=2)
    renewed = producer_of(driver.end(producer, version=2))
    assert renewed == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert driver.state().producer == ProducerIdAndEpoch(FIRST_ID, MAX_EPOCH), "the markers are of the old id"
    for sender in (producer, renewed):
        with refused(CONCURRENT):
            driver.end(sender, version=2)
        with refused(CONCURRENT):
            driver.init(expected=sender)
    driver.complete()
    state = driver.state()
    assert (state.producer, state.previous_producer_id) == (renewed, FIRST_ID)
    assert state.next_producer_id == NO_PRODUCER_ID
    assert producer_of(driver.end(producer, version=2)) == renewed
    with refused(INVALID_STATE):
        driver.end(producer, commits=False, version=2)
    with refused(MAPPING):
        driver.end(before(producer), version=2)
    driver.add(renewed, version=2)
    with refused(MAPPING):
        driver.end(producer, version=2)


def test_after_a_restart_the_end_with_the_next_id_is_still_recognised(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, version=2)
    renewed = producer_of(driver.end(producer, version=2))
    driver.restart()
    assert driver.prepared == ["id"]
    with refused(CONCURRENT):
        driver.end(producer, version=2)
    driver.complete()
    driver.restart()
    assert driver.state().producer == renewed
    assert producer_of(driver.end(producer, version=2)) == renewed


def test_the_epoch_before_the_last_does_not_end_with_the_next_id(driver):
    producer = at_epoch(driver, LAST_EPOCH - 1)
    driver.add(producer, version=2)
    assert producer_of(driver.end(producer, version=2)) == after(producer)
    assert driver.state().next_producer_id == NO_PRODUCER_ID


def test_the_first_protocol_uses_up_no_epoch_at_the_end(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer)
    driver.end(producer)
    driver.complete()
    assert driver.state().producer == producer


def test_one_transactional_id_may_change_from_one_protocol_to_the_other_and_back(driver):
    producer = driver.begin()
    for version in (0, 2, 2, 0, 0, 2):
        driver.add(producer, version=version)
        response = driver.end(producer, version=version)
        driver.complete()
        assert producer_of(response) == (after(producer) if version else ProducerIdAndEpoch(-1, -1))
        producer = driver.state().producer


# ---- time ------------------------------------------------------------------------------------------------------------


def test_a_transaction_is_aborted_when_its_time_is_over_and_not_before(driver):
    producer = in_state(driver, ONGOING)
    assert driver.machine.next_deadline("id") == driver.monotonic_seconds + TIMEOUT_MS / 1000
    driver.advance(TIMEOUT_MS / 1000 - 0.001)
    assert not driver.tick()
    driver.advance(0.001)
    driver.prepared.clear()
    assert driver.tick()
    state = driver.state()
    assert (state.status, state.partitions, driver.prepared) == (PREPARE_ABORT, {T0, U0}, ["id"])
    assert driver.machine.next_deadline("id") is None, "the markers end it now, however long they take"
    assert not driver.tick()
    with refused(FENCED):
        driver.end(producer)
    driver.complete()
    with refused(FENCED):
        driver.add(producer)
    assert producer_of(driver.init(expected=producer)) == after(producer)


@pytest.mark.parametrize(("transaction_version", "epoch"), [(0, 1), (1, 1), (2, 1)])
def test_the_record_of_an_abort_by_time_has_a_raised_epoch(transaction_version, epoch):
    driver = TransactionDriver(transaction_version)
    in_state(driver, ONGOING)
    driver.advance(TIMEOUT_MS / 1000)
    driver.tick()
    driver.restart()
    state = driver.state()
    assert (state.status, state.producer_epoch) == (PREPARE_ABORT, epoch)
    assert state.client_transaction_version == transaction_version


def test_no_partition_that_is_added_later_prolongs_the_transaction(driver):
    producer = in_state(driver, ONGOING)
    driver.advance(TIMEOUT_MS / 1000 - 1)
    driver.add(producer, T1)
    driver.advance(1)
    assert driver.tick()


def test_a_wall_clock_that_is_set_back_puts_the_deadline_off_by_as_much(driver):
    in_state(driver, ONGOING)
    driver.wall_ms -= 3_600_000
    driver.expiry_ms -= 3_600_000
    driver.monotonic_seconds += TIMEOUT_MS / 1000
    assert not driver.tick()
    assert driver.machine.next_deadline("id") == driver.monotonic_seconds + 3600 + TIMEOUT_MS / 1000
    driver.advance(3600 + TIMEOUT_MS / 1000)
    assert driver.tick()


def test_the_time_goes_on_over_a_restart(driver):
    in_state(driver, ONGOING)
    driver.advance(TIMEOUT_MS / 1000 - 1)
    driver.restart()
    assert driver.machine.next_deadline("id") == driver.monotonic_seconds + 1
    driver.advance(1)
    assert driver.tick()


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_id_that_nobody_uses_is_forgotten(driver, status):
    producer = in_state(driver, status)
    expiration_seconds = SETTINGS.transactional_id_expiration_ms / 1000
    assert driver.machine.next_deadline("id") == driver.monotonic_seconds + expiration_seconds
    driver.advance(expiration_seconds - 0.001)
    assert not driver.tick()
    driver.advance(0.001)
    assert driver.tick()
    assert driver.machine.transactions == {}
    assert driver.log[-1][1] is None, "a tombstone"
    assert not driver.tick()
    assert driver.machine.next_deadline("id") is None
    with refused(MAPPING):
        driver.add(producer)
    driver.restart()
    assert driver.machine.transactions == {}


@pytest.mark.parametrize("status", [PREPARE_COMMIT, PREPARE_ABORT])
def test_an_id_is_not_forgotten_while_its_transaction_is_ending(driver, status):
    in_state(driver, status)
    driver.advance(10 * SETTINGS.transactional_id_expiration_ms / 1000)
    assert not driver.tick()
    assert driver.machine.next_deadline("id") is None


def test_each_transaction_keeps_its_id_from_being_forgotten(driver):
    producer = driver.begin()
    driver.advance(SETTINGS.transactional_id_expiration_ms / 1000 - 1)
    driver.add(producer)
    driver.end(producer)
    driver.complete()
    driver.advance(1)
    assert not driver.tick()


@pytest.mark.parametrize("status", [ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_jump_of_the_wall_clock_alone_makes_nothing_due(driver, status):
    in_state(driver, status)
    deadline = driver.machine.next_deadline("id")
    driver.wall_ms += 2 * SETTINGS.transactional_id_expiration_ms
    assert not driver.tick()
    assert driver.machine.next_deadline("id") == deadline
    driver.restart()
    assert driver.machine.next_deadline("id") == deadline


# ---- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", FIRST_PROTOCOL)
@pytest.mark.parametrize("version", [0, 2])
def test_a_restart_goes_on_in_every_state_and_asks_for_the_markers_that_may_be_missing(driver, status, version):
    in_state(driver, status, version)
    previous = driver.state()
    driver.restart()
    assert driver.state() == without_last_epoch(previous)
    assert driver.prepared == (["id"] if status in (PREPARE_COMMIT, PREPARE_ABORT) else [])


# ---- transactions that hang ------------------------------------------------------------------------------------------


def open_epochs(producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> dict[int, dict[TopicPartition, int]]:
    return {producer.producer_id: dict.fromkeys(partitions, producer.epoch)}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("status", [ONGOING, PREPARE_COMMIT, PREPARE_ABORT])
def test_what_is_open_in_the_partitions_of_a_transaction_does_not_hang(driver, status, version):
    producer = driver.begin()
    driver.add(producer, T0, U0, version=version)
    if status is not ONGOING:
        driver.end(producer, commits=status is PREPARE_COMMIT, version=version)
    previous = driver.state()
    driver.restart(open_epochs(producer, T0))
    assert driver.state() == without_last_epoch(previous)
    assert driver.prepared == ([] if status is ONGOING else ["id"])


@pytest.mark.parametrize("status", [COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_complete_transaction_of_the_second_protocol_gets_the_marker_that_was_lost(driver, status):
    producer = driver.begin()
    driver.add(producer, T0, U0, version=2)
    raised = producer_of(driver.end(producer, commits=status is COMPLETE_COMMIT, version=2))
    driver.complete()
    driver.restart(open_epochs(producer, U0))
    state = driver.state()
    prepared = PREPARE_COMMIT if status is COMPLETE_COMMIT else PREPARE_ABORT
    assert (state.status, state.partitions, state.producer) == (prepared, {U0}, raised)
    assert driver.prepared == ["id"]
    with refused(CONCURRENT):
        driver.add(raised, U0, version=2)
    driver.complete()
    assert (driver.state().status, driver.state().producer) == (status, raised)
    driver.add(raised, U0, version=2)


@pytest.mark.parametrize("status", [COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_complete_transaction_of_the_first_protocol_is_aborted_where_its_marker_was_lost(driver, status):
    """It may as well be an earlier one, which was aborted: all have the same epoch."""
    producer = in_state(driver, status)
    driver.restart(open_epochs(producer, U0))
    state = driver.state()
    assert (state.status, state.partitions) == (PREPARE_ABORT, {U0})
    assert state.producer_epoch > producer.epoch, "what is lost of it was acknowledged"
    assert driver.prepared == ["id"]
    driver.complete()
    with refused(FENCED):
        driver.add(producer, U0)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_of_which_the_log_knows_nothing_is_aborted(driver, version):
    producer = driver.begin()
    driver.restart(open_epochs(producer, T0))
    assert (driver.state().status, driver.state().partitions) == (PREPARE_ABORT, {T0})
    assert driver.state().producer_epoch > producer.epoch
    assert driver.prepared == ["id"]


@pytest.mark.parametrize("found", [{T1: 0}, {T0: -1}])
def test_an_ongoing_transaction_is_aborted_with_what_hangs_of_the_one_before(driver, found):
    """Where the partition is not part of it, or what is open there has another epoch."""
    producer = at_epoch(driver, 7)
    driver.add(producer, T0, version=2)
    driver.restart({producer.producer_id: {each: producer.epoch + difference for each, difference in found.items()}})
    assert (driver.state().status, driver.state().partitions) == (PREPARE_ABORT, {T0, *found})
    with refused(FENCED):
        driver.add(producer, T0, version=2)


@pytest.mark.parametrize("version", [0, 2])
def test_an_abort_that_is_decided_ends_what_hangs_as_well(driver, version):
    producer = driver.begin()
    driver.add(producer, T0, version=version)
    driver.end(producer, commits=False, version=version)
    epoch = driver.state().producer_epoch
    driver.restart(open_epochs(producer, T0, U0))
    assert (driver.state().status, driver.state().partitions) == (PREPARE_ABORT, {T0, U0})
    assert driver.state().producer_epoch == epoch
    assert driver.prepared == ["id"]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("status", FIRST_PROTOCOL)
def test_the_end_of_what_hangs_has_an_epoch_that_its_partition_takes(driver, status, version):
    """Where the records of the last epochs are lost as well."""
    producer = in_state(driver, status, version)
    driver.restart({producer.producer_id: {U0: producer.epoch + 5}})
    if status is PREPARE_COMMIT:
        driver.complete()
    state = driver.state()
    assert state.status is PREPARE_ABORT
    assert U0 in state.partitions
    assert state.producer_epoch > producer.epoch + 5


@pytest.mark.parametrize(("epoch", "found", "committed"), [(0, U0, {T0, T1}), (-1, T1, {T0})])
def test_a_commit_that_is_decided_commits_nothing_that_hangs_of_an_earlier_transaction(driver, epoch, found, committed):
    producer = at_epoch(driver, 7)
    driver.add(producer, T0, T1, version=2)
    raised = producer_of(driver.end(producer, version=2))
    driver.restart({producer.producer_id: {found: producer.epoch + epoch}})
    assert (driver.state().status, driver.state().partitions) == (PREPARE_COMMIT, committed)
    assert driver.prepared == ["id"]
    driver.complete()
    assert (driver.state().status, driver.state().partitions) == (PREPARE_ABORT, {found})
    assert driver.state().producer_epoch > raised.epoch
    assert driver.prepared == ["id", "id"]
    driver.complete()
    assert driver.state().status is COMPLETE_ABORT
    driver.begin()
    driver.add(driver.state().producer, T0, version=2)
    driver.end(driver.state().producer, version=2)
    driver.complete()
    assert driver.state().status is COMPLETE_COMMIT, "what hung is ended once"


def without_last_epoch(metadata: TransactionMetadata) -> TransactionMetadata:
    """As the log has it."""
    return attrs.evolve(metadata, last_producer_epoch=-1)


def test_a_record_with_a_status_that_nobody_writes_is_refused(driver):
    in_state(driver, ONGOING)
    key, value = driver.log[-1]
    assert value is not None
    # Version, producer id, epoch and timeout stand before the status.
    damaged = value[:16] + b"\x63" + value[17:]
    with pytest.raises(WireError, match="'id'"):
        driver.machine.replay((key, damaged))


EVENTS = st.one_of(
    st.tuples(st.just("init"), st.booleans(), st.integers(-2, 1)),
    st.tuples(st.just("add"), st.sets(st.sampled_from([T0, T1, U0]), min_size=1), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("end"), st.booleans(), st.sampled_from([0, 2])),
    st.tuples(st.just("late end"), st.booleans(), st.sampled_from([0, 2])),
    st.tuples(st.just("complete"), st.none(), st.none()),
    st.tuples(st.just("time"), st.sampled_from([1, 60, 700_000]), st.none()),
)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), EVENTS), max_size=60),
    st.sampled_from([0, 2]),
    st.sampled_from([0, LAST_EPOCH - 3]),
)
def test_the_records_lead_to_the_same_state_whatever_has_happened(events, transaction_version, first_epoch):
    driver = TransactionDriver(transaction_version)
    for key in ("a", "b"):
        driver.begin(key)
    if first_epoch:
        for key, metadata in driver.machine.transactions.items():
            driver.machine.transactions[key] = attrs.evolve(metadata, producer_epoch=first_epoch)
        for key in ("a", "b"):
            driver.begin(key)
    for key, event in events:
        highest = {each.producer_id: each.producer_epoch for each in driver.machine.transactions.values()}
        with suppress(KafkaError):
            play(driver, key, event)
        for metadata in driver.machine.transactions.values():
            check(metadata)
            assert metadata.producer_epoch >= highest.get(metadata.producer_id, 0), "an epoch went back"
    again = replayed(driver.log, [])
    known = {key: without_last_epoch(metadata) for key, metadata in driver.machine.transactions.items()}
    assert again.transactions == known


def play(driver: TransactionDriver, key: str, event: tuple[str, Any, Any]) -> None:
    """Let one thing happen to ``key``."""
    name, first, second = event
    if name == "time":
        driver.advance(first)
        driver.tick(key)
        return
    metadata = driver.machine.transactions.get(key)
    producer = ProducerIdAndEpoch(1, 1) if metadata is None else metadata.producer
    match name:
        case "init":
            expected = ProducerIdAndEpoch(producer.producer_id, producer.epoch + second) if first else None
            driver.init(key, expected=expected)
        case "add":
            driver.add(producer, *first, key=key, version=second)
        case "end":
            driver.end(producer, commits=first, version=second, key=key)
        case "late end":
            driver.end(before(producer), commits=first, version=second, key=key)
        case "complete":
            driver.complete_as(producer, key)


def check(metadata: TransactionMetadata) -> None:
    """What holds at any time."""
    assert 0 <= metadata.producer_epoch <= MAX_EPOCH
    assert metadata.producer_epoch <= LAST_EPOCH or metadata.is_prepared, metadata
    assert metadata.partitions or metadata.status is not ONGOING
    assert not metadata.partitions or not metadata.is_idle
    assert (metadata.next_producer_id == NO_PRODUCER_ID) or metadata.is_prepared
