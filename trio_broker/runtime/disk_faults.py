"""What may go wrong with a simulated disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import PurePath

import attrs


def any_path(path: PurePath) -> bool:
    """Let faults meet every file."""
    return True


@attrs.define
class DiskFaults:
    """How often which fault happens: shares between 0 and 1 of the operations of its kind.

    A disk begins without faults, and they can be changed at any time. ``random`` chooses, so that the same operations
    meet the same faults. ``applies_to`` restricts faults to some paths; the size of the volume is one for all.
    """

    random: random.Random
    failing_reads: float = 0.0
    """EIO."""
    failing_writes: float = 0.0
    """EIO, also of a truncation; nothing has changed then."""
    short_writes: float = 0.0
    """A write takes a part of the bytes, at least one."""
    failing_syncs: float = 0.0
    """EIO of a file's sync. What was to be written is dropped, and the next sync succeeds: see ``Inode.fail_sync``."""
    failing_directory_syncs: float = 0.0
    """EIO; the names stay pending, since journals go on or end as a whole."""
    failing_names: float = 0.0
    """EIO of making, renaming and removing names; nothing has changed then."""
    failing_opens: float = 0.0
    """EMFILE of opening a file."""
    cold_reads: float = 0.0
    """Bytes that seem not to be in the page cache."""
    slow_reads: float = 0.0
    """Reads of bytes that are not in the page cache."""
    slow_read_seconds: float = 1.0
    slow_syncs: float = 0.0
    slow_sync_seconds: float = 1.0
    """How long such a sync takes: see ``SimulatedDisk.take_delay``."""
    total_bytes: int = 1 << 40
    """The size of the volume. It is full (ENOSPC) when its files have as many bytes together."""
    max_descriptors: int = 1 << 20
    """How many files a process may have open; opening one more fails (EMFILE)."""
    applies_to: Callable[[PurePath], bool] = any_path

    def happens(self, share: float, path: PurePath) -> bool:
        """Whether a fault of this share happens to ``path`` now."""
        return share > 0 and self.applies_to(path) and self.random.random() < share
