"""Records: what a batch holds, and the ways to walk over them.

``read_records`` builds a ``Record`` for each. ``check_records`` looks at every length and builds none, which is what a
broker needs before it takes a batch from a client: it stores the producer's bytes and never needs the records
themselves. Both work on the inflated bytes behind the batch header and refuse whatever does not fit exactly: a record
that does not fill its declared length, a key, value or header beyond its end, offsets out of order, bytes left over.
``read_keys_and_values`` is for logs of the broker's own, which may have millions of records to be read at a start: it
takes half the time, because it passes over offsets, timestamps and headers.

A record is ``length`` varint (of what follows), ``attributes`` int8 (unused), ``timestamp_delta`` varlong,
``offset_delta`` varint, key, value (each a varint length, -1 for null, and the bytes), header count varint, and headers
(key never null, value may be).

``check_records`` reads integers of one byte, and where two are common of two, in place, and calls ``read_varint`` for
longer ones: a call costs more than everything else, and without calls the walk takes half the time. That is why it
repeats itself so much.

Source: Kafka's DefaultRecord; docs/formats/record-batch.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.limits import INT64_MAX, INT64_MIN
from kafka_wire.records.errors import InvalidRecord
from kafka_wire.records.varint import append_varint, read_varint, read_varlong

Header = tuple[str, bytes | None]
"""A header of a record. Bytes in its key that are not UTF-8 become lone surrogates, and come back as they were."""

KeyAndValue = tuple[bytes | None, bytes | None]
"""What is left of a record without offset, timestamp and headers."""

MAX_RECORD_BYTES = 2**31 - 9
"""The largest array that every JVM makes: Kafka's default of ``max.decompressed.message.bytes``."""

MIN_RECORD_BYTES = 7
"""Seven fields of at least one byte each: bounds the number of records that some bytes can hold."""

MIN_HEADER_BYTES = 2
"""An empty key and an empty value: bounds the number of headers that some bytes can hold."""

MAX_RECORDS_PER_BATCH = 1_000_000
"""A walk takes about a microsecond a record, and a thousand bytes of zstd can hold millions of empty ones."""

MAX_HEADERS_PER_RECORD = 100_000
"""Two bytes of empty header become a hundred bytes of Python; without a limit that exhausts memory."""

MAX_HEADERS_PER_BATCH = 1_000_000
"""A walk takes half a microsecond a header, and they compress as well as empty records do."""

ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""The values of the one-byte varints. A two-byte one is ``high << 6 ^ ZIGZAG[low & 0x7F]``: the sign is in the low byte
and the exclusive or carries it into the high one."""


@attrs.define
class Record:
    """A record with its absolute offset and timestamp (milliseconds since the epoch).

    Headers that were read are a tuple; any sequence may be written.
    """

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


@attrs.define
class NewRecord:
    """A record that has no offset yet: it takes its place in the batch that is built with it."""

    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


@attrs.define
class RecordsSummary:
    """What a walk over the records of a batch found, for deciding about the batch. Not frozen: one is made for every
    small batch, and would take twice as long.

    ``null_keys`` says whether some record has no key.
    """

    record_count: int
    min_timestamp: int
    max_timestamp: int
    null_keys: bool


def read_records(
    data: bytes, record_count: int, *, base_offset: int, base_timestamp: int, last_offset_delta: int
) -> Iterator[Record]:
    """Yield the ``record_count`` records that ``data`` must consist of.

    Offsets must increase and stay within ``last_offset_delta``; gaps are fine, compaction leaves them.

    Raises:
        InvalidRecord: as soon as the walk comes to what is wrong; records before it have been yielded by then.
    """
    if not 0 <= record_count <= MAX_RECORDS_PER_BATCH or record_count > len(data) // MIN_RECORD_BYTES:
        raise _wrong_count(data, record_count)
    size = len(data)
    position = index = 0
    previous_delta = -1
    headers_left = MAX_HEADERS_PER_BATCH
    try:
        for index in range(record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise InvalidRecord(f"a record of {length} bytes where {size - position} are left", record_index=index)
            position += 1  # attributes: unused
            timestamp_delta, position = read_varlong(data, position)
            timestamp = base_timestamp + timestamp_delta
            if not INT64_MIN <= timestamp <= INT64_MAX:
                raise InvalidRecord("a timestamp beyond 64 bits", record_index=index)
            offset_delta, position = read_varint(data, position)
            if not previous_delta < offset_delta <= last_offset_delta:
                raise _wrong_offset(offset_delta, f"between {previous_delta + 1} and {last_offset_delta}", index)
            previous_delta = offset_delta
            key, position = _read_bytes(data, position, end, index)
            value, position = _read_bytes(data, position, end, index)
            headers: tuple[Header, ...] = ()
            # Most records have no headers, and their count is the one byte 0: then no function is called.
            if data[position]:
                count, position = _header_count(data, position, end, index, headers_left)
                headers_left -= count
                headers, position = _read_headers(data, position, end, index, count)
            else:
                position += 1
            # Both ways: too few fields are as wrong as too many.
            if position != end:
                raise _wrong_length(position, end, index)
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError:
        raise InvalidRecord("the records end early", record_index=index) from None
    if position != size:
        raise _bytes_left(position, size)


def read_keys_and_values(data: bytes, record_count: int) -> list[KeyAndValue]:
    """Return the keys and values of the ``record_count`` records that ``data`` must consist of, and nothing else.

    Raises:
        InvalidRecord: a record ends beyond ``data``, a key or value beyond its record, or bytes are left over.
    """
    if not 0 <= record_count <= MAX_RECORDS_PER_BATCH or record_count > len(data) // MIN_RECORD_BYTES:
        raise _wrong_count(data, record_count)
    size = len(data)
    pairs: list[KeyAndValue] = []
    position = index = 0
    try:
        for index in range(record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise InvalidRecord(f"a record of {length} bytes where {size - position} are left", record_index=index)
            # The deltas are skipped, not decoded: a byte without the high bit ends each.
            position += 1  # attributes
            while data[position] >= 0x80:  # timestamp delta
                position += 1
            position += 1
            while data[position] >= 0x80:  # offset delta
                position += 1
            start, stop = _bounds(data, position + 1, end, index)
            key = None if start < 0 else data[start:stop]
            start, stop = _bounds(data, stop, end, index)
            pairs.append((key, None if start < 0 else data[start:stop]))
            position = end
    except IndexError:
        raise InvalidRecord("the records end early", record_index=index) from None
    if position != size:
        raise _bytes_left(position, size)
    return pairs


def check_records(data: bytes, record_count: int, *, base_timestamp: int) -> RecordsSummary:
    """Validate the records of a client's batch without building them, and return what decisions need of them.

    Offset deltas must be 0, 1, 2 …: a producer leaves no gaps.

    Raises:
        InvalidRecord: with the index of the first record that is wrong.
    """
    # The varint reader is repeated four times below, with a table for its first byte and without calls: this loop runs
    # for every record that is produced, and a call costs more than the arithmetic in it. Change all four together.
    if not 0 <= record_count <= MAX_RECORDS_PER_BATCH or record_count > len(data) // MIN_RECORD_BYTES:
        raise _wrong_count(data, record_count)
    zigzag = ZIGZAG
    position = index = null_keys = 0
    # Beyond all deltas, so that the first record sets both.
    min_delta, max_delta = INT64_MAX, INT64_MIN
    headers_left = MAX_HEADERS_PER_BATCH
    try:
        for index in range(record_count):
            byte = data[position]
            if byte < 0x80:
                end = position + 1 + zigzag[byte]
                position += 2  # with the attributes
            elif (high := data[position + 1]) < 0x80:
                end = position + 2 + (high << 6 ^ zigzag[byte & 0x7F])
                position += 3
            else:
                length, position = read_varint(data, position)
                end = position + length
                position += 1
            # ``end`` is not validated here. ``position`` only grows and IndexError bounds it, and at the end of the
            # record the two must be equal, so a wrong length is always found.
            byte = data[position]
            if byte < 0x80:
                timestamp_delta = zigzag[byte]
                position += 1
            elif (high := data[position + 1]) < 0x80:
                timestamp_delta = high << 6 ^ zigzag[byte & 0x7F]
                position += 2
            else:
                timestamp_delta, position = read_varlong(data, position)
            if timestamp_delta > max_delta:
                max_delta = timestamp_delta
            if timestamp_delta < min_delta:
                min_delta = timestamp_delta
            byte = data[position]
            if byte < 0x80:
                offset_delta = zigzag[byte]
                position += 1
            elif (high := data[position + 1]) < 0x80:
                offset_delta = high << 6 ^ zigzag[byte & 0x7F]
                position += 2
            else:
                offset_delta, position = read_varint(data, position)
            if offset_delta != index:
                raise _wrong_offset(offset_delta, str(index), index)
            byte = data[position]
            if byte < 0x80:
                length = zigzag[byte]
                position += 1
            else:
                length, position = read_varint(data, position)
            if length >= 0:
                position += length
            elif length == -1:
                null_keys = 1
            else:
                raise InvalidRecord(f"a key of {length} bytes", record_index=index)
            byte = data[position]
            if byte < 0x80:
                length = zigzag[byte]
                position += 1
            elif (high := data[position + 1]) < 0x80:
                length = high << 6 ^ zigzag[byte & 0x7F]
                position += 2
            else:
                length, position = read_varint(data, position)
            if length >= 0:
                position += length
            elif length != -1:
                raise InvalidRecord(f"a value of {length} bytes", record_index=index)
            if data[position]:
                count, position = _header_count(data, position, end, index, headers_left)
                headers_left -= count
                position = _skip_headers(data, position, index, count)
            else:
                position += 1
            if position != end:
                raise _wrong_length(position, end, index)
    except IndexError:
        raise InvalidRecord("the records end early", record_index=index) from None
    if position != len(data):
        raise _bytes_left(position, len(data))
    min_timestamp, max_timestamp = base_timestamp + min_delta, base_timestamp + max_delta
    if min_timestamp < INT64_MIN or max_timestamp > INT64_MAX:
        raise InvalidRecord("a timestamp beyond 64 bits")
    return RecordsSummary(record_count, min_timestamp, max_timestamp, bool(null_keys))


def append_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> None:
    """Append one record, with its length, to ``out``."""
    body = bytearray(1)  # attributes: unused
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    append_varint(body, len(headers))
    for header_key, header_value in headers:
        _append_bytes(body, header_key.encode("utf-8", "surrogateescape"))
        _append_bytes(body, header_value)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0x01)  # -1
    else:
        append_varint(out, len(value))
        out += value


def _read_bytes(data: bytes, position: int, end: int, index: int) -> tuple[bytes | None, int]:
    """Return a key or value, null where its length is -1, and the position after it."""
    start, stop = _bounds(data, position, end, index)
    return (None if start < 0 else data[start:stop]), stop


def _header_count(data: bytes, position: int, end: int, index: int, headers_left: int) -> tuple[int, int]:
    """Return how many headers follow, of the ``headers_left`` that the batch may still have, and where they begin."""
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) // MIN_HEADER_BYTES:
        raise InvalidRecord(f"{count} headers in {end - position} bytes", record_index=index)
    if count > min(MAX_HEADERS_PER_RECORD, headers_left):
        raise InvalidRecord(
            f"{count} headers: a record may have {MAX_HEADERS_PER_RECORD}, a batch {MAX_HEADERS_PER_BATCH}",
            code=ErrorCode.MESSAGE_TOO_LARGE,
            record_index=index,
        )
    return count, position


def _read_headers(data: bytes, position: int, end: int, index: int, count: int) -> tuple[tuple[Header, ...], int]:
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end, index)
        if key is None:
            raise InvalidRecord("a header without a key", record_index=index)
        value, position = _read_bytes(data, position, end, index)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _skip_headers(data: bytes, position: int, index: int, count: int) -> int:
    """Return the position after ``count`` headers. As in ``check_records`` what is beyond the record's end is found
    there."""
    # Written out for lengths of one byte: a header may have two bytes, and a call would cost more than all the rest.
    zigzag = ZIGZAG
    for _ in range(count):
        byte = data[position]
        if byte < 0x80:
            length = zigzag[byte]
            position += 1
        else:
            length, position = read_varint(data, position)
        if length < 0:
            raise InvalidRecord(f"the key of a header has {length} bytes", record_index=index)
        position += length
        byte = data[position]
        if byte < 0x80:
            length = zigzag[byte]
            position += 1
        else:
            length, position = read_varint(data, position)
        if length >= 0:
            position += length
        elif length != -1:
            raise InvalidRecord(f"the value of a header has {length} bytes", record_index=index)
    return position


def _bounds(data: bytes, position: int, end: int, index: int) -> tuple[int, int]:
    """Return where the bytes whose length is at ``position`` start and stop; null starts at -1 and stops at once."""
    byte = data[position]
    if byte < 0x80:
        length = ZIGZAG[byte]
        position += 1
    else:
        length, position = read_varint(data, position)
    stop = position + length
    if length >= 0 and stop <= end:
        return position, stop
    if length == -1:
        return -1, position
    raise InvalidRecord(f"{length} bytes of key, value or header where {end - position} are left", record_index=index)


def check_record_lengths(data: bytes, record_count: int, *, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
    """See that ``data`` consists of ``record_count`` records by their lengths; what is in them is not looked at.

    Raises:
        InvalidRecord: there are more or fewer, or one is too short to be a record, or longer than ``max_record_bytes``.
    """
    require_room_for_records(record_count, len(data))
    position = index = 0
    try:
        for index in range(record_count):
            byte = data[position]
            if byte < 0x80:
                length = ZIGZAG[byte]
                position += 1
            else:
                length, position = read_varint(data, position)
            if not MIN_RECORD_BYTES - 1 <= length <= max_record_bytes:
                reason = f", at most {max_record_bytes} are taken" if length > max_record_bytes else ""
                raise InvalidRecord(f"a record of {length} bytes{reason}", record_index=index)
            position += length
    except IndexError:
        raise InvalidRecord("the records end early", record_index=index) from None
    if position != len(data):
        raise _bytes_left(position, len(data))


def require_room_for_records(record_count: int, size_bytes: int) -> None:
    """See that ``size_bytes`` can hold so many records at all.

    Raises:
        InvalidRecord: they cannot.
    """
    if record_count > size_bytes // MIN_RECORD_BYTES:
        raise InvalidRecord(f"{record_count} records in {size_bytes} bytes")


def _wrong_count(data: bytes, record_count: int) -> InvalidRecord:
    if not 0 <= record_count <= len(data) // MIN_RECORD_BYTES:
        return InvalidRecord(f"{record_count} records in {len(data)} bytes")
    # The code makes the Java producer split the batch, which is just what would help.
    return InvalidRecord(
        f"{record_count} records in a batch, at most {MAX_RECORDS_PER_BATCH} are taken",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )


def _bytes_left(position: int, size: int) -> InvalidRecord:
    return InvalidRecord(f"{size - position} bytes after the last record")


def _wrong_offset(offset_delta: int, expected: str, index: int) -> InvalidRecord:
    return InvalidRecord(f"an offset delta of {offset_delta} where {expected} was expected", record_index=index)


def _wrong_length(position: int, end: int, index: int) -> InvalidRecord:
    return InvalidRecord(f"a record whose fields end {position - end:+d} bytes from its end", record_index=index)
