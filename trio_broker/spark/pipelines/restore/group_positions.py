"""Where a group of rows is cut into slices: pure decisions.

A group is cut at positions of its rows (``RowGroupPart.first``), of which there may be many without a row. The number
of rows in a range is therefore estimated: those of a row group are assumed to lie evenly between its first and its last
one. A slice ends where a row group begins if one begins near the desired end, so that few row groups are read twice.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from trio_broker.spark.pipelines.restore.parquet_parts import RowGroupPart

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@attrs.frozen(slots=False, eq=False)
class GroupPositions:
    """The positions of a group's rows."""

    parts: tuple[RowGroupPart, ...]

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
        """Return an estimate of the rows at positions from ``start`` to ``end``, exclusive."""
        import numpy as np

        firsts, ends, rows = self._columns
        shared = np.minimum(ends, end) - np.maximum(firsts, start)
        return float((shared.clip(min=0) / (ends - firsts) * rows).sum())

    def parts_between(self, start: int, end: int) -> tuple[RowGroupPart, ...]:
        """Return the parts that have rows at positions from ``start`` to ``end``, exclusive."""
        return tuple(part for part in self.parts if part.first < end and part.end > start)

    def slice_end(self, start: int, rows: int) -> int:
        """Return the end of a slice that begins at ``start`` and has about ``rows`` rows."""
        if self.expected_rows(start, self.end) <= rows:
            return self.end
        # The estimate grows with the end, so that a binary search finds the least end with enough rows.
        low, high = start + 1, self.end
        while low < high:
            middle = (low + high) // 2
            if self.expected_rows(start, middle) >= rows:
                high = middle
            else:
                low = middle + 1
        # The last row group that begins within the slice is a better end if at least half of the rows lie before it.
        boundary = max((part.first for part in self.parts if start < part.first <= low), default=None)
        if boundary is not None and 2 * self.expected_rows(start, boundary) >= rows:
            return boundary
        return low
