"""Transactions of tasks, committed by drivers that come, die and come again; on a broker in this process."""

from __future__ import annotations

import itertools
from contextlib import suppress

import attrs
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from tests.spark.exactly_once.driver_steps import die, interrupted
from tests.spark.exactly_once.job import Job
from tests.spark.pipelines.crash_points import Killed
from tests.waits import within
from trio_broker.client.errors import ClientError
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.exactly_once.committer import Committer, TransactionExpired
from trio_broker.spark.exactly_once.decision import Decision
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions
from trio_broker.spark.exactly_once.task_transactions import TransactionalIds
from trio_broker.testing import BrokerThread

SECONDS = 30
_numbers = itertools.count()


def alter_policy(servers: str, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    within(admin.incremental_alter_configs([resource])[resource].result, SECONDS)


def grow(servers: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    within(admin.create_partitions([NewPartitions(topic, count)])[topic].result, SECONDS)


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


def test_what_dead_drivers_left_open_is_aborted_though_the_batch_is_done(job: Job):
    job.driver.commit(0, [job.write(0, b"a")])
    job.write(0, b"a")
    job.driver.commit(0, [job.write(0, b"a")])

    assert job.open_ids() == []
    assert job.read() == [b"a"]


def test_abort_leaves_what_was_decided(job: Job):
    decided, failed = job.write(0, b"a"), job.write(0, b"b")
    job.decide(0, decided)
    job.driver.abort([decided, failed])
    job.driver.commit(0, [job.write(0, b"a")])

    assert job.read() == [b"a"]


def test_a_transaction_that_has_ended_fails_the_batch_before_anything_is_committed(job: Job):
    ended, good = job.write(0, b"a"), job.write(0, b"b", task=1)
    job.abort(ended)

    with pytest.raises(TransactionExpired, match=r"batch 0 of .* was not written: .* of task 0 with 1 records"):
        job.driver.commit(0, [good, ended])
    job.driver.abort([good])
    assert job.read() == []


def test_a_transaction_that_ended_after_the_decision_is_named(job: Job):
    ended, good = job.write(0, b"a"), job.write(0, b"b", task=1)
    job.decide(0, ended, good)
    job.abort(ended)

    with pytest.raises(TransactionExpired, match=r"written in part only: .*1 of 2 .* of task 0 with 1 records"):
        job.driver.commit(0, [job.write(0, b"a")])


@pytest.fixture
def half_lost(job: Job) -> Job:
    """A job of which batch 0 was decided; the first of its two transactions timed out, the second one was committed."""
    ended, good = job.write(0, b"a"), job.write(0, b"b", task=1)
    job.decide(0, ended, good)
    job.abort(ended)
    return job


def test_what_was_lost_after_the_decision_is_taken_from_the_repetition(half_lost: Job):
    repeated = [half_lost.write(0, b"a"), half_lost.write(0, b"b", task=1)]
    with pytest.raises(TransactionExpired):
        half_lost.driver.commit(0, repeated)
    half_lost.driver_with(LostTransactions.REWRITE).commit(0, repeated)
    half_lost.driver.commit(1, [half_lost.write(1, b"c")])

    assert sorted(value or b"" for value in half_lost.read()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("again", [[b"a", b"x"], []])
def test_a_task_with_other_rows_in_the_repetition_is_not_taken(half_lost: Job, again: list[bytes]):
    repeated = [half_lost.write(0, *again)] if again else []

    with pytest.raises(TransactionExpired, match=rf"in the repetition the task has {len(again)} records"):
        half_lost.driver_with(LostTransactions.REWRITE).commit(0, repeated)


def test_what_was_lost_after_the_decision_can_be_given_up(half_lost: Job):
    half_lost.driver_with(LostTransactions.SKIP).commit(0, [half_lost.write(0, b"a")])
    half_lost.driver.commit(1, [half_lost.write(1, b"c")])

    assert half_lost.read() == [b"b", b"c"]


def test_a_driver_that_dies_while_it_writes_lost_rows_again_leaves_them_once(half_lost: Job):
    """At each step: a decision replaces another one, of which a part was carried out."""
    for step in range(100):
        with suppress(Killed), interrupted(step, die) as driver:
            repeated = [half_lost.write(0, b"a"), half_lost.write(0, b"b", task=1)]
            half_lost.driver_with(LostTransactions.REWRITE).commit(0, repeated)
        if not driver.was_interrupted:
            break

    assert step > 10
    assert sorted(value or b"" for value in half_lost.read()) == [b"a", b"b"]


def test_a_batch_that_is_never_repeated_needs_no_decision(job: Job):
    lost, won = job.write(0, b"a"), job.write(0, b"a")
    attrs.evolve(job.driver, topic="no such topic", is_repeatable=False).commit(0, [won])

    assert lost.transaction != won.transaction
    assert job.read() == [b"a"]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_decisions_is_refused(job: Job, kafka_broker_session: BrokerThread, policy: str):
    log = f"{policy.replace(',', '-')}-{job.topic}"
    kafka_broker_session.create_topic(log, 1, cleanup_policy=policy)
    driver = attrs.evolve(job.driver, topic=log)

    with pytest.raises(SparkJobError, match=rf"its cleanup.policy is '{policy}' and must be 'compact'"):
        driver.commit(0, [job.write(0, b"a")])
    alter_policy(job.servers, log, "compact")
    driver.commit(0, [job.write(0, b"a")])
    assert job.read() == [b"a"]


def test_a_job_is_found_after_partitions_were_added_to_the_topic_of_decisions(
    job: Job, kafka_broker_session: BrokerThread
):
    log = f"grown-{job.topic}"
    kafka_broker_session.create_topic(log, 3, cleanup_policy="compact")
    driver = attrs.evolve(job.driver, topic=log)
    driver.commit(0, [job.write(0, b"a")])
    for count in (6, 8, 16):
        grow(job.servers, log, count)
        driver.commit(0, [job.write(0, b"a")])

    assert job.read() == [b"a"]


def test_a_driver_that_has_missed_the_newest_decision_can_decide_nothing(job: Job, monkeypatch: pytest.MonkeyPatch):
    """It was read from a leader that was cut off from the others and replaced."""
    job.driver.commit(0, [job.write(0, b"a")])
    with job.decisions() as misled:
        with monkeypatch.context() as stale:
            stale.setattr(misled, "_readable_range", lambda partition: (0, 0))
            assert misled.take_over() is None
        with pytest.raises(SparkJobError, match="a newer decision lies behind it"):
            misled.write(Decision(0, (job.write(0, b"a"),)))

    job.driver.commit(0, [job.write(0, b"a")])
    assert job.read() == [b"a"]


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
