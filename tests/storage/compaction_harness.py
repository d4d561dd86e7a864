"""Compaction in one go, as a test wants it: no threads, no pace, all steps in their order."""

from __future__ import annotations

from collections.abc import Iterator

from trio_broker.storage.cleaner import Cleaning, CleaningStatistics
from trio_broker.storage.compaction_plan import CompactionRange, compaction_range
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log
from trio_broker.storage.offset_map import OffsetMap
from trio_broker.storage.segment_swap import SegmentSwap

MAP_BYTES = 1 << 20
CHUNK_BYTES = 4096
"""Small, so that batches cross chunks."""


def planned(log: Log, now_ms: int, stable_offset: int | None = None, *, sync: bool = True) -> CompactionRange:
    """What a round would do, once everything was synced if that is wanted."""
    if sync:
        log.sync()
    if stable_offset is None:
        stable_offset = log.producers.transactions.last_stable_offset(log.log_end_offset)
    return compaction_range(log, stable_offset=stable_offset, now_ms=now_ms)


class Round:
    """A whole round over a log, however little there is to win."""

    def __init__(
        self,
        log: Log,
        now_ms: int,
        *,
        map_bytes: int = MAP_BYTES,
        stable_offset: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        sync: bool = True,
    ) -> None:
        self.log = log
        self.now_ms = now_ms
        self.compacted = planned(log, now_ms, stable_offset, sync=sync)
        expected_keys = self.compacted.end_offset - self.compacted.first_dirty_offset
        self.offset_map = OffsetMap(map_bytes, secret=bytes(16), load_factor=0.9, expected_keys=expected_keys)
        self.cleaning = Cleaning(self.compacted, self.offset_map, now_ms=now_ms, chunk_bytes=chunk_bytes)

    def steps(self) -> Iterator[str]:
        """Do it, telling before each step what comes next."""
        cleaning = self.cleaning
        try:
            yield "index"
            for _ in cleaning.index():
                pass
            for group in cleaning.groups():
                for _ in cleaning.rewrite(group):
                    yield "rewrite"
                assert cleaning.cleaned is not None
                swap = SegmentSwap(self.log, group, cleaning.cleaned)
                assert swap.is_possible
                yield "commit"
                swap.commit()
                cleaning.pop_cleaned()
                yield "replace_segments"
                swap.replace_segments(self.now_ms)
                yield "sync of the old names"
                swap.sync()
                yield "finish_rename"
                swap.finish_rename()
                yield "sync of the new names"
                swap.sync()
            yield "checkpoint"
            self.log.first_dirty_offset = cleaning.end_offset
        except StorageFailed as error:
            self.log.fail(error)
            raise
        finally:
            self.offset_map.close()


def compact(
    log: Log,
    now_ms: int,
    *,
    map_bytes: int = MAP_BYTES,
    stable_offset: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> CleaningStatistics:
    """Do a whole round and return what it did."""
    this_round = Round(log, now_ms, map_bytes=map_bytes, stable_offset=stable_offset, chunk_bytes=chunk_bytes)
    for _ in this_round.steps():
        pass
    return this_round.cleaning.statistics
