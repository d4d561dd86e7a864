"""How groups of rows are worked off in rounds: pure decisions, as ``rounds`` has them for partitions.

A group is cut by the positions of its rows (``Part.first``), of which there may be many without a row. So it is cut by
how many rows are taken to be in a range: those of a row group lie evenly between its first and its last one. Where a
row group begins near the place wanted, that is where a slice ends, so that few row groups are read for two slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from trio_broker.spark.pipelines.parquet_parts import Part

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@attrs.frozen
class RestoreSlice:
    """Those rows of group ``group`` that are at positions from ``start`` to ``end``, exclusive; ``parts`` have them.

    ``expected_rows`` is how many that may be, at least 1.
    """

    group: int
    parts: tuple[Part, ...]
    start: int
    end: int
    expected_rows: int

    @property
    def document(self) -> list[int]:
        """The slice as commits keep it."""
        return [self.group, self.start, self.end]


@attrs.frozen(slots=False, eq=False)
class PositionMap:
    """Where the rows of a group are."""

    group: int
    parts: tuple[Part, ...]

    @property
    def start(self) -> int:
        """The lowest position of a row."""
        return self.parts[0].first

    @cached_property
    def end(self) -> int:
        """The position behind the last row."""
        return max(part.end for part in self.parts)

    @cached_property
    def _columns(self) -> npt.NDArray[np.float64]:
        import numpy as np

        return np.array([(part.first, part.end, part.rows) for part in self.parts], np.float64).T

    def expected_rows(self, start: int, end: int) -> float:
        """Return about how many rows are at positions from ``start`` to ``end``, exclusive."""
        import numpy as np

        firsts, ends, rows = self._columns
        shared = np.minimum(ends, end) - np.maximum(firsts, start)
        return float((shared.clip(min=0) / (ends - firsts) * rows).sum())

    def slice(self, start: int, end: int) -> RestoreSlice:
        """Return the slice between two positions."""
        parts = tuple(part for part in self.parts if part.first < end and part.end > start)
        return RestoreSlice(self.group, parts, start, end, max(1, round(self.expected_rows(start, end))))

    def slice_end(self, start: int, rows: int) -> int:
        """Return where a slice of about so many rows ends that begins at ``start``."""
        if self.expected_rows(start, self.end) <= rows:
            return self.end
        low, high = start + 1, self.end
        while low < high:
            middle = (low + high) // 2
            if self.expected_rows(start, middle) >= rows:
                high = middle
            else:
                low = middle + 1
        boundary = max((part.first for part in self.parts if start < part.first <= low), default=None)
        if boundary is not None and 2 * self.expected_rows(start, boundary) >= rows:
            return boundary
        return low


def next_slices(
    maps: Sequence[PositionMap], positions: Mapping[int, int], *, most_slices: int, slice_rows: int
) -> tuple[RestoreSlice, ...]:
    """Return the slices of the next round, one of each of the groups that have most left; none when all is done."""
    unfinished = [each for each in maps if positions[each.group] < each.end]
    unfinished.sort(key=lambda each: -each.expected_rows(positions[each.group], each.end))
    chosen = sorted(unfinished[:most_slices], key=lambda each: each.group)
    starts = [positions[each.group] for each in chosen]
    return tuple(
        each.slice(start, each.slice_end(start, slice_rows)) for each, start in zip(chosen, starts, strict=True)
    )


def read_slice(maps: Sequence[PositionMap], document: Sequence[Any]) -> RestoreSlice:
    """Return the slice that ``RestoreSlice.document`` wrote."""
    group, start, end = map(int, document)
    return maps[group].slice(start, end)
