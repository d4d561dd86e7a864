"""Transactions of tasks, committed by drivers that come, die and come again; on a broker in this process."""

from __future__ import annotations

import itertools

import pytest

from tests.spark.exactly_once.job import Job
from trio_broker.client.errors import ClientError
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.spark.exactly_once.committer import Committer, TransactionExpired
from trio_broker.spark.exactly_once.decision import Decision
from trio_broker.spark.exactly_once.task_transactions import TransactionalIds
from trio_broker.testing import BrokerThread

_numbers = itertools.count()


@pytest.fixture
def job(kafka_broker_session: BrokerThread) -> Job:
    topic = f"exactly-once-{next(_numbers)}"
    kafka_broker_session.create_topic(topic, 1)
    return Job(kafka_broker_session.bootstrap_servers, topic)


def test_what_tasks_wrote_is_seen_when_the_driver_has_committed_it(job: Job):
    first, second = job.write(0, b"a", b"b"), job.write(0, b"c", task=1)
    job.driver.commit(0, [first, second])

    assert job.read() == [b"a", b"b", b"c"]


def test_an_attempt_that_lost_is_aborted_by_the_commit(job: Job):
    lost, won = job.write(0, b"a"), job.write(0, b"a")
    job.driver.commit(0, [won])

    assert lost.transaction != won.transaction
    assert job.read() == [b"a"]


def test_a_batch_that_was_not_decided_is_written_by_its_repetition(job: Job):
    job.write(0, b"a")
    job.driver.commit(0, [job.write(0, b"a")])

    assert job.read() == [b"a"]


def test_a_batch_that_was_decided_is_committed_by_the_next_driver_and_its_repetition_is_aborted(job: Job):
    job.decide(0, job.write(0, b"a"), job.write(0, b"b", task=1))
    # Other rows, as of a query that does not give the same ones again.
    job.driver.commit(0, [job.write(0, b"x")])

    assert job.read() == [b"a", b"b"]


def test_a_decision_is_carried_out_though_the_repetition_of_its_batch_has_no_rows(job: Job):
    job.decide(0, job.write(0, b"a"))
    job.driver.commit(0, [])

    assert job.read() == [b"a"]


def test_a_batch_without_rows_is_decided_as_well(job: Job):
    job.write(0, b"a")
    job.driver.commit(0, [])
    job.driver.commit(0, [job.write(0, b"a")])

    assert job.read() == []


def test_a_batch_that_is_done_is_not_written_again(job: Job):
    job.driver.commit(0, [job.write(0, b"a")])
    job.driver.commit(0, [job.write(0, b"a")])
    job.driver.commit(1, [job.write(1, b"b")])

    assert job.read() == [b"a", b"b"]


def test_abort_leaves_what_was_decided(job: Job):
    decided, failed = job.write(0, b"a"), job.write(0, b"b")
    job.decide(0, decided)
    job.driver.abort([decided, failed])
    job.driver.commit(0, [job.write(0, b"a")])

    assert job.read() == [b"a"]


def test_a_transaction_that_has_ended_fails_the_batch_before_anything_is_committed(job: Job):
    ended, good = job.write(0, b"a"), job.write(0, b"b", task=1)
    with BatchProducer(job.settings) as producer:
        producer.begin_transaction(ended.transaction.transactional_id)

    with pytest.raises(TransactionExpired, match=r"batch 0 of .* was not written: .* of task 0 with 1 records"):
        job.driver.commit(0, [good, ended])
    job.driver.abort([good])
    assert job.read() == []


def test_a_transaction_that_ended_after_the_decision_is_named(job: Job):
    ended, good = job.write(0, b"a"), job.write(0, b"b", task=1)
    job.decide(0, ended, good)
    with BatchProducer(job.settings) as producer:
        producer.begin_transaction(ended.transaction.transactional_id)

    with pytest.raises(TransactionExpired, match=r"written in part only: .*1 of 2 .* of task 0 with 1 records"):
        job.driver.commit(0, [job.write(0, b"a")])


def test_a_driver_that_was_taken_over_can_decide_nothing(job: Job):
    with job.decisions() as zombie:
        zombie.take_over()
        ours = job.write(0, b"a")
        job.driver.commit(0, [job.write(0, b"a")])
        with pytest.raises(ClientError):
            zombie.write(Decision(0, (ours,)))

    with pytest.raises(TransactionExpired):
        job.driver.commit(1, [ours])
    assert job.read() == [b"a"]


def test_a_condemned_transaction_is_never_decided_for(job: Job):
    condemned = job.write(0, b"a")
    with job.decisions() as decisions:
        decisions.take_over()
        decisions.write(Decision(0, (), (condemned.transaction.transactional_id,)))

    with pytest.raises(TransactionExpired, match="another driver of the job has taken over"):
        job.driver.commit(1, [condemned])


def test_the_newest_decision_is_found_behind_many_of_others(job: Job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_broker.spark.exactly_once.decision_log.FIRST_OFFSETS", 2)
    monkeypatch.setattr("trio_broker.spark.exactly_once.decision_log.PARTITIONS", 1)
    log = f"commits-{job.topic}"

    def driver(name: str) -> Committer:
        return Committer(job.settings, log, name)

    driver(job.name).commit(0, [job.write(0, b"a")])
    for number in range(5):
        other = Job(job.servers, job.topic, f"other-{number}")
        driver(other.name).commit(0, [other.write(0, b"o")])
    driver(job.name).commit(0, [job.write(0, b"a")])

    assert job.read() == [b"a", *[b"o"] * 5]


def test_a_process_uses_its_ids_again_in_the_next_batch():
    ids = TransactionalIds()
    first = {ids.take("job", 0), ids.take("job", 0)}
    second = {ids.take("job", 1), ids.take("job", 1)}

    assert first == second
    assert len(first) == 2
    assert ids.take("job", 1) not in first
    assert ids.take("another", 2) not in first
