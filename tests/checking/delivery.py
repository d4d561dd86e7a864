"""Whether every record was processed at least once by every group, and nothing else was.

Whatever was sent and acknowledged is there, at its offset, for every group that follows the topic from its beginning; a
send without an answer may be there. Inside one assignment a member gets a partition's records one after the other: the
topic has neither transactions nor compaction, so there are no offsets without a record.

Source: Kafka's documentation on at-least-once delivery; the anomalies of Jepsen's Kafka workload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.checking.history import Event, Op, Outcome, Record, Violation

ONE_VALUE_PER_OFFSET = "one value per offset"
ONLY_WHAT_WAS_SENT = "only what was sent"
EVERYTHING_IS_PROCESSED = "every record is processed"
NOTHING_IS_SKIPPED = "no record is skipped"


def check_delivery(history: Sequence[Event], groups: frozenset[str]) -> list[Violation]:
    """Every record that was invented, changed, moved, skipped, or not processed by one of ``groups``."""
    sent = {record: event for event in history if event.op is Op.SEND and event.is_ok for record in event.records}
    return [
        *_values_that_differ(history),
        *_values_nobody_sent(history),
        *_gaps(history, sent, groups),
        *_skips(history),
    ]


def _values_that_differ(history: Sequence[Event]) -> Iterator[Violation]:
    seen: dict[tuple[int, int], tuple[int, Event]] = {}
    for event in history:
        if event.op is Op.POLL or (event.op is Op.SEND and event.is_ok):
            for record in event.records:
                value, first = seen.setdefault((record.partition, record.offset), (record.value, event))
                if value != record.value:
                    text = f"partition {record.partition} has {value} and {record.value} at offset {record.offset}"
                    yield Violation(ONE_VALUE_PER_OFFSET, text, (first, event))


def _values_nobody_sent(history: Sequence[Event]) -> Iterator[Violation]:
    sends = [event for event in history if event.op is Op.SEND and event.outcome is not Outcome.FAIL]
    values = {record.value for event in sends for record in event.records}
    for event in history:
        if event.op is Op.POLL:
            for record in event.records:
                if record.value not in values:
                    yield Violation(ONLY_WHAT_WAS_SENT, f"{record} came from nowhere", (event,))


def _gaps(history: Sequence[Event], sent: dict[Record, Event], groups: frozenset[str]) -> Iterator[Violation]:
    processed: dict[str, set[Record]] = {group: set() for group in groups}
    for event in history:
        if event.op is Op.POLL:
            processed[event.group].update(event.records)
    for group, records in processed.items():
        missing: dict[int, list[int]] = defaultdict(list)
        for record in sent.keys() - records:
            missing[record.partition].append(record.offset)
        for partition, offsets in missing.items():
            text = f"{group} has not processed offsets {spans(offsets)} of partition {partition}"
            yield Violation(EVERYTHING_IS_PROCESSED, text)


def spans(numbers: Sequence[int]) -> str:
    """``1-3, 7``, for display."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, span)) for span in found)


def _skips(history: Sequence[Event]) -> Iterator[Violation]:
    """Members that jumped, within one assignment."""
    last: dict[tuple[str, int], tuple[int, Event]] = {}
    for event in history:
        if event.op in (Op.ASSIGN, Op.REVOKE, Op.LOST):
            for partition in event.partitions:
                last.pop((event.process, partition), None)
        elif event.op is Op.POLL:
            for record in event.records:
                place = event.process, record.partition
                offset, before = last.get(place, (record.offset - 1, event))
                if record.offset != offset + 1:
                    text = f"{event.process} went from {offset} to {record.offset} in partition {record.partition}"
                    yield Violation(NOTHING_IS_SKIPPED, text, (before, event))
                last[place] = record.offset, event
