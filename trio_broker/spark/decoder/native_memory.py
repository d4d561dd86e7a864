"""Building blocks of functions compiled by numba: how to compile them, and memory by its address.

Addresses are int64, as is every other number, since numba makes a float of a signed and an unsigned operand. Nothing is
checked here: the caller compares addresses with ends first.

Functions that Python calls have an explicit signature, so they are compiled when their module is imported, or come from
the cache of ``trio_broker.spark.machine_code``, which notices changes of the helpers as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from trio_broker.spark import machine_code

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

jitted: Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]] = njit
"""For helpers of functions compiled for a signature, which they become part of."""

inlined: Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]] = njit(forceinline=True)
"""For helpers that run for every record: as real calls, which return several values through memory, they would make the
walk half as slow again."""

machine_instruction: Callable[[Callable[..., Any]], Callable[..., int]] = intrinsic
"""For functions that emit code; they are called without the context, which is their first parameter."""


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for ``signature`` now, or load it from the cache on disk."""
    return machine_code.compiled(signature, error_model="numpy")


@machine_instruction
def load_byte(_context: Any, address: Any) -> Any:
    """Return the byte at ``address`` as an int64."""

    def build(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return builder.zext(byte, ir.IntType(64))

    return types.int64(types.int64), build


def _store(bits: int) -> Callable[..., int]:
    @machine_instruction
    def store(_context: Any, address: Any, value: Any) -> Any:
        def build(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            width = ir.IntType(bits)
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], width)
            builder.store(value, builder.inttoptr(arguments[0], width.as_pointer()), align=1)
            return target.get_dummy_value()

        return types.void(types.int64, types.int64), build

    return store


store_byte, store_int32, store_int64 = _store(8), _store(32), _store(64)


@machine_instruction
def copy_bytes(_context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy ``count`` bytes between addresses that do not overlap."""

    def build(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, origin = (builder.inttoptr(argument, pointer) for argument in arguments[:2])
        cgutils.raw_memcpy(builder, to, origin, arguments[2], 1)
        return target.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@machine_instruction
def prefetch(_context: Any, address: Any) -> Any:
    """Have the processor load the byte at ``address`` into its cache. That is only a hint, so any address is
    allowed."""

    def build(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, int32, int32, int32])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), int32(0), int32(3), int32(1)])
        return target.get_dummy_value()

    return types.void(types.int64), build
