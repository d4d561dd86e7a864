"""The new offsets of a reset: a pure function of the committed offsets and of the ranges of the logs.

The command line and the admin API both plan with it. An offset that is given as a number (``ToOffset``, ``ShiftBy``,
``FromFile``, ``FromGroup``) is moved into the range of its log, as Kafka's tool does, and the plan has a remark about
it.

Source: Kafka's ConsumerGroupCommand and OffsetsUtils.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

import attrs

from trio_broker.common.log_range import UNKNOWN_OFFSET, LogRange
from trio_broker.common.topic_partition import TopicPartition

FIELDS_WITHOUT_GROUP: Final = 3
FIELDS_WITH_GROUP: Final = 4
"""``topic,partition,offset``, with the group before them if Kafka's tool exports several groups."""


class PlanError(Exception):
    """No plan can be made; the text says why."""


@attrs.frozen
class ToEarliest:
    """The log start offset."""


@attrs.frozen
class ToLatest:
    """The end of the log."""


@attrs.frozen
class ToCurrent:
    """The committed offset; the end of the log if there is none, as in Kafka's tool."""


@attrs.frozen
class ToOffset:
    """The same offset for every partition."""

    offset: int


@attrs.frozen
class ShiftBy:
    """The committed offset plus ``count``, which may be negative."""

    count: int


@attrs.frozen
class ToMoment:
    """The first record at or after a time, in milliseconds since 1970; the end of the log if there is none."""

    timestamp_ms: int


def to_moment(timestamp_ms: int) -> ToMoment:
    """Return the target for a time in milliseconds since 1970."""
    # Negative timestamps are special values in ListOffsets (-1 latest, -2 earliest), and no record is older than 1970.
    return ToMoment(max(0, timestamp_ms))


@attrs.frozen
class FromFile:
    """The offset that a file has for each partition."""

    offsets: Mapping[TopicPartition, int]


@attrs.frozen
class FromGroup:
    """The offset that another group has committed for each partition."""

    group_id: str
    offsets: Mapping[TopicPartition, int]


Target: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToMoment | FromFile | FromGroup


@attrs.frozen
class PlannedOffset:
    """The committed and the new offset of a partition; ``current`` is None if nothing is committed.

    ``remark`` explains a new offset that differs from the requested one, and is otherwise empty. ``log`` is the range
    that the plan was made with.
    """

    partition: TopicPartition
    current: int | None
    new: int
    remark: str
    log: LogRange

    @property
    def skipped_records(self) -> int | None:
        """How many offsets of the log the group passes over; None if nothing is committed."""
        return None if self.current is None else max(0, self.new - max(self.current, self.log.earliest))

    @property
    def repeated_records(self) -> int | None:
        """How many offsets of the log the group reads again; None if nothing is committed."""
        return None if self.current is None else max(0, min(self.current, self.log.latest) - self.new)


def plan(
    target: Target,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, LogRange],
    found: Mapping[TopicPartition, int],
) -> list[PlannedOffset]:
    """Return the new offset of every partition, in order.

    ``ranges`` has the log of each partition. ``found`` is for ``ToMoment`` and has the offset of that time, or
    ``UNKNOWN_OFFSET``.

    Raises:
        PlanError: a partition without a committed offset is to be shifted, or the file or the other group lacks a
            partition.
    """
    return [
        _planned(target, partition, committed.get(partition), ranges[partition], found.get(partition, UNKNOWN_OFFSET))
        for partition in sorted(partitions)
    ]


def _planned(
    target: Target, partition: TopicPartition, current: int | None, log: LogRange, found: int
) -> PlannedOffset:
    wanted, remark = _wanted(target, partition, current, log, found)
    new = wanted
    # Only numbers that a user gave. A committed offset before the log start stays, for example, with ``ToCurrent``.
    if isinstance(target, (ToOffset, ShiftBy, FromFile, FromGroup)):
        new = max(log.earliest, min(wanted, log.latest))
    if new > wanted:
        remark = f"{wanted} is before the log begins"
    elif new < wanted:
        remark = f"{wanted} is after the log ends"
    return PlannedOffset(partition, current, new, remark, log)


def _wanted(
    target: Target, partition: TopicPartition, current: int | None, log: LogRange, found: int
) -> tuple[int, str]:
    """Return the offset that the target asks for, and a remark."""
    match target:
        case ToEarliest():
            return log.earliest, ""
        case ToLatest():
            return log.latest, ""
        case ToCurrent():
            return (log.latest, "nothing is committed; the end of the log") if current is None else (current, "")
        case ToOffset(offset):
            return offset, ""
        case ShiftBy(count):
            if current is None:
                raise PlanError(f"{partition} cannot be shifted: nothing is committed for it")
            return current + count, ""
        case ToMoment():
            return (log.latest, "no record is as young; the end of the log") if found == UNKNOWN_OFFSET else (found, "")
        case FromFile(offsets):
            if partition not in offsets:
                raise PlanError(f"the file has no offset for {partition}")
            return offsets[partition], ""
        case FromGroup(group_id, offsets):
            if partition not in offsets:
                raise PlanError(f"group {group_id!r} has no offset for {partition}")
            return offsets[partition], ""


def read_offsets(lines: Iterable[str], group_id: str) -> dict[TopicPartition, int]:
    """Read lines ``topic,partition,offset`` or ``group,topic,partition,offset``; those of other groups are left out.

    Raises:
        PlanError: a line has another form, or no line is for this group.
    """
    offsets: dict[TopicPartition, int] = {}
    reader = csv.reader(lines)
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) == FIELDS_WITH_GROUP and fields[0].strip() != group_id:
                continue
            partition, offset = _line(fields)
            offsets[partition] = offset
    except (ValueError, csv.Error) as error:
        raise PlanError(f"line {reader.line_num}: {error}") from None
    if not offsets:
        raise PlanError(f"there is no line for group {group_id!r}")
    return offsets


def _line(fields: list[str]) -> tuple[TopicPartition, int]:
    if len(fields) not in (FIELDS_WITHOUT_GROUP, FIELDS_WITH_GROUP):
        raise ValueError(f"{','.join(fields)!r} is not of the form topic,partition,offset")
    topic, partition, offset = (field.strip() for field in fields[-FIELDS_WITHOUT_GROUP:])
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise ValueError(f"{','.join(fields)!r} is not of the form topic,partition,offset")
    return TopicPartition(topic, int(partition)), int(offset)
