"""The end of a round of tasks that write records: of a replay or a restore."""

from __future__ import annotations

from collections.abc import Sequence

from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.spark.exactly_once.committer import Committer
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions
from trio_broker.spark.options.write_options import COMMIT_TOPIC
from trio_broker.spark.pipelines.task_runner import Result


def end_round(target: ProducerSettings, job: str | None, batch: int, results: Sequence[Sequence[Result]]) -> int:
    """Commit what each task wrote in a transaction of ``job``, None without transactions; return the records of all.

    A round that is repeated has the same slices, so what was lost of it may be written again.

    Raises:
        SparkJobError, ClientError: as ``Committer.commit``.
    """
    if job is not None:
        written = [result["transaction"] for [result] in results if result["transaction"] is not None]
        topic = COMMIT_TOPIC.required_default
        Committer(target, topic, job, lost_transactions=LostTransactions.REWRITE).commit(batch, written)
    return sum(int(result["records"]) for [result] in results)
