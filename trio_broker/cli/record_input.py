"""The input of ``produce``: how standard input and files are cut into pieces, and how a piece becomes a record."""

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
"""The most that one read returns: the size of a pipe's buffer on Linux."""

Waiting: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Returns a context manager for the time of a read, which may take long (``Interrupts.waiting``)."""


class BadInput(ClientError):
    """A piece of the input is not a record; the text names the file and the number of the record."""


def pieces(
    stream: io.BufferedIOBase, delimiter: bytes | None, waiting: Waiting = contextlib.nullcontext
) -> Iterator[bytes | None]:
    """Yield the pieces between delimiters, and None whenever a read would wait. The last delimiter may be missing.

    Without ``delimiter`` the whole input is one piece.

    Raises:
        ValueError: a piece is longer than the largest request.
    """
    rest = bytearray()
    while True:
        # The caller then sends what it has gathered, so that ``tail -f`` into this command is not held back.
        if not is_ready(stream):
            yield None
        with waiting():
            # ``read1`` returns what is there; ``read`` would wait for the full number of bytes.
            chunk = stream.read1(CHUNK_BYTES)
        if not chunk:
            break
        searched = max(0, len(rest) - len(delimiter or b"") + 1)
        rest += chunk
        # Searched are the new bytes, and before them as many as may be the beginning of a delimiter. To search all of
        # ``rest`` each time would take quadratic time for a long piece.
        if delimiter is not None and rest.find(delimiter, searched) >= 0:
            *whole, last = bytes(rest).split(delimiter)
            yield from whole
            rest = bytearray(last)
        if len(rest) > DEFAULT_REQUEST_BYTES:
            raise ValueError(f"it is longer than {DEFAULT_REQUEST_BYTES} bytes, which no request has room for")
    # An input that ends with the delimiter has no empty record after it. An empty file that is read whole is a record.
    if rest or delimiter is None:
        yield bytes(rest)


def is_ready(stream: io.BufferedIOBase) -> bool:
    """Whether a read would return without waiting, as it always does for a file."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    # The stream has no file descriptor, as in tests, or one above the 1023 that ``select`` accepts. It is read as a
    # file.
    except (io.UnsupportedOperation, ValueError):
        return True


@attrs.frozen
class PieceParser:
    """How a piece of plain input becomes a record.

    A piece that does not contain ``key_separator`` gets the key ``key``, which may be None. With ``null_values`` an
    empty value becomes null, a tombstone.
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
    """How a line of JSON becomes a record. An empty line becomes none.

    ``headers`` are added after those of the line. ``partition`` replaces that of the line; with ``repartition`` that of
    the line is ignored, so that the key decides.
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
    """How the input is cut into pieces, and how a piece becomes a record."""

    parse: Parser
    delimiter: bytes | None
