"""An administrator's abort of one transaction, and what a machine of transactions counts for metrics."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.transactions import TransactionStatus
from tests.coordinator.transactions.transaction_driver import CLIENT, T0, T1, TransactionDriver
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions.requests import AbortTransaction
from trio_broker.coordinator.transactions.transaction_machine import SHOWN_CLIENT_ID_CHARACTERS


@pytest.fixture(params=[0, 1, 2])
def driver(request: pytest.FixtureRequest) -> TransactionDriver:
    return TransactionDriver(transaction_version=request.param)


def open_one(driver: TransactionDriver) -> ProducerIdAndEpoch:
    producer = driver.begin()
    driver.add(producer, T0, T1)
    return producer


def refusal(driver: TransactionDriver, request: AbortTransaction) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        driver.call(request)
    return refused.value.code


def test_an_abort_is_what_a_timeout_would_be(driver: TransactionDriver):
    timed_out = TransactionDriver(transaction_version=driver.image.features["transaction.version"])
    open_one(timed_out)
    driver.call(AbortTransaction("id", open_one(driver), driver.state().start_ms))
    timed_out.advance(60)
    assert timed_out.tick()
    aborted, expected = driver.state(), timed_out.state()
    assert aborted.status is expected.status is TransactionStatus.PREPARE_ABORT
    assert (aborted.producer_epoch, aborted.partitions) == (expected.producer_epoch, expected.partitions)
    assert driver.prepared == ["id"], "its markers are asked for"


def test_the_aborted_producer_can_do_no_more(driver: TransactionDriver):
    producer = open_one(driver)
    driver.call(AbortTransaction("id", producer, driver.state().start_ms))
    driver.complete()
    with pytest.raises(KafkaError) as refused:
        driver.add(producer, T0)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED


def test_another_transaction_than_the_named_one_goes_on(driver: TransactionDriver):
    producer = open_one(driver)
    start_ms, records = driver.state().start_ms, len(driver.log)
    for request in (
        AbortTransaction("id", ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1), start_ms),
        AbortTransaction("id", ProducerIdAndEpoch(producer.producer_id + 1, producer.epoch), start_ms),
        AbortTransaction("id", producer, start_ms - 1),
        AbortTransaction("other", producer, start_ms),
    ):
        assert refusal(driver, request) is ErrorCode.INVALID_TXN_STATE
    assert driver.state().status is TransactionStatus.ONGOING
    assert len(driver.log) == records


def test_the_next_transaction_of_the_same_producer_is_another_one():
    """Of the first protocol it has the same epoch; its start tells them apart."""
    driver = TransactionDriver(transaction_version=0)
    producer = open_one(driver)
    start_ms = driver.state().start_ms
    driver.end(producer)
    driver.complete()
    driver.advance(1)
    driver.add(producer, T0)
    assert refusal(driver, AbortTransaction("id", producer, start_ms)) is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_whose_end_is_decided_is_not_aborted(driver: TransactionDriver):
    producer = open_one(driver)
    start_ms = driver.state().start_ms
    driver.end(producer)
    assert refusal(driver, AbortTransaction("id", driver.state().producer, start_ms)) is ErrorCode.INVALID_TXN_STATE
    assert driver.state().status is TransactionStatus.PREPARE_COMMIT


def test_each_end_is_counted_once_by_what_it_was(driver: TransactionDriver):
    for commits in (True, False, True):
        driver.end(open_one(driver), commits=commits)
        driver.complete()
    driver.call(AbortTransaction("id", open_one(driver), driver.state().start_ms))
    driver.complete()
    open_one(driver)
    driver.advance(60)
    driver.tick()
    machine = driver.machine
    assert (machine.committed, machine.aborted, machine.timed_out) == (2, 3, 1)


def test_the_client_of_an_id_is_known_until_the_id_is_forgotten(driver: TransactionDriver):
    open_one(driver)
    assert driver.machine.client_ids == {"id": CLIENT.client_id[:SHOWN_CLIENT_ID_CHARACTERS]}
    driver.restart()
    assert driver.machine.client_ids == {}, "it is not in the log"
    driver.end(driver.state().producer)
    driver.complete()
    driver.advance(8 * 86_400)
    assert driver.tick()
    assert driver.machine.client_ids == {}
