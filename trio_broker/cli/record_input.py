"""What ``produce`` reads: pieces of standard input and of files, and how a piece becomes a record."""

from __future__ import annotations

import contextlib
import io
import select
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

import attrs

from kafka_wire.records.record import Header
from trio_broker.cli.record_json import parse_record
from trio_broker.client.errors import ClientError
from trio_broker.client.producer.record_producer import ProducerRecord
from trio_broker.client.producer.settings import DEFAULT_REQUEST_BYTES

CHUNK_BYTES: Final = 64 * 1024

Waiting: TypeAlias = Callable[[], AbstractContextManager[None]]
"""What surrounds a read that may take long."""


class BadInput(ClientError):
    """A piece of the input is no record; the text names where it stands."""


def pieces(
    stream: io.BufferedIOBase, delimiter: bytes | None, waiting: Waiting = contextlib.nullcontext
) -> Iterator[bytes | None]:
    """Yield what stands between delimiters, and None whenever the input pauses. The last piece may lack its delimiter.

    Without ``delimiter`` all of the input is one piece.

    Raises:
        ValueError: a piece is too long.
    """
    rest = bytearray()
    while True:
        if not is_ready(stream):
            yield None
        with waiting():
            chunk = stream.read1(CHUNK_BYTES)
        if not chunk:
            break
        searched = max(0, len(rest) - len(delimiter or b"") + 1)
        rest += chunk
        # Only what is new, and what a delimiter that was cut in two needs, is searched.
        if delimiter is not None and rest.find(delimiter, searched) >= 0:
            *whole, last = bytes(rest).split(delimiter)
            yield from whole
            rest = bytearray(last)
        if len(rest) > DEFAULT_REQUEST_BYTES:
            raise ValueError(f"it is longer than {DEFAULT_REQUEST_BYTES} bytes, which no request has room for")
    # An input that ends with its delimiter has no further, empty record; a whole empty file is one.
    if rest or delimiter is None:
        yield bytes(rest)


def is_ready(stream: io.BufferedIOBase) -> bool:
    """Return whether a read would return at once; files always do."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    # A stream without a file descriptor, as in tests, or one above what ``select`` takes: it is read as a file is.
    except (io.UnsupportedOperation, ValueError):
        return True


@attrs.frozen
class PieceParser:
    """How a piece of plain input becomes a record.

    A piece without ``key_separator`` has the key ``key``, which is None unless one was given for all. With
    ``null_values`` an empty value is null, a tombstone.
    """

    key_separator: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    null_values: bool

    def __call__(self, piece: bytes) -> ProducerRecord | None:
        key, value = self.key, piece
        if self.key_separator is not None and self.key_separator in piece:
            key, _, value = piece.partition(self.key_separator)
        return ProducerRecord(
            key=key,
            value=None if self.null_values and not value else value,
            headers=self.headers,
            partition=self.partition,
        )


@attrs.frozen
class JsonParser:
    """How a line of JSON becomes a record; an empty line is none.

    ``headers`` are put behind its own, ``partition`` wins over its own. With ``repartition`` its own does not count.
    """

    headers: tuple[Header, ...]
    partition: int | None
    repartition: bool

    def __call__(self, piece: bytes) -> ProducerRecord | None:
        if not piece.strip():
            return None
        record = parse_record(piece)
        own_partition = None if self.repartition else record.partition
        return attrs.evolve(
            record,
            headers=record.headers + self.headers,
            partition=own_partition if self.partition is None else self.partition,
        )


Parser: TypeAlias = PieceParser | JsonParser


@attrs.frozen
class RecordInput:
    """How the input is cut into pieces, and what makes records of them."""

    parse: Parser
    delimiter: bytes | None
