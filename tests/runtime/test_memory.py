"""What the allocator keeps for the next batch, in a process that is a broker alone."""

from __future__ import annotations

import ctypes
import linecache
import subprocess
import sys

import attrs
import pytest

from kafka_wire.records.compression import Codec
from trio_broker.runtime.memory import forget_generated_text

PROGRAM = """
import resource, sys, threading
from kafka_wire.records.compression import Codec, compress, decompress
from trio_broker.runtime.memory import bound_kept_memory

bound_kept_memory()
codec, size = Codec(int(sys.argv[1])), 1_000_000
records = b"".join(b"%08x" % (number * 2654435761 % 2**32) for number in range(size // 8))
if codec is Codec.ZSTD:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    compressor = zstd.ZstdCompressor()  # as a stream, which does not declare its size: so librdkafka writes it
    data = compressor.compress(records) + compressor.flush()
else:
    data = compress(codec, records)

def inflate(count):
    for _ in range(count):
        assert len(decompress(codec, memoryview(bytearray(data)))) == size

def run():
    inflate(5)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    inflate(20)
    print((resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before) // 20)

thread = threading.Thread(target=run)
thread.start()
thread.join()
"""
"""Prints the page faults of one batch, inflated in a worker thread."""

MAX_FAULTS = 50
"""A megabyte has 256 pages: none of what a batch takes may be new memory each time."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_is_inflated_in_the_memory_of_the_one_before(codec: Codec) -> None:
    command = [sys.executable, "-c", PROGRAM, str(int(codec))]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert faults <= MAX_FAULTS


def test_text_of_generated_methods_is_dropped_and_what_was_read_from_files_is_not() -> None:
    @attrs.frozen
    class Value:
        number: int

    linecache.getlines(__file__)
    generated = Value.__init__.__code__.co_filename
    assert generated in linecache.cache
    forget_generated_text()
    assert generated not in linecache.cache
    assert __file__ in linecache.cache
    assert Value(1) == Value(1)
