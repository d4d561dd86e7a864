"""What a process that is a broker alone keeps in memory without a use for it.

By default glibc learns from the largest block that was ever freed: after one decompression bomb it takes blocks of up
to 32 MiB from its heaps, which shrink only from their ends, and the process stays as large as it once was. And attrs
keeps the text of all methods that it has written.
"""

from __future__ import annotations

import ctypes
import linecache

MMAP_THRESHOLD_BYTES = 4 * 1024 * 1024
"""Larger blocks are the kernel's and go back to it when they are freed. Batches of a megabyte are not among them: a
mapping of its own for each would cost a page fault every 4 KiB."""

TRIM_THRESHOLD_BYTES = 8 * 1024 * 1024
"""Free memory at the end of a heap beyond this goes back to the kernel. A batch of a megabyte that is inflated takes
some five at once: zstd's window of two, the output, its copy. With less than that each batch faulted them in anew, one
page after the other, which took longer than inflating it."""

GENERATED = "<attrs generated "
"""What the names begin with by which attrs keeps the methods that it has written, as text, for debuggers."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def bound_kept_memory() -> None:
    """Set both bounds for this process, where its C library has ``mallopt``; for a process that is a broker alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)


def release_free_memory() -> None:
    """Give the kernel back the pages of freed blocks wherever they lie in the heaps; some milliseconds for 100 MiB.

    Without, a heap shrinks from its end only, and one small block there keeps all that was freed before it.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def forget_generated_text() -> None:
    """Drop the text of all methods that attrs has written: 2 MiB, of which what is loaded next takes the place."""
    for name in [each for each in linecache.cache if each.startswith(GENERATED)]:
        del linecache.cache[name]
