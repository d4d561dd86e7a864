"""Parses positions in a log on a command line: ``earliest``, ``latest``, ``42``, ``-10``, ``PT90M``, a date.

kcat's ``beginning``, ``end`` and ``s@1700000000000`` (milliseconds since 1970) have the same meaning as in kcat.

Source: kcat's ``-o``; rpk's ``--offset``.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

import attrs
import click

from kafka_wire.limits import MAX_OFFSET
from trio_broker.cli.assignments import TopicSelection
from trio_broker.client.errors import all_found
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.offsets import find_offsets, find_ranges
from trio_broker.client.topics import describe_topics
from trio_broker.common.iso8601 import parse_duration, parse_moment
from trio_broker.common.log_range import UNKNOWN_OFFSET, LogRange
from trio_broker.common.topic_partition import TopicPartition

SHORT_DURATION: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d)", re.ASCII)
UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

FORMS: Final = (
    "earliest, latest, an offset, -N for the last N, a time such as 2026-01-31T12:00:00 (UTC unless it has a zone), or"
    " a duration before now: 90m, PT90M, P7D"
)


class Boundary(enum.Enum):
    """The two ends of a log: the log start offset, and the offset after the last visible record."""

    EARLIEST = enum.auto()
    LATEST = enum.auto()


@attrs.frozen
class AtOffset:
    """An offset, or the nearest one that is within the log's range."""

    offset: int


@attrs.frozen
class BeforeEnd:
    """``count`` offsets before the end of the log, or its beginning if it has fewer."""

    count: int


@attrs.frozen
class AtMoment:
    """The first record at or after a time, in milliseconds since 1970; the end of the log if there is none."""

    timestamp_ms: int


Position: TypeAlias = Boundary | AtOffset | BeforeEnd | AtMoment

NAMES: Final[dict[str, Position]] = {
    "earliest": Boundary.EARLIEST,
    "beginning": Boundary.EARLIEST,
    "oldest": Boundary.EARLIEST,
    "latest": Boundary.LATEST,
    "end": Boundary.LATEST,
    "newest": Boundary.LATEST,
}


def position(text: str) -> Position:
    """Read one position.

    Raises:
        click.BadParameter: the text is not a position.
    """
    if (named := NAMES.get(text)) is not None:
        return named
    number = text.removeprefix("-")
    if number.isdecimal():
        # Larger numbers do not fit into a request. ``resolve`` moves them to the end or the beginning of the log
        # anyway.
        count = min(int(number), MAX_OFFSET)
        return BeforeEnd(count) if text.startswith("-") else AtOffset(count)
    try:
        # Negative timestamps are special values in ListOffsets (-1 latest, -2 earliest), and no record is before 1970.
        return AtMoment(max(0, _timestamp_ms(text)))
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no position in a log; one is {FORMS}") from None


def _timestamp_ms(text: str) -> int:
    if text.startswith("s@"):
        return int(text[2:])
    if short := SHORT_DURATION.fullmatch(text):
        return time.time_ns() // 1_000_000 - int(short[1]) * UNIT_MS[short[2]]
    if text.upper().startswith("P"):
        return time.time_ns() // 1_000_000 - parse_duration(text)
    return parse_moment(text)


def chosen_partitions(client: KafkaClient, selections: Collection[TopicSelection]) -> set[TopicPartition]:
    """Return the named partitions. Partitions that are given by number are not checked here: the next request does.

    Raises:
        Refused: a topic does not exist.
    """
    described = describe_topics(client, [each.topic for each in selections])
    return {
        TopicPartition(each.topic, index)
        for each in selections
        for index in (each.partitions or [partition.index for partition in described[each.topic].partitions])
    }


def known_ranges(
    client: KafkaClient, partitions: Collection[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, LogRange]:
    """Return the ranges of the logs, in order; with ``read_committed`` they end at the last stable offset.

    Raises:
        Refused: a partition does not exist, or its leader did not answer in time.
    """
    # ``find_ranges`` returns the partitions in the order in which they are given.
    return all_found(find_ranges(client, sorted(partitions), read_committed=read_committed))


def known_offsets_at(
    client: KafkaClient, partitions: Collection[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record at or after a time, or ``UNKNOWN_OFFSET`` if it has none.

    Raises:
        Refused: the leader of a partition did not answer in time.
    """
    return all_found(find_offsets(client, partitions, timestamp_ms))


def resolve(client: KafkaClient, wanted: Position, ranges: dict[TopicPartition, LogRange]) -> dict[TopicPartition, int]:
    """Return the offset of ``wanted`` in each partition, moved into the range of the log if necessary.

    Raises:
        Refused: the leader of a partition did not answer in time.
    """
    match wanted:
        case Boundary.EARLIEST:
            return {partition: log.earliest for partition, log in ranges.items()}
        case Boundary.LATEST:
            return {partition: log.latest for partition, log in ranges.items()}
        case AtOffset(offset):
            return {partition: min(max(offset, log.earliest), log.latest) for partition, log in ranges.items()}
        case BeforeEnd(count):
            return {partition: max(log.latest - count, log.earliest) for partition, log in ranges.items()}
        case AtMoment(timestamp_ms):
            found = known_offsets_at(client, ranges, timestamp_ms)
            return {
                partition: log.latest if found[partition] == UNKNOWN_OFFSET else found[partition]
                for partition, log in ranges.items()
            }


def moved(ranges: dict[TopicPartition, LogRange], wanted: Position) -> Iterable[str]:
    """Yield a line of text for each partition whose log does not contain the requested offset."""
    if isinstance(wanted, AtOffset):
        for partition, log in ranges.items():
            if not log.earliest <= wanted.offset <= log.latest:
                where = f"begins at {log.earliest}" if wanted.offset < log.earliest else f"ends at {log.latest}"
                yield f"{partition}: there is no offset {wanted.offset}; the log {where}"
