"""Pipelines over a cluster that loses a broker in the middle of each: what they read and write is there once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from tests.compat.cluster_clients import TRANSACTION_STATE, committed_numbers, create_topics, restart, write_numbers
from tests.spark.pipelines.local_commands import run_here
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.pipelines.table_rows import read_table
from trio_broker.spark.options.write_options import COMMIT_TOPIC
from trio_broker.spark.pipelines.task_runner import Result, T, TaskFunction, TasksDone
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing.broker_thread import ADMIN_ON_ANY_PORT
from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread

pytestmark = pytest.mark.soak

RECORDS = 40
EVERY_NUMBER = list(range(RECORDS))


@attrs.define
class LosingRunner:
    """Runs one task after the other in this process; between the first two of the job a broker is lost."""

    lose: Callable[[], object]
    run_count: int = 0

    def parallelism(self) -> int:
        return 1

    def run(
        self, tasks: Sequence[T], function: TaskFunction[T], on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        def task(number: int, given: T) -> list[Result]:
            self.run_count += 1
            if self.run_count == 2:
                self.lose()
            return list(function(number, given))

        return LocalTaskRunner().run(tasks, task, on_done)


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with cluster_in_thread(transaction_state_log_num_partitions=1, admin_listener=ADMIN_ON_ANY_PORT) as running:
        create_topics(running, "orders", "documents", "replayed", "perhaps-twice", "restored")
        write_numbers(running, "orders", EVERY_NUMBER)
        write_numbers(running, "documents", EVERY_NUMBER, b'{"id": %d}')
        yield running


def test_what_pipelines_read_and_write_is_there_once_though_a_broker_is_lost_in_each(
    cluster: ClusterThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(lost_topic: str, *arguments: str) -> str:
        dead: list[int] = []

        def lose() -> None:
            dead.append(cluster.leader_of(lost_topic))
            cluster.kill(dead[0])

        runner = LosingRunner(lose)
        monkeypatch.setattr("tests.spark.pipelines.local_commands.LocalTaskRunner", lambda: runner)
        result = run_here(monkeypatch, *arguments)
        assert result.exit_code == 0, result.output
        [broker] = dead
        restart(cluster, broker)
        return result.stdout

    source = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "orders"]
    urls = ",".join(str(cluster.admin_url_of(each)) for each in cluster.broker_ids)
    for transport in ("wire", "files"):
        how = ["--option", f"transport={transport}", "--option", f"adminUrl={urls}"]
        command("orders", "export", *source, *how, "--to", f"parquet:{tmp_path / transport}")
        table = read_table(Target(Format.PARQUET, str(tmp_path / transport)))
        assert sorted(map(int, table["value"].to_pylist())) == EVERY_NUMBER

        rows = tmp_path / f"rows-{transport}"
        documents = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "documents", *how]
        command("documents", "etl", *documents, "--schema", "id BIGINT NOT NULL", "--to", f"parquet:{rows}")
        assert sorted(read_table(Target(Format.PARQUET, str(rows)))["id"].to_pylist()) == EVERY_NUMBER

    command(TRANSACTION_STATE, "replay", *source, "--to-topic", "replayed", "--exactly-once",
            "--checkpoint", str(tmp_path / "replay"))  # fmt: skip
    assert committed_numbers(cluster, "replayed") == EVERY_NUMBER
    command("perhaps-twice", "replay", *source, "--to-topic", "perhaps-twice", "--checkpoint", str(tmp_path / "again"))
    assert sorted(set(committed_numbers(cluster, "perhaps-twice"))) == EVERY_NUMBER

    target = ["--to-bootstrap-server", cluster.bootstrap_servers, "--to-topic", "restored", "--exactly-once"]
    command(COMMIT_TOPIC.required_default, "restore", str(tmp_path / "wire"), *target,
            "--checkpoint", str(tmp_path / "restore"))  # fmt: skip
    assert committed_numbers(cluster, "restored") == EVERY_NUMBER

    assert json.loads(command("orders", "stats", *source, "--json"))["totals"]["records"] == RECORDS
