"""Messages to bytes and back.

For each class and version there is one reader and one writer, compiled from the declaration when first needed and kept
(``emit_reader``, ``emit_writer``). Their source stands in tracebacks, and ``source_of`` returns it.

``decode`` raises nothing but ``WireError``, whatever the bytes are. Bytes after the message are left alone: librdkafka
sends three more than it should in one of its requests.

Source: the limits of ``emit_reader``; Kafka's protocol guide for what is written.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from kafka_wire.emit_reader import emit_reader
from kafka_wire.emit_writer import emit_writer
from kafka_wire.errors import WireError
from kafka_wire.primitives import Chunk, ReadableBuffer

T = TypeVar("T")

Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[Any], list[Chunk]]

_readers: Final[dict[tuple[type[Any], int], Reader]] = {}
_writers: Final[dict[tuple[type[Any], int], Writer]] = {}


def decode(kind: type[T], version: int, buffer: ReadableBuffer, position: int = 0) -> tuple[T, int]:
    """Read a message; return it and the position after it.

    Its records are views of ``buffer``; all else is copied.

    Raises:
        WireError: the bytes are no such message, or the class has no such version.
    """
    # One look into a dictionary for each message; readers are compiled at the first of their kind and version.
    read = _readers.get((kind, version)) or _reader(kind, version)
    try:
        return read(memoryview(buffer), position)
    except (IndexError, struct.error):
        raise WireError(f"{kind.__name__} v{version} ends too early") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{kind.__name__} v{version} has a string that is not UTF-8: {error.reason}") from None


def decode_whole(kind: type[T], version: int, buffer: ReadableBuffer, position: int) -> T:
    """Read a message that must fill ``buffer`` from ``position`` to its end, as the records of a broker's own logs do.

    Raises:
        WireError: as ``decode``, or bytes are left over.
    """
    message, end = decode(kind, version, buffer, position)
    if end != len(buffer):
        raise WireError(f"{len(buffer) - end} bytes left over after {kind.__name__} version {version}")
    return message


def encode(message: Any, version: int) -> list[Chunk]:
    """Write a message as chunks; its records are chunks as they are, everything between them is joined.

    Raises:
        ValueError: the class has no such version, a field would be lost in it, or a value does not fit.
    """
    kind = message.__class__
    write = _writers.get((kind, version)) or _writer(kind, version)
    try:
        return write(message)
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{kind.__name__} v{version}: {error}") from error


def encode_bytes(message: Any, version: int) -> bytes:
    """Write a message without regions of files as one piece; errors as ``encode``."""
    return b"".join(cast("list[bytes]", encode(message, version)))


def source_of(function: Callable[..., Any]) -> str:
    """Return the generated text of a reader or writer."""
    return "".join(linecache.getlines(function.__code__.co_filename))


def reader(kind: type[Any], version: int) -> Reader:
    """Return the compiled reader, for tests and debugging; errors as ``decode``."""
    return _readers.get((kind, version)) or _reader(kind, version)


def writer(kind: type[Any], version: int) -> Writer:
    """Return the compiled writer, for tests and debugging; errors as ``encode``."""
    return _writers.get((kind, version)) or _writer(kind, version)


def _reader(kind: Any, version: int) -> Reader:
    if version not in kind.VERSIONS:
        raise WireError(f"{kind.__name__} has the versions {kind.VERSIONS}, not {version}")
    return _readers.setdefault((kind, version), emit_reader(kind, version, _is_flexible(kind, version)))


def _writer(kind: Any, version: int) -> Writer:
    if version not in kind.VERSIONS:
        raise ValueError(f"{kind.__name__} has the versions {kind.VERSIONS}, not {version}")
    return _writers.setdefault((kind, version), emit_writer(kind, version, _is_flexible(kind, version)))


def _is_flexible(kind: Any, version: int) -> bool:
    return kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM
