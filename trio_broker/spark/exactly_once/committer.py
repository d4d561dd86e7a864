"""The driver's part of the two-phase commit.

    tasks: write in open transactions ─▶ commit: decide (one record, durable) ─▶ end every transaction ─▶ done

``commit`` may be called again for a batch, by the same driver or by one that was started after a crash, with other
transactions of tasks that have written the batch again. The first decision counts: its transactions are committed, and
those of the repetition are aborted. So it does not matter whether the repetition has the same rows.

Before a decision every transaction in it is asked for, so a transaction that timed out fails the batch, which can then
be written again. Other open transactions of the job are condemned by the same record before they are aborted: a driver
that was thought dead finds them there, or finds them ended, and can never decide for them.

Source: docs/decisions/0052.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs

from trio_broker.client.errors import ClientError, Refused, VersionNotServed
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.producer.transactions import ENDED
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.exactly_once.decision import Decision, TaskTransaction
from trio_broker.spark.exactly_once.decision_log import DecisionLog

log = logging.getLogger(__name__)

ID_PREFIX: Final = "trio-broker-spark."
"""Every transactional id begins with it, and goes on with the job; for rules of access."""


class TransactionExpired(SparkJobError):
    """A transaction of a batch was aborted by its timeout before it was committed."""


@attrs.frozen
class Committer:
    """Commits the batches of one job. ``is_repeatable`` says that a later driver may come with the same job."""

    settings: ProducerSettings
    topic: str
    job: str
    is_repeatable: bool = True

    def commit(self, batch: int, written: Sequence[TaskTransaction]) -> None:
        """Commit what the tasks of a batch have written, or what was decided for it before.

        A batch of which no task wrote anything is decided as well: an earlier run of it may have had rows.

        Raises:
            TransactionExpired: a transaction is not open any more. Where that is so after the decision, its records
                are missing, and the text says which.
            SparkJobError, ClientError: it could not be done in time; another call goes on with it.
        """
        if not written and not self.is_repeatable:
            return
        with self._log() as decisions:
            known = decisions.take_over()
            if known is not None and not known.is_done:
                self._carry_out(decisions, known)
            if known is not None and known.batch >= batch:
                log.info("batch %d of %s was written before: nothing is written again", batch, self.job)
                self._abort(decisions, written, known)
                return
            self._require_open(decisions, batch, written, known)
            decision = Decision(batch, tuple(written), tuple(self._others(decisions, written)))
            if decision.is_empty:
                decisions.write(attrs.evolve(decision, is_done=True))
                return
            decisions.write(decision)
            self._carry_out(decisions, decision)

    def abort(self, written: Sequence[TaskTransaction]) -> None:
        """Abort what the tasks of a failed batch have written, but for what was decided to be committed.

        Raises:
            SparkJobError, ClientError: it could not be done; the transactions end when they time out.
        """
        if not written:
            return
        with self._log() as decisions:
            self._abort(decisions, written, decisions.take_over())

    def _log(self) -> DecisionLog:
        return DecisionLog(self.settings, self.topic, f"{ID_PREFIX}{self.job}")

    def _others(self, decisions: DecisionLog, written: Sequence[TaskTransaction]) -> list[str]:
        """Return the ids of the job's other open transactions: of attempts that lost, and of drivers that died."""
        ours = {each.transaction.transactional_id for each in written}
        try:
            # The dot behind the job: the id without it is that of the decisions.
            return [each for each in decisions.transactions.open_ids(f"{ID_PREFIX}{self.job}.") if each not in ours]
        except VersionNotServed:
            return []

    def _require_open(
        self, decisions: DecisionLog, batch: int, written: Sequence[TaskTransaction], known: Decision | None
    ) -> None:
        condemned = () if known is None else known.condemned
        for each in written:
            reason = "another driver of the job has taken over"
            if each.transaction.transactional_id not in condemned:
                try:
                    decisions.transactions.add_partitions(each.transaction, [each.partition])
                    continue
                except Refused as error:
                    if error.code not in ENDED:
                        raise
                    reason = self._timeout_hint(error)
            raise TransactionExpired(f"batch {batch} of {self.job} was not written: {_named(each)}: {reason}")

    def _carry_out(self, decisions: DecisionLog, decision: Decision) -> None:
        """End every transaction of a decision, and write that it is done."""
        lost = []
        for each in decision.committed:
            try:
                decisions.transactions.end(each.transaction, commit=True)
            except Refused as error:
                if error.code not in ENDED:
                    raise
                lost.append(f"{_named(each)}: {self._timeout_hint(error)}")
        if lost:
            raise TransactionExpired(
                f"batch {decision.batch} of {self.job} is written in part only: it was decided, and {len(lost)} of"
                f" {len(decision.committed)} transactions had ended before they were committed: {'; '.join(lost)}"
            )
        for name in decision.condemned:
            decisions.transactions.begin(name, self.settings.transaction_timeout_ms)
        decisions.write(attrs.evolve(decision, condemned=(), is_done=True) if self.is_repeatable else None)

    def _abort(self, decisions: DecisionLog, written: Sequence[TaskTransaction], known: Decision | None) -> None:
        decided = set() if known is None else {each.transaction for each in known.committed}
        for each in written:
            if each.transaction in decided:
                continue
            try:
                decisions.transactions.end(each.transaction, commit=False)
            except Refused as error:
                if error.code not in ENDED:
                    raise

    def _timeout_hint(self, error: ClientError) -> str:
        key, timeout_ms = self.settings.option_name("transaction.timeout.ms"), self.settings.transaction_timeout_ms
        return f"{error}; it may have been open for longer than {timeout_ms} ms ({key})"


def _named(each: TaskTransaction) -> str:
    return f"the transaction {each.transaction.transactional_id!r} of task {each.task} with {each.record_count} records"
