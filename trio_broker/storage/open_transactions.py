"""Which transactions of one log are not decided, or decided where that could still be lost.

The first unstable offset is where the oldest transaction begins that is open, or decided but with its marker not yet
below the high watermark; committed readers must not get past it.

Source: Kafka's ProducerStateManager (``ongoingTxns``, ``unreplicatedTxns``).
"""

from __future__ import annotations


class OpenTransactions:
    """See the head of the file. Transactions are known by their first offset, which no two of a log share."""

    __slots__ = ("decided", "undecided")

    def __init__(self) -> None:
        # The producer of each open transaction. They begin in log order, so the first key is the oldest.
        self.undecided: dict[int, int] = {}
        # The offset of the marker of each decided one, in the order of the markers.
        self.decided: dict[int, int] = {}

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction of ``producer_id`` begins; none that is known began behind it."""
        self.undecided[first_offset] = producer_id

    def decide(self, first_offset: int, marker_offset: int) -> None:
        """The marker at ``marker_offset`` ends a transaction; it is stable once the marker is."""
        self.undecided.pop(first_offset, None)
        self.decided[first_offset] = marker_offset

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins, None when none is open."""
        return next(iter(self.undecided), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose marker is not below the high watermark."""
        undecided = self.first_undecided_offset
        if not self.decided:
            return undecided
        decided = min(self.decided)
        return decided if undecided is None else min(decided, undecided)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Forget decided transactions whose marker is below the high watermark: it cannot be lost any more."""
        for first_offset in [first for first, marker in self.decided.items() if marker < high_watermark]:
            del self.decided[first_offset]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which everything is decided and safe, given the high watermark."""
        self.advance_high_watermark(high_watermark)
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(high_watermark, unstable)
