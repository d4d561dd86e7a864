"""Records as they are shown: decoded, cut to what fits, with what their batch says.

A record's key and value are decoded when a filter or a row asks for them, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import attrs

from broker_admin.decoders.choice import TEXT_DECODERS, Decoder, has_control_characters, text_of
from broker_admin.decoders.decoded import Decoded
from broker_admin.texts import line_text
from broker_admin.views.cluster.messages import BatchInfo, OwnFormat
from trio_broker.common.record_json import StoredRecord, time_of

SHOWN_BYTES = 16 * 1024
"""As much of a key, value or header as a list shows, unless it is asked for more."""

MAX_SHOWN_BYTES = 1024 * 1024
"""The most that can be asked for: what a browser still lays out at once."""

MAX_HEADERS = 1000
"""Headers of one record that are decoded and shown."""

BROKER_FORMAT = "broker"
"""The name of the decoder where the broker itself wrote the record."""


@attrs.frozen
class MessagePart:
    """A key, a value or a header, decoded by ``decoder``; ``cut`` when ``data`` is only the beginning of its text.

    ``problem`` says why the decoder that was asked for did not do.
    """

    decoder: str
    data: Any
    size_bytes: int
    cut: bool
    problem: str


@attrs.frozen
class MessageHeader:
    """A header; its value may be null."""

    name: str
    value: MessagePart | None


@attrs.frozen
class MessageRow:
    """A record. A null key is None, and so is the null value of a tombstone; without a timestamp that is None."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: MessagePart | None
    value: MessagePart | None
    headers: tuple[MessageHeader, ...]
    header_count: int
    size_bytes: int
    batch: BatchInfo


class RecordVariables:
    """A record as filters see it. Not for two threads at a time."""

    __slots__ = ("_decoded_key", "_decoded_value", "_decoders", "_own", "_own_format", "partition", "record")

    def __init__(
        self,
        record: StoredRecord,
        partition: int,
        decoders: Decoders,
        own_format: Callable[[StoredRecord], OwnFormat | None] | None,
    ) -> None:
        self.record = record
        self.partition = partition
        self._decoders = decoders
        self._own_format = own_format
        self._own: OwnFormat | None = None
        self._decoded_key: Decoded | None = None
        self._decoded_value: Decoded | None = None

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        return self.record.timestamp

    @property
    def key(self) -> Any:
        found = self.decoded_key()
        return None if found is None else found.data

    @property
    def value(self) -> Any:
        found = self.decoded_value()
        return None if found is None else found.data

    @property
    def headers(self) -> dict[str, Any]:
        """The headers by name; of several with one name the last, as consumers have it."""
        found = {}
        for name, data in self.record.headers[:MAX_HEADERS]:
            decoded = self._decoders.headers.decode(data)
            found[name] = None if decoded is None else decoded.data
        return found

    def texts(self, *, as_shown: bool) -> Iterator[str]:
        """Key and value as text: as stored if that is UTF-8, and, with ``as_shown`` or where it may differ, as shown.

        What the broker itself wrote is only taken as shown, where its passwords are hidden.
        """
        parts = (
            (self.record.key, self._decoders.keys, self.decoded_key),
            (self.record.value, self._decoders.values, self.decoded_value),
        )
        for data, decoder, decoded in parts:
            if data is None:
                continue
            stored = text_of(data) if self._own_of_record() is None else None
            if stored is not None:
                yield stored
                if decoder.name in TEXT_DECODERS and not as_shown and not may_differ(stored):
                    continue
            shown = decoded()
            if shown is not None and shown.data != stored:
                yield line_text(shown.data)

    def decoded_key(self) -> Decoded | None:
        if self._decoded_key is None and self.record.key is not None:
            own = self._own_of_record()
            self._decoded_key = (
                self._decoders.keys.decode(self.record.key) if own is None else Decoded(BROKER_FORMAT, own.key)
            )
        return self._decoded_key

    def decoded_value(self) -> Decoded | None:
        if self._decoded_value is None and self.record.value is not None:
            own = self._own_of_record()
            self._decoded_value = (
                self._decoders.values.decode(self.record.value) if own is None else Decoded(BROKER_FORMAT, own.value)
            )
        return self._decoded_value

    def _own_of_record(self) -> OwnFormat | None:
        if self._own_format is not None:
            self._own = self._own_format(self.record)
            self._own_format = None
        return self._own


def may_differ(stored: str) -> bool:
    """Whether what is shown of a text may not be a part of it: numbers, and what JSON writes as escapes."""
    return "\\" in stored or has_control_characters(stored)


@attrs.frozen
class Decoders:
    """The decoders of keys, values and headers."""

    keys: Decoder
    values: Decoder
    headers: Decoder = attrs.field(factory=Decoder)


@attrs.frozen
class ShownRecord:
    """What a search has found, and about how much of its answer that takes."""

    row: Any
    size_bytes: int


Show: TypeAlias = Callable[[RecordVariables, BatchInfo], ShownRecord]


def show_rows(decoders: Decoders, shown_bytes: int) -> Show:
    """Show records as ``MessageRow``."""

    def show(variables: RecordVariables, batch: BatchInfo) -> ShownRecord:
        row = message_row(variables, batch, decoders, shown_bytes)
        return ShownRecord(row, min(row.size_bytes, 4 * shown_bytes))

    return show


def message_row(variables: RecordVariables, batch: BatchInfo, decoders: Decoders, shown_bytes: int) -> MessageRow:
    """The row of a record, with at most ``shown_bytes`` of each part."""
    record = variables.record
    headers = tuple(
        MessageHeader(readable_name(name), part(data, decoders.headers.decode(data), shown_bytes))
        for name, data in record.headers[:MAX_HEADERS]
    )
    header_bytes = sum(len(name) + len(data or b"") for name, data in record.headers)
    return MessageRow(
        partition=variables.partition,
        offset=record.offset,
        timestamp_ms=time_of(record),
        key=part(record.key, variables.decoded_key(), shown_bytes),
        value=part(record.value, variables.decoded_value(), shown_bytes),
        headers=headers,
        header_count=len(record.headers),
        size_bytes=len(record.key or b"") + len(record.value or b"") + header_bytes,
        batch=batch,
    )


def readable_name(name: str) -> str:
    """A header's name, in which bytes that are no UTF-8 are escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def part(data: bytes | None, decoded: Decoded | None, shown_bytes: int) -> MessagePart | None:
    """A part of a record with as much of its data as is shown: the beginning of its text where it is longer."""
    if data is None or decoded is None:
        return None
    shown, cut = decoded.data, False
    # A structure is larger than what it was read from by a few times at most; bytes are what is at hand.
    if len(data) > shown_bytes // 2:
        text = line_text(shown)
        if cut := len(text) > shown_bytes:
            shown = text[:shown_bytes]
    return MessagePart(decoded.decoder, shown, len(data), cut, decoded.problem)
