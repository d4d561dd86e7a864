"""What is asked of a topic's records: where to begin, in which direction, which partitions, which filter."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence

import attrs

from broker_admin.decoders.avro import MAX_SCHEMA_CHARACTERS, AvroSchema, SchemaError
from broker_admin.decoders.choice import AUTOMATIC, DECODER_NAMES, Decoder
from broker_admin.filters.errors import FilterSyntaxError
from broker_admin.filters.lexer import MAX_FILTER_LENGTH
from broker_admin.filters.record_filter import RecordFilter
from broker_admin.messages.rows import MAX_SHOWN_BYTES, SHOWN_BYTES, Decoders
from broker_admin.problems import FieldError, Problem, query_pointer
from broker_admin.schemas import MAX_TIME_MS, bounded
from broker_admin.views.cluster.messages import MessagesView, ReadablePartition
from kafka_wire.limits import MAX_OFFSET

MAX_SEARCHED_PARTITIONS = 500
"""Partitions of one search: each holds a piece of its log, and the cursor, a part of an address, names them all."""

STARTS = ("newest", "oldest", "offset", "time")
FORMATS = ("", "json", "ndjson", "csv")

_PARTITIONS = r"\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*"
_CURSOR = r"[fb]\d{1,10}\.\d{1,19}(-\d{1,10}\.\d{1,19})*"


@attrs.frozen(kw_only=True)
class RecordSelection:
    """Which records, and how they are read: what a search and a tail have in common.

    ``partitions`` are numbers and ranges, ``0,4-7``; none are all. ``where`` is a filter:
    an expression, or text that key or value contain. ``schema`` is that of Avro.
    """

    partitions: str = bounded("", maxLength=4000, pattern=_PARTITIONS)
    where: str = bounded("", maxLength=MAX_FILTER_LENGTH)
    decode: str = bounded(AUTOMATIC, enum=list(DECODER_NAMES))
    decode_key: str = bounded(AUTOMATIC, enum=list(DECODER_NAMES))
    schema: str = bounded("", maxLength=MAX_SCHEMA_CHARACTERS)
    max_value_bytes: int = bounded(SHOWN_BYTES, minimum=16, maximum=MAX_SHOWN_BYTES)


@attrs.frozen(kw_only=True)
class RecordsQuery(RecordSelection):
    """A search. ``from`` is newest, oldest, offset or time, the latter two with the parameter of that name.

    ``time`` is in milliseconds since 1970, or ISO 8601, in UTC if it does not say. ``cursor`` is where another search
    ended, and says all of that itself. ``format`` is json, ndjson or csv where the Accept header cannot say.
    """

    from_: str = bounded("newest", enum=list(STARTS))
    offset: int | None = bounded(None, minimum=0, maximum=MAX_OFFSET)
    time: str = bounded("", maxLength=40)
    limit: int = bounded(50, minimum=1, maximum=1000)
    cursor: str = bounded("", maxLength=16_000, pattern=_CURSOR)
    format: str = bounded("", enum=list(FORMATS))


@attrs.frozen
class ScanRange:
    """What to read of a partition: from ``start`` up to ``end``, exclusive, or in the other direction."""

    partition: int
    start: int
    end: int
    bytes_per_offset: float


def refused(name: str, reason: str, status: int = 400) -> Problem:
    """A problem with one parameter of the query."""
    return Problem(status, reason, [FieldError(query_pointer(name), reason)])


def compiled_filter(text: str) -> RecordFilter | None:
    """The filter of a query, if it has one.

    Raises:
        Problem: 400, with the place in it that is wrong.
    """
    if not text.strip():
        return None
    try:
        return RecordFilter.of(text)
    except FilterSyntaxError as error:
        raise refused("where", str(error)) from None


def decoders_of(selection: RecordSelection) -> Decoders:
    """The decoders that a query chooses.

    Raises:
        Problem: 400, the schema is none.
    """
    schema = None
    if selection.schema.strip():
        try:
            schema = AvroSchema(selection.schema.strip())
        except SchemaError as error:
            raise refused("schema", str(error)) from None
    return Decoders(Decoder(selection.decode_key, schema), Decoder(selection.decode, schema))


def chosen_partitions(text: str, readable: Sequence[ReadablePartition]) -> list[ReadablePartition]:
    """The partitions that ``text`` names, of those that there are; the first ones where it names none.

    Raises:
        Problem: 400, too many, or a range is empty; 404, there is no such partition.
    """
    if not text:
        return list(readable[:MAX_SEARCHED_PARTITIONS])
    by_number = {each.partition: each for each in readable}
    wanted: set[int] = set()
    for item in text.split(","):
        first, _, last = item.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers:
            raise refused("partitions", f"the range {item} ends before it begins")
        if len(numbers) + len(wanted) > MAX_SEARCHED_PARTITIONS:
            raise refused("partitions", f"a search is over at most {MAX_SEARCHED_PARTITIONS} partitions")
        wanted.update(numbers)
    if missing := wanted - by_number.keys():
        raise refused("partitions", f"the topic has no partition {min(missing)} here", 404)
    return [by_number[number] for number in sorted(wanted)]


def time_ms(text: str) -> int:
    """A time of a query in milliseconds since 1970.

    Raises:
        Problem: 400.
    """
    if re.fullmatch(r"[0-9]{1,16}", text) and int(text) <= MAX_TIME_MS:
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        reason = "time is milliseconds since 1970, or as 2026-11-22T20:15:00Z"
        raise refused("time", reason) from None


def is_forward(query: RecordsQuery) -> bool:
    """Whether a search goes from older to newer records."""
    return query.cursor.startswith("f") if query.cursor else query.from_ != "newest"


async def scan_ranges(
    view: MessagesView, topic: str, query: RecordsQuery, chosen: Sequence[ReadablePartition]
) -> list[ScanRange]:
    """What a search has to read of each partition.

    Raises:
        Problem: 400, a parameter is missing or wrong.
    """
    usable = [each for each in chosen if each.error is None]
    if query.cursor:
        positions = cursor_positions(query.cursor)
        usable = [each for each in usable if each.partition in positions]
    elif query.from_ == "offset":
        if query.offset is None:
            raise refused("offset", "from=offset needs the offset")
        positions = {each.partition: query.offset for each in usable}
    elif query.from_ == "time":
        positions = dict(await view.offsets_at(topic, [each.partition for each in usable], time_ms(query.time)))
    else:
        positions = {each.partition: 0 if query.from_ == "oldest" else MAX_OFFSET for each in usable}
    return [scan_range(each, positions, is_forward(query)) for each in usable]


def scan_range(readable: ReadablePartition, positions: Mapping[int, int], forward: bool) -> ScanRange:
    start, end = readable.log_start_offset, readable.end_offset
    bytes_per_offset = max(1.0, readable.size_bytes / max(1, end - start))
    position = min(max(positions[readable.partition], start), end)
    if forward:
        return ScanRange(readable.partition, position, end, bytes_per_offset)
    return ScanRange(readable.partition, start, position, bytes_per_offset)


def cursor_positions(cursor: str) -> dict[int, int]:
    pairs = (item.split(".") for item in cursor[1:].split("-"))
    return {int(partition): min(int(offset), MAX_OFFSET) for partition, offset in pairs}


def make_cursor(forward: bool, positions: Mapping[int, int]) -> str:
    """Where a search goes on: ``f`` or ``b`` for its direction, and each partition's number and offset."""
    return ("f" if forward else "b") + "-".join(f"{partition}.{offset}" for partition, offset in positions.items())
