"""Messages to bytes and back.

For each class and version there is one reader and one writer, compiled from the declaration when first needed and kept
(``emit_reader``, ``emit_writer``). Their source stands in tracebacks, and ``source_of`` returns it.

Each exists in a second form, a generator that yields None after every ``TURN_ELEMENTS`` elements (``decode_in_turns``,
``encode_in_turns``), for callers with something else to do meanwhile.

``decode`` raises nothing but ``WireError``, whatever the bytes are. Bytes after the message are left alone: librdkafka
sends three more than it should in one of its requests.

Source: the limits of ``emit_reader``; Kafka's protocol guide for what is written.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar, cast

from kafka_wire.emit_reader import emit_reader
from kafka_wire.emit_source import TURN_ELEMENTS
from kafka_wire.emit_writer import emit_writer
from kafka_wire.errors import WireError
from kafka_wire.primitives import Chunk, ReadableBuffer

T = TypeVar("T")

Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[Any], list[Chunk]]

_readers: Final[dict[tuple[type[Any], int], Reader]] = {}
_writers: Final[dict[tuple[type[Any], int], Writer]] = {}
_readers_in_turns: Final[dict[tuple[type[Any], int], Callable[..., Generator[None, None, tuple[Any, int]]]]] = {}
_writers_in_turns: Final[dict[tuple[type[Any], int], Callable[..., Generator[None, None, list[Chunk]]]]] = {}


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
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(kind, version, error) from None


def decode_in_turns(
    kind: type[T], version: int, buffer: ReadableBuffer, position: int = 0
) -> Generator[None, None, tuple[T, int]]:
    """Read a message as ``decode`` does, and yield now and then. A message of few elements never yields.

    Raises:
        WireError: as ``decode``.
    """
    if (read := _readers_in_turns.get((kind, version))) is None:
        _require_version(kind, version)
        read = _readers_in_turns[kind, version] = emit_reader(kind, version, _is_flexible(kind, version), in_turns=True)
    try:
        return (yield from read(memoryview(buffer), position))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(kind, version, error) from None


def decode_at_most(
    elements: int, kind: type[T], version: int, buffer: ReadableBuffer, position: int = 0
) -> tuple[T, int]:
    """Read a message as ``decode`` does, if its arrays have no more than ``elements`` elements together.

    ``elements`` is rounded up to a multiple of ``TURN_ELEMENTS``. What is too large is given up there, not read to its
    end, so the time this takes is bounded whatever the bytes are.

    Raises:
        WireError: as ``decode``, or there are more elements.
    """
    reading = decode_in_turns(kind, version, buffer, position)
    try:
        for _ in range(-(-elements // TURN_ELEMENTS) + 1):
            next(reading)
    except StopIteration as done:
        read: tuple[T, int] = done.value
        return read
    raise WireError(f"{kind.__name__} v{version} has more than {elements} elements in its arrays")


def _malformed(kind: type[Any], version: int, error: Exception) -> WireError:
    if isinstance(error, UnicodeDecodeError):
        return WireError(f"{kind.__name__} v{version} has a string that is not UTF-8: {error.reason}")
    return WireError(f"{kind.__name__} v{version} ends too early")


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


def encode_in_turns(message: Any, version: int) -> Generator[None, None, list[Chunk]]:
    """Write a message as ``encode`` does, in more chunks, and yield now and then; errors as ``encode``."""
    kind = message.__class__
    if (write := _writers_in_turns.get((kind, version))) is None:
        _require_written_version(kind, version)
        write = _writers_in_turns[kind, version] = emit_writer(
            kind, version, _is_flexible(kind, version), in_turns=True
        )
    try:
        return (yield from write(message))
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


def _require_version(kind: Any, version: int) -> None:
    if version not in kind.VERSIONS:
        raise WireError(f"{kind.__name__} has the versions {kind.VERSIONS}, not {version}")


def _require_written_version(kind: Any, version: int) -> None:
    if version not in kind.VERSIONS:
        raise ValueError(f"{kind.__name__} has the versions {kind.VERSIONS}, not {version}")


def _reader(kind: Any, version: int) -> Reader:
    _require_version(kind, version)
    return _readers.setdefault((kind, version), emit_reader(kind, version, _is_flexible(kind, version)))


def _writer(kind: Any, version: int) -> Writer:
    _require_written_version(kind, version)
    return _writers.setdefault((kind, version), emit_writer(kind, version, _is_flexible(kind, version)))


def _is_flexible(kind: Any, version: int) -> bool:
    return kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM
