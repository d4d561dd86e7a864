"""``replay`` writes a range again, as it was, and after an interruption no record is missing and none unknown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.spark.pipelines.broker_records import TIME_MS, Kept, kept, numbered, send
from tests.spark.pipelines.local_commands import run_here
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.producer.consumed_records import headers_of, read_back
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import read_options
from trio_broker.spark.pipelines.commit_log import CommitLogError
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.replay.job import (
    ReplayReport,
    ReplaySettings,
    plan_replay,
    replay,
)
from trio_broker.spark.pipelines.rounds.round_job import WriteSlice
from trio_broker.spark.pipelines.rounds.target_topics import Partitions
from trio_broker.spark.pipelines.rounds.token_bucket import RateLimit
from trio_broker.spark.pipelines.task_runner import (
    Result,
    SparkTaskRunner,
    TaskFunction,
    TaskRunner,
    TasksDone,
)
from trio_broker.spark.producer.row_ids import HEADER, Deduplicator, find_row_id
from trio_broker.spark.producer.target_topic import TargetError
from trio_broker.testing import BrokerThread, broker_in_thread

FIRST = [*numbered(60), Kept(None, None), Kept(b"", b"", (("h", None),))]
SECOND = numbered(30, start=100)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A broker with a topic ``orders`` of two partitions."""
    with broker_in_thread() as broker:
        broker.create_topic("orders", 2)
        send(broker, "orders", FIRST, **{"batch.num.messages": 7})
        send(broker, "orders", SECOND, partition=1)
        yield broker


@attrs.define
class Job:
    """One replay, that can be run several times."""

    broker: BrokerThread
    settings: ReplaySettings
    options: dict[str, str]
    runner: TaskRunner = attrs.field(factory=LocalTaskRunner)

    def run(self) -> ReplayReport:
        with JobSource.of(read_options(self.options, Mode.BATCH)) as source:
            return replay(source, self.settings, self.options, lambda: self.runner)

    def with_settings(self, **changes: Any) -> Job:
        return attrs.evolve(self, settings=attrs.evolve(self.settings, **changes))


@pytest.fixture
def job(broker: BrokerThread, tmp_path: Path) -> Job:
    """A replay of all of ``orders`` to a new topic with the test's name and two partitions."""
    topic = tmp_path.name
    broker.create_topic(topic, 2)
    target = ProducerSettings(parse_addresses(broker.bootstrap_servers))
    settings = ReplaySettings(target, tmp_path / "checkpoint", topic, with_row_ids=False)
    return Job(broker, settings, {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})


def target_of(job: Job, partition: int = 0) -> list[Kept]:
    assert job.settings.topic is not None
    return kept(job.broker, job.settings.topic, partition)


def without_row_id(record: Kept) -> Kept:
    return attrs.evolve(record, headers=tuple(each for each in record.headers if each[0] != HEADER))


def test_records_and_partitions_are_kept(job: Job):
    report = job.run()
    assert (report.records, report.rounds) == (92, 2)
    assert (target_of(job), target_of(job, 1)) == (FIRST, SECOND)


def test_a_second_run_has_nothing_left_to_do(job: Job):
    job.run()
    report = job.run()
    assert (report.records, report.rounds, report.offsets_before) == (0, 0, 92)
    assert len(target_of(job)) == len(FIRST)


def test_what_came_after_the_first_run_began_is_not_replayed(job: Job):
    job.options["subscribe"] = "growing"
    job.broker.create_topic("growing")
    send(job.broker, "growing", FIRST)
    job.run()
    send(job.broker, "growing", SECOND)
    assert job.run().records == 0


def test_a_range_of_time_is_replayed(job: Job):
    job.options["startingTimestamp"] = str(TIME_MS + 20_000)
    job.options["endingTimestamp"] = str(TIME_MS + 40_000)
    job.options["startingOffsetsByTimestampStrategy"] = "latest"
    job.run()
    assert target_of(job) == FIRST[20:40]


def test_keys_may_choose_partitions_anew(job: Job):
    job = job.with_settings(partitions=Partitions.KEY)
    job.run()
    found = [target_of(job), target_of(job, 1)]
    keys = [{record.key for record in records} - {None} for records in found]
    assert sum(map(len, found)) == 92
    assert keys[0]
    assert keys[1]
    assert not keys[0] & keys[1]


def test_topics_keep_their_names_on_another_cluster(job: Job):
    with broker_in_thread() as other:
        other.create_topic("orders", 2)
        target = ProducerSettings(parse_addresses(other.bootstrap_servers))
        job.with_settings(target=target, topic=None).run()
        assert (kept(other, "orders"), kept(other, "orders", 1)) == (FIRST, SECOND)


def by_another_name(job: Job) -> ProducerSettings:
    """The job's own cluster, by a name of its broker that is not the one it is read by."""
    [address] = parse_addresses(job.broker.bootstrap_servers)
    return ProducerSettings((attrs.evolve(address, host="localhost"),))


@pytest.mark.parametrize("topic", [None, "orders"])
@pytest.mark.parametrize("target_of_job", [lambda job: job.settings.target, by_another_name], ids=["same", "alias"])
def test_a_topic_is_not_appended_to_itself(
    job: Job, topic: str | None, target_of_job: Callable[[Job], ProducerSettings]
) -> None:
    end = len(kept(job.broker, "orders"))
    with pytest.raises(OptionError, match="orders would be appended to itself"):
        job.with_settings(topic=topic, target=target_of_job(job)).run()
    assert len(kept(job.broker, "orders")) == end


def test_a_topic_that_a_pattern_takes_in_is_not_appended_to_itself(job: Job) -> None:
    topic = job.settings.topic
    assert topic is not None
    send(job.broker, topic, SECOND)
    options = {"kafka.bootstrap.servers": job.broker.bootstrap_servers, "subscribePattern": f"orders|{topic}"}
    with pytest.raises(OptionError, match=f"{topic} would be appended to itself"):
        attrs.evolve(job, options=options).run()


def test_a_topic_with_too_few_partitions_is_refused_before_anything_is_written(job: Job):
    job.broker.create_topic("narrow")
    with pytest.raises(TargetError, match="has 1 partitions, and records of partition 1"):
        job.with_settings(topic="narrow").run()
    assert kept(job.broker, "narrow") == []


def test_another_job_s_checkpoint_is_refused(job: Job):
    job.run()
    with pytest.raises(CommitLogError, match="another job"):
        job.with_settings(partitions=Partitions.KEY).run()


# --- Interruptions ---


class Interrupted(Exception):
    """The end of a process, seen from within."""


@attrs.define
class Interrupting:
    """Runs tasks until the ``rounds``-th call, of which three records are written before everything ends."""

    rounds: int
    slices: int = 2
    calls: int = 0

    def parallelism(self) -> int:
        return self.slices

    def run(
        self, tasks: Sequence[Any], function: TaskFunction[Any], on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        self.calls += 1
        if self.calls < self.rounds:
            return LocalTaskRunner().run(tasks, function, on_done)
        task = tasks[0].task
        cut = attrs.evolve(task, offsets=attrs.evolve(task.offsets, end_offset=task.offsets.start_offset + 3))
        function(0, attrs.evolve(tasks[0], task=cut))
        raise Interrupted


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_after_an_interruption_each_record_is_there_and_repeated_ones_can_be_recognised(
    job: Job, monkeypatch: pytest.MonkeyPatch, rounds: int
):
    monkeypatch.setattr("trio_broker.spark.pipelines.rounds.slice_schedule.DEFAULT_SLICE_RECORDS", 10)
    job = job.with_settings(with_row_ids=True)
    with pytest.raises(Interrupted):
        attrs.evolve(job, runner=Interrupting(rounds)).run()
    job.run()
    for partition, expected in ((0, FIRST), (1, SECOND)):
        records = target_of(job, partition)
        deduplicator, place = Deduplicator(), TopicPartition("there", partition)
        new = [each for each in records if deduplicator.is_new(place, row_id_of(each))]
        assert [without_row_id(each) for each in new] == expected
    assert len(target_of(job)) + len(target_of(job, 1)) == 92 + 3


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_after_an_interruption_each_record_is_there_once_with_transactions(
    job: Job, monkeypatch: pytest.MonkeyPatch, rounds: int
):
    monkeypatch.setattr("trio_broker.spark.pipelines.rounds.slice_schedule.DEFAULT_SLICE_RECORDS", 10)
    job = job.with_settings(is_exactly_once=True)
    with pytest.raises(Interrupted):
        attrs.evolve(job, runner=Interrupting(rounds)).run()
    job.run()
    assert committed(job) == [FIRST, SECOND]


def committed(job: Job) -> list[list[Kept]]:
    """What a reader of committed records sees, by partition."""
    assert job.settings.topic is not None
    found = read_back(job.broker.bootstrap_servers, job.settings.topic, 2)
    return [
        [Kept(each.key(), each.value(), tuple(headers_of(each)), each.timestamp()[1]) for each in found[number]]
        for number in range(2)
    ]


def test_a_job_in_transactions_is_not_continued_without(job: Job):
    job.with_settings(is_exactly_once=True).run()
    with pytest.raises(CommitLogError, match="its exactly_once is True, not False"):
        job.run()


def row_id_of(record: Kept) -> Any:
    found = find_row_id(record.headers)
    assert found is not None
    return found


def test_a_job_that_was_killed_before_its_first_round_begins_with_it(job: Job):
    job.run()
    commits = job.settings.checkpoint / "commits"
    for path in commits.iterdir():
        if path.name != "000000000000.json":
            path.unlink()
    assert job.run().records == 92


def test_row_ids_do_not_depend_on_how_many_tasks_run_at_once(job: Job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_broker.spark.pipelines.rounds.slice_schedule.DEFAULT_SLICE_RECORDS", 10)
    job = job.with_settings(with_row_ids=True)
    with pytest.raises(Interrupted):
        attrs.evolve(job, runner=Interrupting(1, slices=2)).run()
    before = [row_id_of(each) for each in target_of(job)]
    attrs.evolve(job, runner=Interrupting(99, slices=1)).run()
    assert [row_id_of(each) for each in target_of(job)][3:6] == before


def test_tasks_share_the_rate_by_what_they_have_to_do(job: Job, monkeypatch: pytest.MonkeyPatch):
    seen: list[WriteSlice] = []

    @attrs.frozen
    class Looking(LocalTaskRunner):
        def parallelism(self) -> int:
            return 2

        def run(self, tasks: Sequence[Any], function: Any, on_done: TasksDone | None = None) -> list[list[Result]]:
            seen.append(function)
            return super().run(tasks, attrs.evolve(function, limits=(RateLimit(), RateLimit())), on_done)

    attrs.evolve(job.with_settings(limit=RateLimit(records=9200)), runner=Looking()).run()
    assert [limit.records for limit in seen[0].limits] == [pytest.approx(6200), pytest.approx(3000)]


# --- The command, and Spark ---


def command(job: Job, *further: str) -> list[str]:
    where = ["-b", job.broker.bootstrap_servers, "--topic", "orders", "--to-topic", job.settings.topic or ""]
    return ["replay", *where, "--checkpoint", str(job.settings.checkpoint), *further]


def test_a_dry_run_tells_ranges_and_time_and_writes_nothing(job: Job, monkeypatch: pytest.MonkeyPatch):
    with JobSource.of(read_options(job.options, Mode.BATCH)) as source:
        assert plan_replay(source, job.settings).offset_count == 92
    result = run_here(monkeypatch, *command(job, "--dry-run", "--max-records-per-second", "2"))
    assert result.exit_code == 0, result.output
    assert "orders          0     0  62       62" in result.output
    assert "dry run: up to 92 records, in 46 s or more; nothing was written" in result.output
    assert target_of(job) == []
    assert not job.settings.checkpoint.exists()


def test_the_command_replays_once(job: Job, monkeypatch: pytest.MonkeyPatch):
    first = run_here(monkeypatch, *command(job, "--json"))
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["records"] == 92
    assert run_here(monkeypatch, *command(job)).output == "nothing left to write\n"
    assert [without_row_id(each) for each in target_of(job)] == FIRST


@pytest.mark.spark
def test_spark_replays_in_its_tasks(job: Job, spark):
    report = attrs.evolve(job, runner=SparkTaskRunner(spark)).run()
    assert (report.records, report.rounds) == (92, 1)
    assert (target_of(job), target_of(job, 1)) == (FIRST, SECOND)
