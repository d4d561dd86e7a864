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

from kafka_wire.error_codes import ErrorCode
from trio_broker.client.errors import ClientError, Refused, VersionNotServed
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.producer.transactions import ENDED
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.exactly_once.decision import Decision, TaskTransaction
from trio_broker.spark.exactly_once.decision_log import DecisionLog
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions

log = logging.getLogger(__name__)

ID_PREFIX: Final = "trio-broker-spark."
"""Every transactional id begins with it, and goes on with the job; for rules of access."""


class TransactionExpired(SparkJobError):
    """A transaction of a batch was aborted by its timeout before it was committed."""


@attrs.frozen
class _Lost:
    """A transaction that had ended when it was to be committed."""

    written: TaskTransaction
    error: Refused


@attrs.frozen
class Committer:
    """Commits the batches of one job. ``is_repeatable`` says that a later driver may come with the same job."""

    settings: ProducerSettings
    topic: str
    job: str
    is_repeatable: bool = True
    lost_transactions: LostTransactions = LostTransactions.FAIL

    def commit(self, batch: int, written: Sequence[TaskTransaction]) -> None:
        """Commit what the tasks of a batch have written, or what was decided for it before.

        A batch of which no task wrote anything is decided as well: an earlier run of it may have had rows.

        Raises:
            TransactionExpired: a transaction is not open any more. Where that is so after the decision, its records
                are missing, and the text says which.
            SparkJobError, ClientError: it could not be done in time; another call goes on with it.
        """
        with self._log() as decisions:
            # Nobody would read a decision about a job that is never run again.
            if not self.is_repeatable:
                if written:
                    self._end_all(decisions, self._decide(decisions, batch, written, None))
                return
            known = decisions.take_over()
            if known is not None and not known.is_done:
                known = self._complete(decisions, known, written if known.batch == batch else ())
            if known is not None and known.batch >= batch:
                log.info("batch %d of %s was written before: nothing is written again", batch, self.job)
                self._abort(decisions, written, known)
                # What drivers that died have left open would hold readers back until the next batch, if there is one.
                decision = Decision(known.batch, (), tuple(self._others(decisions, ())))
                if decision.is_empty:
                    return
            else:
                decision = self._decide(decisions, batch, written, known)
            if not decision.is_empty:
                decisions.write(decision)
                self._end_all(decisions, decision)
            decisions.write(decision.done)

    def abort(self, written: Sequence[TaskTransaction]) -> None:
        """Abort what the tasks of a failed batch have written, but for what was decided to be committed.

        Raises:
            SparkJobError, ClientError: it could not be done; the transactions end when they time out.
        """
        if not written:
            return
        with self._log() as decisions:
            self._abort(decisions, written, decisions.take_over() if self.is_repeatable else None)

    def _log(self) -> DecisionLog:
        return DecisionLog(self.settings, self.topic, f"{ID_PREFIX}{self.job}")

    def _decide(
        self, decisions: DecisionLog, batch: int, written: Sequence[TaskTransaction], known: Decision | None
    ) -> Decision:
        """Return the decision to commit a batch, of which every transaction is open."""
        self._require_open(decisions, batch, written, known)
        return Decision(batch, tuple(written), tuple(self._others(decisions, written)))

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

    def _complete(self, decisions: DecisionLog, decision: Decision, repetition: Sequence[TaskTransaction]) -> Decision:
        """Carry out what an earlier driver has decided, and return it as it is then known.

        Raises:
            TransactionExpired: a transaction had ended, and nothing is to be done about it, or can be.
        """
        lost = self._commit_all(decisions, decision)
        match self.lost_transactions if lost else None:
            case LostTransactions.FAIL:
                hint = "the option 'lostTransactions' says what to do about them"
                raise TransactionExpired(f"{self._in_part(decision, lost)}; {hint}")
            case LostTransactions.SKIP:
                log.warning("%s; these rows are given up", self._in_part(decision, lost))
            case LostTransactions.REWRITE:
                log.warning("%s; these rows are taken from the repetition", self._in_part(decision, lost))
                # What is committed needs no end any more. The new decision fences those who know the old one.
                decision = attrs.evolve(decision, committed=self._replacements(decision, lost, repetition))
                self._require_open(decisions, decision.batch, decision.committed, decision)
                decisions.write(decision)
                self._end_all(decisions, decision)
        self._abort_condemned(decisions, decision)
        decisions.write(decision.done)
        return decision

    def _replacements(
        self, decision: Decision, lost: Sequence[_Lost], repetition: Sequence[TaskTransaction]
    ) -> tuple[TaskTransaction, ...]:
        """Return what the tasks whose transactions are lost have written in the repetition of the batch.

        Raises:
            TransactionExpired: a task has other rows this time, or it is not known whether the first ones are lost.
        """
        by_task = {each.task: each for each in repetition}
        for each in lost:
            again = by_task.get(each.written.task)
            count = 0 if again is None else again.record_count
            reason = ""
            if each.error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                reason = "the brokers have forgotten whether it was committed"
            elif count != each.written.record_count:
                reason = f"in the repetition the task has {count} records"
            if reason:
                text = self._in_part(decision, lost)
                raise TransactionExpired(f"{text}; {_named(each.written)} cannot be written again: {reason}")
        return tuple(by_task[each.written.task] for each in lost)

    def _end_all(self, decisions: DecisionLog, decision: Decision) -> None:
        """Commit and abort as was just decided.

        Raises:
            TransactionExpired: a transaction has ended since.
        """
        if lost := self._commit_all(decisions, decision):
            raise TransactionExpired(self._in_part(decision, lost))
        self._abort_condemned(decisions, decision)

    def _commit_all(self, decisions: DecisionLog, decision: Decision) -> list[_Lost]:
        """Commit every transaction of a decision that is open; return those that are neither open nor committed."""
        lost = []
        for each in decision.committed:
            try:
                decisions.transactions.end(each.transaction, commit=True)
            except Refused as error:
                if error.code not in ENDED:
                    raise
                lost.append(_Lost(each, error))
        return lost

    def _abort_condemned(self, decisions: DecisionLog, decision: Decision) -> None:
        for name in decision.condemned:
            decisions.transactions.begin(name, self.settings.transaction_timeout_ms)

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

    def _in_part(self, decision: Decision, lost: Sequence[_Lost]) -> str:
        reasons = "; ".join(f"{_named(each.written)}: {self._timeout_hint(each.error)}" for each in lost)
        return (
            f"batch {decision.batch} of {self.job} is written in part only: it was decided, and {len(lost)} of"
            f" {len(decision.committed)} transactions had ended before they were committed: {reasons}"
        )

    def _timeout_hint(self, error: ClientError) -> str:
        key, timeout_ms = self.settings.option_name("transaction.timeout.ms"), self.settings.transaction_timeout_ms
        return f"{error}; it may have been open for longer than {timeout_ms} ms ({key})"


def _named(each: TaskTransaction) -> str:
    return f"the transaction {each.transaction.transactional_id!r} of task {each.task} with {each.record_count} records"
