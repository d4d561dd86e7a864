"""The beginning and the end of a job, as its options say them, before any offset is looked up.

Also the protocol of the lookup: ``OffsetSource``, a cluster or a directory of logs.

Source: the options ``startingOffsets``, ``startingOffsetsByTimestamp``, ``startingTimestamp`` of Spark's Kafka source
and their counterparts for the end. Their JSON is also that of the offsets in a stream's checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Protocol

import attrs

from kafka_wire.limits import INT32_MAX, INT64_MAX
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.options.option import parse_long
from trio_broker.spark.options.selection import Selection

EARLIEST_OFFSET: Final = -2
"""Stands for the first offset of the log."""

LATEST_OFFSET: Final = -1
"""Stands for the offset behind the last record."""


OFFSETS_EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'
TIMESTAMPS_EXAMPLE: Final = '{"orders": {"0": 1700000000000, "1": 1700000000000}}'
PARTITIONS_EXAMPLE: Final = '{"orders": [0, 1]}'

MOST_LISTED: Final = 10
"""Partitions that an error names; a thousand would hide its reason."""

MOST_SHOWN_CHARACTERS: Final = 60
"""How much of a wrong value an error repeats."""

MOST_DIGITS: Final = 10
"""Of a partition's number, which has 31 bits; a longer one is not converted."""

_PARTITION = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class NoMatch(Enum):
    """What happens where no record is as young as the start: ``startingOffsetsByTimestampStrategy``."""

    ERROR = "error"
    LATEST = "latest"


@attrs.frozen
class Earliest:
    """The first offset of every partition."""


@attrs.frozen
class Latest:
    """The end of every partition at the time of the lookup."""


@attrs.frozen
class SpecificOffsets:
    """One offset for every partition, or ``EARLIEST_OFFSET`` or ``LATEST_OFFSET``."""

    offsets: Mapping[TopicPartition, int]


@attrs.frozen
class GlobalTimestamp:
    """In every partition the first record at ``timestamp_ms`` or younger (milliseconds since 1970)."""

    timestamp_ms: int
    no_match: NoMatch = NoMatch.ERROR


@attrs.frozen
class TimestampsByPartition:
    """As ``GlobalTimestamp``, with a time for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]
    no_match: NoMatch = NoMatch.ERROR


OffsetSpec = Earliest | Latest | SpecificOffsets | GlobalTimestamp | TimestampsByPartition


class OffsetSource(Protocol):
    """Looks up partitions and offsets.

    Raises, each method:
        SourceUnavailable: no broker answers in time.
    """

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """Return the partitions of ``selection``, sorted; assigned ones that do not exist are left out.

        Internal topics (``__consumer_offsets``) are not read. A pattern that matches nothing is no error.

        Raises:
            SparkJobError: a topic named by ``Assign`` or ``Subscribe`` does not exist.
        """
        ...

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each; partitions that are gone are left out."""
        ...

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each: the last stable offset for ``read_committed``, else the high watermark.

        Partitions that are gone are left out.
        """
        ...

    def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at least as young as the time (ms since 1970), None where none is."""
        ...

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the id of each topic as Kafka prints it, ``""`` where it is not known."""
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...


def parse_offsets(text: str) -> Earliest | Latest | SpecificOffsets:
    """Read ``earliest``, ``latest`` or the offsets of partitions.

    Raises:
        ValueError: the text is none of these; the reason names topic and partition.
    """
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    if not text.startswith("{"):
        raise ValueError(f"{text!r} is neither earliest nor latest, nor offsets such as {OFFSETS_EXAMPLE}")
    return SpecificOffsets(parse_offsets_json(text))


def parse_offsets_json(text: str) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"partition": offset}}``, with the sentinels for the first and the last.

    Raises:
        ValueError: as ``parse_offsets``.
    """
    offsets = dict(_by_partition(text, OFFSETS_EXAMPLE))
    for partition, offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise ValueError(
                f"{partition}: {offset} is no offset; {EARLIEST_OFFSET} is the earliest, {LATEST_OFFSET} the latest"
            )
    return offsets


def parse_timestamps_json(text: str) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"partition": milliseconds}}``.

    Raises:
        ValueError: as ``parse_offsets``.
    """
    timestamps_ms = dict(_by_partition(text, TIMESTAMPS_EXAMPLE))
    for partition, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise ValueError(f"{partition}: {timestamp_ms} is no time; one is milliseconds since 1970")
    return timestamps_ms


def parse_timestamp(text: str) -> int:
    """Read milliseconds since 1970.

    Raises:
        ValueError: the text is no such number.
    """
    if (timestamp_ms := parse_long(text)) < 0:
        raise ValueError(f"{timestamp_ms} is no time; one is milliseconds since 1970")
    return timestamp_ms


def parse_partitions_json(text: str) -> tuple[TopicPartition, ...]:
    """Read ``{"topic": [partition, …]}`` and return the partitions sorted.

    Raises:
        ValueError: the text is not of that form, or names no partition, or one twice.
    """
    partitions: set[TopicPartition] = set()
    for topic, numbers in _topics(text, PARTITIONS_EXAMPLE):
        if not isinstance(numbers, list):
            raise ValueError(f"{topic}: {_shown(numbers)} is no list of partitions; expected {PARTITIONS_EXAMPLE}")
        for number in numbers:
            if not _is_integer(number) or not 0 <= number <= INT32_MAX:
                raise ValueError(f"{topic}: {_shown(number)} is no partition")
            if (partition := TopicPartition(topic, number)) in partitions:
                raise ValueError(f"{partition} is named twice")
            partitions.add(partition)
    if not partitions:
        raise ValueError(f"names no partition; expected {PARTITIONS_EXAMPLE}")
    return tuple(sorted(partitions))


def format_offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Return ``offsets`` as Spark's Kafka source writes them: dense, sorted by topic and number of the partition.

    Spark compares the offsets of a stream as texts, so equal offsets must give equal texts.
    """
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return json.dumps(topics, separators=(",", ":"))


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of some ``partitions`` for an error, and the number of the others."""
    names = [str(partition) for partition in sorted(partitions)]
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _by_partition(text: str, example: str) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the numbers of ``{"topic": {"partition": number}}``."""
    for topic, numbers in _topics(text, example):
        if not isinstance(numbers, dict):
            raise ValueError(f"{topic}: {_shown(numbers)} has no partitions; expected {example}")
        for partition, number in numbers.items():
            if not _PARTITION.fullmatch(partition) or len(partition) > MOST_DIGITS or int(partition) > INT32_MAX:
                raise ValueError(f"{topic}: {_shown(partition)} is no partition")
            if not _is_integer(number):
                raise ValueError(f"{topic}-{partition}: {_shown(number)} is not a whole number")
            if not -INT64_MAX - 1 <= number <= INT64_MAX:
                raise ValueError(f"{topic}-{partition}: {_shown(number)} needs more than 64 bits")
            yield TopicPartition(topic, int(partition)), number


def _topics(text: str, example: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of the JSON object ``text``, whose names are topics."""
    try:
        topics = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{text!r} is no JSON: {error}; expected {example}") from None
    if not isinstance(topics, dict):
        raise ValueError(f"{_shown(topics)} is no JSON object; expected {example}")
    if "" in topics:
        raise ValueError("the name of a topic is empty")
    yield from topics.items()


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return ``pairs`` as a dictionary; refuse a name that comes twice, of which the last would silently win."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is named twice")
    return members


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a whole number")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return ``value`` as JSON, short enough for an error."""
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN_CHARACTERS else text[:MOST_SHOWN_CHARACTERS] + "…"
