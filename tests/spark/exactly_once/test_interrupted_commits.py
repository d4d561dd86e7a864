"""At each step of a commit the driver dies, is overtaken by another one, or loses the broker; each batch is there
once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

from tests.spark.exactly_once.driver_steps import die, interrupted
from tests.spark.exactly_once.job import Job
from tests.spark.pipelines.crash_points import Killed
from trio_broker.client.errors import ClientError
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.exactly_once.decision import TaskTransaction
from trio_broker.testing import BrokerProcess, BrokerThread

FIRST = (b"a", b"b")
NEXT = b"z"
REPETITIONS = [
    pytest.param((b"c",), id="other rows"),
    pytest.param((), id="no rows", marks=pytest.mark.soak),
    pytest.param(FIRST, id="the same rows", marks=pytest.mark.soak),
]

MOST_STEPS = 100
"""More than a commit has."""

_numbers = itertools.count()


@attrs.frozen
class Case:
    """A job that writes a batch, is interrupted, writes it again, and writes a next one; its values bear its number."""

    job: Job
    number: int

    def write(self, batch: int, values: Sequence[bytes]) -> list[TaskTransaction]:
        """A task for each value, and one more attempt of the first, which lost."""
        written = [self.job.write(batch, b"%d:%s" % (self.number, each), task=task) for task, each in enumerate(values)]
        for each in values[:1]:
            self.job.write(batch, b"%d:%s" % (self.number, each))
        return written

    def repeat_and_go_on(self, repetition: Sequence[bytes]) -> None:
        """As a driver that was started after the first one seemed dead."""
        self.job.driver.commit(0, self.write(0, repetition))
        self.job.driver.commit(1, self.write(1, [NEXT]))


@pytest.fixture
def job(kafka_broker_session: BrokerThread) -> Job:
    topic = f"interrupted-{next(_numbers)}"
    kafka_broker_session.create_topic(topic, 1)
    return Job(kafka_broker_session.bootstrap_servers, topic)


def results_at_each_step(job: Job, run: Callable[[Case, int], bool]) -> list[tuple[bytes, ...]]:
    """What readers see of a case for each step of its first commit; ``run`` returns whether there was such a step."""
    for step in range(MOST_STEPS):
        if not run(Case(attrs.evolve(job, name=f"{job.topic}-{step}"), step), step):
            break
    else:
        raise AssertionError("a commit without end")
    found: list[list[bytes]] = [[] for _ in range(step + 1)]
    for value in job.read():
        number, _, text = (value or b"").partition(b":")
        found[int(number)].append(text)
    return [tuple(each) for each in found]


@pytest.mark.parametrize("repetition", REPETITIONS)
def test_a_driver_that_dies_at_any_step_leaves_its_batch_once(job: Job, repetition: tuple[bytes, ...]) -> None:
    def run(case: Case, step: int) -> bool:
        written = case.write(0, FIRST)
        with suppress(Killed), interrupted(step, die) as driver:
            case.job.driver.commit(0, written)
        case.repeat_and_go_on(repetition)
        return driver.was_interrupted

    found = results_at_each_step(job, run)
    assert len(found) > 10
    assert set(found) == {(*FIRST, NEXT), (*repetition, NEXT)}


@pytest.mark.parametrize("repetition", REPETITIONS)
def test_a_driver_that_is_overtaken_at_any_step_leaves_its_batch_once(job: Job, repetition: tuple[bytes, ...]) -> None:
    """The first driver goes on once the other one has written the batch and the next one."""

    def run(case: Case, step: int) -> bool:
        written = case.write(0, FIRST)
        with interrupted(step, lambda: case.repeat_and_go_on(repetition)) as driver:
            try:
                case.job.driver.commit(0, written)
            except (ClientError, SparkJobError):
                case.job.driver.abort(written)
        if not driver.was_interrupted:
            case.repeat_and_go_on(repetition)
        return driver.was_interrupted

    found = results_at_each_step(job, run)
    assert len(found) > 10
    assert set(found) == {(*FIRST, NEXT), (*repetition, NEXT)}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(range(3, MOST_STEPS, 4), id="some"),
        pytest.param(range(MOST_STEPS), id="all", marks=pytest.mark.soak),
    ],
)
def test_a_driver_that_loses_the_broker_at_any_step_goes_on_when_it_is_back(tmp_path: Path, steps: range) -> None:
    with BrokerProcess(tmp_path) as broker:

        def kill_and_start() -> None:
            broker.kill()
            broker.start()

        job = Job(broker.bootstrap_servers, "interrupted")
        for batch, step in enumerate(steps):
            lost, *written = (job.write(batch, b"%d" % batch), job.write(batch, b"%d" % batch))
            with interrupted(step, kill_and_start) as driver:
                job.driver.commit(batch, written)
            if not driver.was_interrupted:
                break
        found = job.read()

    assert batch > 1
    assert lost.transaction != written[0].transaction
    assert found == [b"%d" % each for each in range(batch + 1)]
