r"""Prints records by a format string such as kcat's: ``%t %p %o %k %s\n``.

========  ==================================================
``%t``    the topic
``%p``    the partition
``%o``    the offset
``%T``    the timestamp in milliseconds since 1970, or -1
``%k``    the key; nothing, or NULL with ``--null``, if it is null
``%s``    the value; nothing, or NULL with ``--null``, if it is null
``%K``    the length of the key in bytes, -1 if it is null
``%S``    the length of the value in bytes, -1 if it is null
``%h``    the headers: ``name=value,name=value``
``%%``    a percent sign
========  ==================================================

Bytes are printed unchanged. On a terminal, control characters are printed as escapes, because a terminal would execute
them.

Source: kcat's ``-f``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs
import click

from kafka_wire.records.record import Record
from trio_broker.cli.escapes import unescape
from trio_broker.common.escaping import LINE_ENDS_AND_TABS, escape_control
from trio_broker.common.topic_partition import TopicPartition

TOKEN: Final = re.compile(r"%(.)?", re.DOTALL)

Shown: TypeAlias = Callable[[bytes], bytes]
"""Changes the bytes of a record before they are printed: ``as_it_is`` or ``for_terminal``."""

Piece: TypeAlias = Callable[[TopicPartition, Record], bytes]
"""Returns the output for one token of a format, or the fixed text between two tokens."""


@attrs.frozen
class RecordFormat:
    """A parsed format."""

    pieces: tuple[Piece, ...]

    def line(self, partition: TopicPartition, record: Record) -> bytes:
        """Return a record in this format."""
        return b"".join(piece(partition, record) for piece in self.pieces)


def parse_format(text: str, *, null: bytes, shown: Shown) -> RecordFormat:
    """Parse a format. ``null`` is printed for a null key or value; ``shown`` is applied to keys, values and headers.

    Raises:
        click.BadParameter: a token or an escape does not exist.
    """
    pieces: list[Piece] = []
    position = 0
    for found in TOKEN.finditer(text):
        pieces += _fixed(unescape(text[position : found.start()]))
        pieces += _token(found[1] or "", null, shown)
        position = found.end()
    return RecordFormat((*pieces, *_fixed(unescape(text[position:]))))


def plain_format(*, key_separator: bytes | None, delimiter: bytes, null: bytes, shown: Shown) -> RecordFormat:
    """Return the format that prints the value and ``delimiter``, and before them the key if there is a separator."""
    key = [] if key_separator is None else [*_token("k", null, shown), *_fixed(key_separator)]
    return RecordFormat((*key, *_token("s", null, shown), *_fixed(delimiter)))


# An empty text is left out: it would be printed again for every record.
def _fixed(data: bytes) -> list[Piece]:
    return [lambda partition, record: data] if data else []


def _token(name: str, null: bytes, shown: Shown) -> list[Piece]:
    def held(data: bytes | None) -> bytes:
        return null if data is None else shown(data)

    def headers(record: Record) -> bytes:
        # A null header is printed as NULL even without ``--null``, as kcat does: the empty text is a value of its own.
        pairs = ((key.encode("utf-8", "surrogateescape"), value) for key, value in record.headers)
        return b",".join(shown(key) + b"=" + (b"NULL" if value is None else shown(value)) for key, value in pairs)

    tokens: dict[str, Piece] = {
        "t": lambda partition, record: partition.topic.encode(),
        "p": lambda partition, record: b"%d" % partition.partition,
        "o": lambda partition, record: b"%d" % record.offset,
        "T": lambda partition, record: b"%d" % record.timestamp,
        "k": lambda partition, record: held(record.key),
        "s": lambda partition, record: held(record.value),
        "K": lambda partition, record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda partition, record: b"%d" % (-1 if record.value is None else len(record.value)),
        "h": lambda partition, record: headers(record),
        "%": lambda partition, record: b"%",
    }
    if name not in tokens:
        raise click.BadParameter(f"%{name} is no token; there are {' '.join('%' + each for each in tokens)}")
    return [tokens[name]]


def as_it_is(data: bytes) -> bytes:
    """Return the bytes unchanged, for a file or another program."""
    return data


def for_terminal(data: bytes) -> bytes:
    """Return the bytes for a terminal, with escapes for control characters except line ends and tabs."""
    text = data.decode("utf-8", "backslashreplace")
    return escape_control(text, keep=LINE_ENDS_AND_TABS).encode()
