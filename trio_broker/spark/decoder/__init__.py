"""Raw record batches in, Arrow batches out: the part of a task that takes the time.

The stages of a chunk: ``batch_table`` reads the headers of all its batches, ``batch_filter`` selects the batches that
have rows, ``blocks`` checks their CRCs and has ``inflation`` inflate them, an engine decodes the records, ``columns``
makes Arrow arrays.

There are two engines, for the same records and the same errors. ``numba_engine`` runs machine code made by numba
(``jit_decoder``), ``plain_engine`` needs numpy alone. The reference for both is ``kafka_wire.records``: tests compare
them with it, and it finds the reason when one of them refuses a record. A worker begins with the plain one and changes
between two chunks, once numba's is loaded, which on a new machine takes seconds. It loads numba's only when it has a
large task, or has had many small ones.

Source: docs/formats/record-batch.md; Kafka's consumer for what counts as a record; docs/decisions/0058.
"""

from __future__ import annotations

import enum
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, Protocol

import attrs
import pyarrow as pa

from trio_broker.spark.background_load import BackgroundLoad
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.decoder.batch_filter import AbortedProducers, select_batches
from trio_broker.spark.decoder.blocks import Grouping, RecordBlocks, record_blocks
from trio_broker.spark.decoder.coalescing import coalesced
from trio_broker.spark.decoder.columns import BatchAssembler, Rows
from trio_broker.spark.decoder.corruption import CorruptBlock, PartitionChunk
from trio_broker.spark.decoder.inflation import InflationBuffer
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.ranges import OffsetRange

log = logging.getLogger(__name__)


class Engine(enum.Enum):
    """The implementation that decodes records."""

    NUMBA = "numba"
    PLAIN = "plain"


class BlockDecoder(Grouping, Protocol):
    """An engine's state for one task."""

    def rows(self, blocks: RecordBlocks, offsets: OffsetRange) -> Iterator[Rows]:
        """Decode the records of ``blocks`` that lie in ``offsets``; yield those that fill an Arrow batch.

        Raises:
            CorruptBlock: one of them is damaged; records before it may have been yielded.
        """
        ...

    def flush(self) -> Iterator[Rows]:
        """Yield the records that have not been yielded, after the last call of ``rows``."""
        ...


@cache
def available_engine() -> Engine:
    """Return the fastest engine that works here."""
    if importlib.util.find_spec("numba") is None:
        return Engine.PLAIN
    try:
        _decoder(Engine.NUMBA, Decoding(()))
    except Exception as error:  # an unsuitable Python, numpy or processor raises many kinds of errors
        log.warning("numba is there but cannot be used, so records are read several times more slowly: %r", error)
        return Engine.PLAIN
    return Engine.NUMBA


MIN_OFFSETS: Final = 100_000
"""So many offsets a worker reads before it loads numba's engine, or is about to. For their records that engine takes
0.1 s of CPU less, and 0.4 s to load where it is compiled already."""

_loaded_engine: Final = BackgroundLoad(available_engine, min_rows=MIN_OFFSETS)


def ready_engine(offset_count: int = 0) -> Engine:
    """Return the fastest engine of those that a task need not wait for, which is to read so many more offsets."""
    return _loaded_engine.get(offset_count) or Engine.PLAIN


def decode(
    chunks: Iterable[Chunk], offsets: OffsetRange, decoding: Decoding, *, engine: Engine | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``offsets`` in ``chunks`` as Arrow batches of ``decoding.columns``.

    Chunks come in the order of their offsets; a record that comes again, because a transport started again, is yielded
    once. No chunk is requested that the range does not need. ``engine`` is for tests and comparisons.

    Raises:
        CorruptData: with the first batch that is damaged, too large, or breaks the format.
    """
    if offsets.offset_count == 0:
        return
    choose = ready_engine if engine is None else lambda _: engine
    assembler = BatchAssembler(offsets.partition, decoding)
    found = _rows(chunks, offsets, decoding, choose)
    yield from coalesced((assembler.batch(rows) for rows in found), decoding)


def _rows(
    chunks: Iterable[Chunk], offsets: OffsetRange, decoding: Decoding, choose: Callable[[int], Engine]
) -> Iterator[Rows]:
    engine = choose(offsets.offset_count)
    decoder = _decoder(engine, decoding)
    aborted, buffer = AbortedProducers(), InflationBuffer()
    remaining = offsets
    for chunk in chunks:
        if (chosen_engine := choose(0)) is not engine:
            yield from decoder.flush()
            engine, decoder = chosen_engine, _decoder(chosen_engine, decoding)
        source = PartitionChunk(offsets.partition, chunk)
        if chunk.resumes_at is not None:
            # Every response of a broker names all its aborted transactions; markers of earlier ones may be gone.
            aborted.clear()
            remaining = _at_or_after(remaining, chunk.resumes_at)
        chosen = select_batches(source, remaining, decoding, aborted)
        for blocks in record_blocks(source, chosen, decoding, buffer, decoder):
            try:
                yield from decoder.rows(blocks, remaining)
            except CorruptBlock as bad:
                raise source.corrupt_block(int(blocks.batches[bad.index]), decoding) from None
        remaining = _after(remaining, chunk)
        if remaining.offset_count == 0:
            break
    yield from decoder.flush()


def _at_or_after(remaining: OffsetRange, offset: int) -> OffsetRange:
    """Return the part of the range at ``offset`` or behind it."""
    return attrs.evolve(remaining, start_offset=min(remaining.end_offset, max(remaining.start_offset, offset)))


def _after(remaining: OffsetRange, chunk: Chunk) -> OffsetRange:
    """Return the part of the range behind ``chunk``.

    Raises:
        CorruptData: the chunk ends in bytes that are no batch, where the range goes on.
    """
    next_offset = max(remaining.start_offset, chunk.table.next_offset or 0)
    if next_offset >= remaining.end_offset:
        return attrs.evolve(remaining, start_offset=remaining.end_offset)
    if chunk.table.damage is not None:
        position = chunk.table.consumed_bytes
        reason = f"{chunk.table.damage} (at byte {position} of what came from {chunk.origin})"
        raise CorruptData(remaining.partition, next_offset, reason)
    return attrs.evolve(remaining, start_offset=next_offset)


def _decoder(engine: Engine, decoding: Decoding) -> BlockDecoder:
    if engine is Engine.NUMBA:
        from trio_broker.spark.decoder.numba_engine import NumbaDecoder

        return NumbaDecoder(decoding)
    from trio_broker.spark.decoder.plain_engine import PlainDecoder

    return PlainDecoder(decoding)
