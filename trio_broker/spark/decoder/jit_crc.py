"""Checksums of many batches by the processor's own instruction, without a call of the C library for each.

For a batch of a few hundred bytes that call takes ten times longer than its checksum. Where the processor has no such
instruction, or numba is set to compile for another processor, ``IS_FAST`` is false and ``crc_of`` always returns 0; it
must not be used then.

Source: RFC 3720 §B.4 for the checksum.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import config, types
from numba.core import cgutils

from kafka_wire.records.crc import crc32c
from trio_broker.spark.decoder.native_memory import compiled, jitted, load_byte, machine_instruction, prefetch


@machine_instruction
def crc_of_word(_context: Any, crc: Any, address: Any) -> Any:
    """Return the CRC-32C of the eight bytes at ``address``, continued from ``crc``; both without the final
    inversion."""

    def build(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        int64 = ir.IntType(64)
        word = builder.load(builder.inttoptr(arguments[1], int64.as_pointer()), align=1)
        function = ir.FunctionType(int64, [int64, int64])
        step = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.sse42.crc32.64.64")
        return builder.call(step, [arguments[0], word])

    return types.int64(types.int64, types.int64), build


@machine_instruction
def crc_of_byte(_context: Any, crc: Any, byte: Any) -> Any:
    """Return the CRC-32C continued with one more byte."""

    def build(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        int8, int32, int64 = (ir.IntType(bits) for bits in (8, 32, 64))
        function = ir.FunctionType(int32, [int32, int8])
        step = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.sse42.crc32.32.8")
        crc, byte = builder.trunc(arguments[0], int32), builder.trunc(arguments[1], int8)
        return builder.zext(builder.call(step, [crc, byte]), int64)

    return types.int64(types.int64, types.int64), build


def _has_crc_instruction() -> bool:
    """Return whether numba compiles for a processor with SSE 4.2. On another one the instruction kills the process."""
    chosen = config.CPU_NAME is not None or config.CPU_FEATURES is not None
    return not chosen and bool(get_host_cpu_features().get("sse4.2"))


IS_FAST: Final = _has_crc_instruction()

LANE_BYTES: Final = 512
"""The processor starts a step each cycle and finishes it after three, so three lanes of this length are summed side by
side. A table joins their sums, which pays from this length on."""

LINE_BYTES: Final = 64
AHEAD_BYTES: Final = 6 * LANE_BYTES
"""Memory is prefetched so far ahead: the processor does not predict that all three lanes continue behind the third one.
With it, sums of memory that is in no cache take two thirds of the time."""


def _zero_lane_table() -> npt.NDArray[np.int64]:
    """Return the table by which a sum is moved past a lane of zeros: the exclusive or of an item for each of its
    four bytes."""
    zeros, mask = bytes(LANE_BYTES), 0xFFFF_FFFF
    sums = [crc32c(zeros, ~(byte << 8 * place) & mask) ^ mask for place in range(4) for byte in range(256)]
    return np.array(sums, np.int64)


ZERO_LANE_TABLE: Final = _zero_lane_table()


@jitted
def after_zero_lane(crc: int) -> int:
    """Return ``crc`` continued with a lane of zeros: how the sum of one lane is combined with that of the next."""
    first, second = ZERO_LANE_TABLE[crc & 0xFF], ZERO_LANE_TABLE[256 + (crc >> 8 & 0xFF)]
    third, fourth = ZERO_LANE_TABLE[512 + (crc >> 16 & 0xFF)], ZERO_LANE_TABLE[768 + (crc >> 24)]
    return int(first ^ second ^ third ^ fourth)


@jitted
def crc_of(at: int, end: int) -> int:
    """Return the CRC-32C of the bytes from ``at`` to ``end``."""
    if not IS_FAST:
        return 0  # IS_FAST is a constant for the compiler, which drops the rest
    crc = 0xFFFF_FFFF
    while end - at >= 3 * LANE_BYTES:
        second = third = 0
        for line in range(at, at + LANE_BYTES, LINE_BYTES):
            for lane in range(3):
                prefetch(line + lane * LANE_BYTES + AHEAD_BYTES)
            for word in range(line, line + LINE_BYTES, 8):
                crc = crc_of_word(crc, word)
                second = crc_of_word(second, word + LANE_BYTES)
                third = crc_of_word(third, word + 2 * LANE_BYTES)
        crc = after_zero_lane(after_zero_lane(crc) ^ second) ^ third
        at += 3 * LANE_BYTES
    while end - at >= 8:
        crc = crc_of_word(crc, at)
        at += 8
    while at < end:
        crc = crc_of_byte(crc, load_byte(at))
        at += 1
    return crc ^ 0xFFFF_FFFF


@compiled("int64(int64, int64[::1], int64[::1], int64[::1])")
def find_bad_crc(data: int, starts: Any, ends: Any, expected: Any) -> int:
    """Return the index of the first piece whose CRC-32C is not the expected one; -1 if all are right."""
    for index in range(len(starts)):
        if crc_of(data + starts[index], data + ends[index]) != expected[index]:
            return index
    return -1
