"""Writes records and hashes keys as machine code, by numba.

Both read Arrow's buffers by address and copy keys and values with a real ``memcpy``; array indexing costs several times
more. Addresses and lengths are those of a ``RowColumns``, which Arrow made, not of anything that came over a wire.
``out`` has room for the sizes that ``row_columns`` computed, and the caller compares what was written with them.

Functions have explicit signatures, so they are compiled when this is imported, or come from the cache of
``trio_broker.spark.machine_code``.

Source: record_encoder and partitioner, which have the same in plain Python; kafka_wire.records.record for the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from trio_broker.common.murmur2 import MULTIPLIER, SEED
from trio_broker.spark.machine_code import compiled

_LONGS = types.Array(types.int64, 1, "C", readonly=True)
_U8: Any = types.uint8
_U32: Any = types.uint32
_U64: Any = types.uint64
_UP: Any = types.uintp
_ADDRESS = types.uintp
_COLUMN = (_ADDRESS, _LONGS, _LONGS)
"""A ``BytesColumn``: address, starts, lengths."""

F = TypeVar("F", bound=Callable[..., Any])


def _inlined(function: F) -> F:
    machine_code: F = njit(inline="always")(function)
    return machine_code


# --- Addresses ---


def _make_load(typing_context: Any, address: Any) -> Any:
    """Return the byte at ``address``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], cgutils.voidptr_t))

    return types.uint8(types.uintp), generate


def _make_load_word(typing_context: Any, address: Any) -> Any:
    """Return the four bytes at ``address``, the lowest first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(32))))
        word.align = 1
        return word

    return types.uint32(types.uintp), generate


def _make_store(typing_context: Any, address: Any, byte: Any) -> Any:
    """Write one byte."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.void(types.uintp, types.uint8), generate


def _make_copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy ``size`` bytes between addresses that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_at, source_at, size_bytes = arguments
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(target_at, cgutils.voidptr_t),
            builder.inttoptr(source_at, cgutils.voidptr_t),
            size_bytes,
            1,
        )
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.uintp), generate


_load: Any = intrinsic(_make_load)
_load_word: Any = intrinsic(_make_load_word)
_store: Any = intrinsic(_make_store)
_copy: Any = intrinsic(_make_copy)


@_inlined
def _write_varint(at: Any, value: Any) -> Any:
    """Write a signed number of 64 bits as a zigzag variable-length integer; return the address behind it."""
    group = _U64((value << 1) ^ (value >> 63))
    while group > 0x7F:
        _store(at, _U8(group & 0x7F | 0x80))
        at += _UP(1)
        group >>= _U64(7)
    _store(at, _U8(group))
    return at + _UP(1)


@_inlined
def _varint_bytes(value: Any) -> Any:
    group = _U64((value << 1) ^ (value >> 63))
    size = 1
    while group > 0x7F:
        group >>= _U64(7)
        size += 1
    return size


@_inlined
def _write_bytes(at: Any, address: Any, start: Any, length: Any) -> Any:
    at = _write_varint(at, length)
    if length > 0:
        _copy(at, address + _UP(start), _UP(length))
        at += _UP(length)
    return at


# --- Records ---


@compiled(
    types.int64(
        *(_ADDRESS, _LONGS, types.int64, types.int64, _LONGS, _LONGS),
        *(*_COLUMN, *_COLUMN),
        *(_LONGS, _LONGS, *_COLUMN, *_COLUMN),
        *(_ADDRESS, types.int64, types.int64),
    )
)
def write_records(  # type: ignore[no-untyped-def]
    out,
    rows,
    first_delta,
    base_timestamp,
    timestamps,
    record_bytes,
    key_address,
    key_starts,
    key_lengths,
    value_address,
    value_starts,
    value_lengths,
    header_starts,
    header_counts,
    header_key_address,
    header_key_starts,
    header_key_lengths,
    header_value_address,
    header_value_starts,
    header_value_lengths,
    row_id_address,
    row_id_bytes,
    first_row,
):
    """Write the records of ``rows`` to the address ``out``, and return their size in bytes.

    ``header_counts`` is empty where there are no headers. ``row_id_bytes`` is 0 without row ids; with them so many
    bytes at ``row_id_address`` are the header without the row's number.
    """
    at = out
    has_headers = len(header_counts) > 0
    for index in range(len(rows)):
        row = rows[index]
        timestamp_delta = timestamps[row] - base_timestamp
        offset_delta = first_delta + index
        length = record_bytes[row] + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta)
        at = _write_varint(at, length)
        _store(at, _U8(0))
        at += _UP(1)
        at = _write_varint(at, timestamp_delta)
        at = _write_varint(at, offset_delta)
        at = _write_bytes(at, key_address, key_starts[row], key_lengths[row])
        at = _write_bytes(at, value_address, value_starts[row], value_lengths[row])
        count = header_counts[row] if has_headers else 0
        at = _write_varint(at, count + 1 if row_id_bytes > 0 else count)
        for header in range(count):
            place = header_starts[row] + header
            at = _write_bytes(at, header_key_address, header_key_starts[place], header_key_lengths[place])
            at = _write_bytes(at, header_value_address, header_value_starts[place], header_value_lengths[place])
        if row_id_bytes > 0:
            _copy(at, row_id_address, _UP(row_id_bytes))
            at += _UP(row_id_bytes)
            number = _U64(first_row + row)
            for shift in range(56, -8, -8):
                _store(at, _U8(number >> _U64(shift) & _U64(0xFF)))
                at += _UP(1)
    return types.int64(at - out)


# --- Keys ---


@compiled(types.void(*_COLUMN, _LONGS, types.int64[::1]))
def hash_rows(address, starts, lengths, rows, hashes):  # type: ignore[no-untyped-def]
    """Write murmur2 of the key of each of ``rows`` into ``hashes``."""
    multiplier = _U32(MULTIPLIER)
    for index in range(len(rows)):
        row = rows[index]
        at = address + _UP(starts[row])
        size = lengths[row]
        value = _U32(_U32(SEED) ^ _U32(size))
        for _ in range(size >> 2):
            word = _U32(_load_word(at) * multiplier)
            word = _U32((word ^ (word >> _U32(24))) * multiplier)
            value = _U32(_U32(value * multiplier) ^ word)
            at += _UP(4)
        tail = size & 3
        if tail == 3:
            value ^= _U32(_load(at + _UP(2))) << _U32(16)
        if tail >= 2:
            value ^= _U32(_load(at + _UP(1))) << _U32(8)
        if tail >= 1:
            value = _U32((value ^ _U32(_load(at))) * multiplier)
        value = _U32((value ^ (value >> _U32(13))) * multiplier)
        value = _U32(value ^ (value >> _U32(15)))
        hashes[index] = types.int64(value)
