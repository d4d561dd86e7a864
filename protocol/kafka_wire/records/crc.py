"""CRC-32C, the checksum of record batches and producer snapshots.

``crc32c(buffer, value=0)`` returns it, unsigned; ``value`` is the CRC of what came before ``buffer``. Castagnoli's
polynomial, not the CRC-32 of zlib. Any contiguous buffer is taken without a copy, and the interpreter
lock is let go for large ones (32 KiB and more).

Source: Kafka's Crc32C; RFC 3720 §B.4 for test values.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
