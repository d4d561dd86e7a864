"""Whether transactions were all or nothing, for those who read committed records only.

A transaction is one event, from its beginning to the answer to its end. It is ``ok`` if its commit was acknowledged. It
is ``fail`` if it cannot have been committed: its abort was acknowledged, or its commit was never asked for. Any other
is ``info``, and either all of it is seen in the end, or none. ``ending`` is when its end was first asked for: before
that moment its records hold back the last stable offset, and nobody sees them. A process that was killed before it
asked has left a transaction that is ``fail``.

In the end, when every transaction has ended, everything is read once more (``FinalState``). What a reader has seen at
any time is still there then. Each value belongs to one record, and each record that a transaction wrote has a new one.

Of a loop that reads, processes and writes, the transaction names the records that it was made from, ``inputs``. Those
before the group's committed offset are each in one transaction that is seen, and those behind it in none.

A producer is fenced once InitProducerId was acknowledged to another one, or to itself anew, with the same transactional
id. What it begins after that is refused, and what it had begun and not asked to commit is never seen.

Source: KIP-98, KIP-360, KIP-447, KIP-890; the anomalies of Jepsen's Kafka workload.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from tests.checking.delivery import ONLY_WHAT_WAS_SENT, spans
from tests.checking.history import Event, Op, Outcome, Record, Violation

ALL_OR_NOTHING = "all or none of a transaction is seen"
COMMITS_ARE_SEEN = "a committed transaction is seen"
ABORTS_ARE_NOT_SEEN = "no aborted record is seen"
NOTHING_UNDECIDED = "no record is seen before its transaction is decided"
SEEN_ONCE = "each record is seen once"
SEEN_RECORDS_STAY = "a record that was seen stays"
STABLE_OFFSETS_GROW = "the last stable offset never goes back"
MOVED_ONCE = "each input is moved once"
OFFSETS_WITH_RECORDS = "offsets and records are committed together"
FENCED_PRODUCERS_ARE_REFUSED = "a fenced producer writes nothing more"


@attrs.frozen
class FinalState:
    """What is there once every transaction has ended. ``output`` is the topic that transactions write to, as those see
    it who read committed records; ``source`` is the topic that groups move to it, and ``committed`` their offsets.
    """

    output: Mapping[int, Sequence[Record]]
    source: Mapping[int, Sequence[Record]] = attrs.field(factory=dict)
    committed: Mapping[str, Mapping[int, int | None]] = attrs.field(factory=dict)


def check_transactions(history: Sequence[Event], final: FinalState) -> list[Violation]:
    """Every promise to transactional producers and their readers that was broken."""
    transactions = [event for event in history if event.op is Op.TRANSACTION]
    reads = [event for event in history if event.op is Op.READ_COMMITTED]
    seen = _Seen.of(final.output)
    return [
        *_records_that_differ(transactions, seen, final.output),
        *_wrong_transactions(transactions, seen),
        *_reads_of_aborted_records(transactions, reads),
        *_reads_too_far(transactions, reads, seen),
        *_records_that_went_away(reads, seen),
        *_stable_offsets_that_went_back(reads),
        *_moved_wrong(transactions, seen, final),
        *_fenced_and_not_refused(history, transactions, seen),
    ]


@attrs.frozen
class _Seen:
    """The records of the final output by their values."""

    by_value: Mapping[int, Record]

    @classmethod
    def of(cls, output: Mapping[int, Iterable[Record]]) -> _Seen:
        return cls({record.value: record for records in output.values() for record in records})

    def of_transaction(self, transaction: Event) -> list[Record]:
        return [self.by_value[each.value] for each in transaction.records if each.value in self.by_value]

    def has(self, transaction: Event) -> bool:
        return bool(self.of_transaction(transaction))


def _records_that_differ(
    transactions: Sequence[Event], seen: _Seen, output: Mapping[int, Sequence[Record]]
) -> Iterator[Violation]:
    for records in output.values():
        for record in records:
            if seen.by_value[record.value] != record:
                yield Violation(SEEN_ONCE, f"{record} and {seen.by_value[record.value]}")
    sent = {record.value for event in transactions for record in event.records}
    for value, record in seen.by_value.items():
        if value not in sent:
            yield Violation(ONLY_WHAT_WAS_SENT, f"{record} came from nowhere")


def _wrong_transactions(transactions: Sequence[Event], seen: _Seen) -> Iterator[Violation]:
    for event in transactions:
        found = seen.of_transaction(event)
        if event.outcome is Outcome.FAIL and found:
            yield Violation(ABORTS_ARE_NOT_SEEN, f"{found} are seen in the end", (event,))
        elif event.is_ok and set(found) != set(event.records):
            text = f"of {list(event.records)} these are seen in the end: {found}"
            yield Violation(COMMITS_ARE_SEEN if not found else ALL_OR_NOTHING, text, (event,))
        elif found and len(found) < len(event.records):
            yield Violation(ALL_OR_NOTHING, f"of {list(event.records)} these are seen in the end: {found}", (event,))


def _reads_of_aborted_records(transactions: Sequence[Event], reads: Sequence[Event]) -> Iterator[Violation]:
    aborted = {
        record.value: event for event in transactions if event.outcome is Outcome.FAIL for record in event.records
    }
    for read in reads:
        for record in read.records:
            if record.value in aborted:
                yield Violation(ABORTS_ARE_NOT_SEEN, f"{record} was read", (aborted[record.value], read))


def _reads_too_far(transactions: Sequence[Event], reads: Sequence[Event], seen: _Seen) -> Iterator[Violation]:
    """Readers that got behind the first record of a transaction whose end nobody had asked for yet.

    Of one that was never asked to end, or whose fate is not known, nobody knows when it was aborted.
    """
    undecided = sorted(
        (
            event
            for event in transactions
            if event.ending < math.inf and (event.outcome is not Outcome.INFO or seen.has(event))
        ),
        key=lambda event: event.ending,
    )
    first: dict[int, tuple[int, Event]] = {}
    for read in sorted(reads, key=lambda event: event.completed, reverse=True):
        while undecided and undecided[-1].ending > read.completed:
            transaction = undecided.pop()
            for record in (*transaction.records, *seen.of_transaction(transaction)):
                if record.offset >= 0 and (record.partition not in first or record.offset < first[record.partition][0]):
                    first[record.partition] = record.offset, transaction
        for partition, end in _ends(read).items():
            if partition in first and end > first[partition][0]:
                offset, transaction = first[partition]
                text = f"partition {partition} was read up to {end}, and a transaction was open there from {offset} on"
                yield Violation(NOTHING_UNDECIDED, text, (transaction, read))


def _ends(read: Event) -> dict[int, int]:
    """How far a reader has got in each partition, which the last stable offset says as well."""
    ends = {partition: offset or 0 for partition, offset in read.offsets.items()}
    for record in read.records:
        ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 1)
    return ends


def _records_that_went_away(reads: Sequence[Event], seen: _Seen) -> Iterator[Violation]:
    for read in reads:
        for record in read.records:
            if seen.by_value.get(record.value) != record:
                text = f"{record} was read, and in the end there is {seen.by_value.get(record.value)}"
                yield Violation(SEEN_RECORDS_STAY, text, (read,))


def _stable_offsets_that_went_back(reads: Sequence[Event]) -> Iterator[Violation]:
    """Reads that began when another had ended with a larger one."""
    ended = sorted(reads, key=lambda event: event.completed, reverse=True)
    largest: dict[int, tuple[int, Event]] = {}
    for read in sorted(reads, key=lambda event: event.invoked):
        while ended[-1].completed < read.invoked:
            before = ended.pop()
            for partition, offset in before.offsets.items():
                if partition not in largest or largest[partition][0] < (offset or 0):
                    largest[partition] = offset or 0, before
        for partition, offset in read.offsets.items():
            known, before = largest.get(partition, (0, read))
            if (offset or 0) < known:
                text = f"partition {partition}: from {known} to {offset}"
                yield Violation(STABLE_OFFSETS_GROW, text, (before, read))


def _moved_wrong(transactions: Sequence[Event], seen: _Seen, final: FinalState) -> Iterator[Violation]:
    """Inputs that were moved twice, or whose offset was committed without them or they without their offset."""
    moved: dict[str, dict[Record, Event]] = {group: {} for group in final.committed}
    for event in transactions:
        if event.group in moved and seen.has(event):
            for record in event.inputs:
                other = moved[event.group].setdefault(record, event)
                if other is not event:
                    yield Violation(MOVED_ONCE, f"{event.group} has moved {record} twice", (other, event))
    for group, committed in final.committed.items():
        for partition, records in final.source.items():
            end = committed.get(partition) or 0
            lost = [record.offset for record in records if record.offset < end and record not in moved[group]]
            if lost:
                text = f"{group} has committed {end} in partition {partition} and not moved {spans(lost)}"
                yield Violation(OFFSETS_WITH_RECORDS, text)
        for record, event in moved[group].items():
            if record.offset >= (committed.get(record.partition) or 0):
                text = f"{group} has moved {record} and committed {committed.get(record.partition)}"
                yield Violation(OFFSETS_WITH_RECORDS, text, (event,))


def _fenced_and_not_refused(
    history: Sequence[Event], transactions: Sequence[Event], seen: _Seen
) -> Iterator[Violation]:
    """Transactions of producers that another had fenced before they began, or before they asked to commit."""
    inits: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        if event.op is Op.INIT_PRODUCER_ID and event.is_ok:
            inits[event.transactional_id].append(event)
    for event in transactions:
        known = inits[event.transactional_id]
        own = [init for init in known if init.process == event.process and init.completed < event.invoked]
        if not own:
            continue
        born = max(own, key=lambda init: init.completed)
        newer = [init for init in known if init.invoked > born.completed]
        fenced = min((init for init in newer), key=lambda init: init.completed, default=None)
        if fenced is None:
            continue
        if event.ending > fenced.completed and (event.is_ok or seen.has(event)):
            yield Violation(FENCED_PRODUCERS_ARE_REFUSED, "it has committed", (born, fenced, event))
        elif event.invoked > fenced.completed and any(record.offset >= 0 for record in event.records):
            yield Violation(FENCED_PRODUCERS_ARE_REFUSED, "it has written", (born, fenced, event))
