"""The newest offset of every key in a part of a log, in a bounded and known amount of memory.

A table of 24-byte slots in one block of memory: 16 bytes of hash and 8 of offset, found by double hashing. A Python
dictionary would need five times as much for each key. The block is anonymous memory that the system hands out page by
page and takes back when the map is closed.

Keys themselves are not kept: two keys with one hash would be taken for one, and the older one's record dropped. So the
hash is a cryptographic one, of 128 bits, and keyed with a secret of this map: chance makes no collision, and neither
does a producer who tries to.

A full map says so and takes nothing more. Everything up to ``latest_offset`` is in it then, and what lies behind waits
for another round.

Source: Kafka's SkimpyOffsetMap.
"""

from __future__ import annotations

import hashlib
import math
import mmap  # noqa: TID251 - memory that no file is behind
import struct
from collections.abc import Sequence

SLOT_BYTES = 24
"""128 bits of hash, 64 bits of offset."""

HASH_BYTES = 16
SECRET_BYTES = 16

NO_OFFSET = -1
"""The map knows nothing of the key."""

KEYLESS = 2**63 - 1
"""In place of a newest offset where a record has no key: no offset is as new, so no such record is kept."""

SMALLEST_TABLE = 5
"""Slots; the step of the double hashing needs more than one."""

ROOMY_LOAD_FACTOR = 0.6
"""How full a table gets that is smaller than allowed: looking for a key that is not there takes 2.5 probes, and 10 in a
table that is full to 0.9."""

LARGEST_PRIME_GAP = 336
"""Between two primes below 2**32: so many slots more, and the prime below them still gives as many as are wanted."""

_HASH = struct.Struct("<QQ")


class OffsetMap:
    """See the head of the file. Not for two threads at once.

    ``max_bytes`` bounds the table, ``load_factor`` says how full it may get; ``expected_keys``, the most there can be,
    makes a smaller table where that will do. ``secret`` has ``SECRET_BYTES`` random bytes, so that nobody can make keys
    that collide.
    """

    def __init__(self, max_bytes: int, *, secret: bytes, load_factor: float, expected_keys: int) -> None:
        allowed = max_bytes // SLOT_BYTES
        wanted = math.ceil((expected_keys + 1) / min(load_factor, ROOMY_LOAD_FACTOR)) + LARGEST_PRIME_GAP
        self.slots = largest_prime_up_to(max(SMALLEST_TABLE, min(allowed, wanted)))
        self.max_keys = max(1, int(self.slots * load_factor))
        self.keys = 0
        self.latest_offset = NO_OFFSET
        self._memory = mmap.mmap(-1, self.slots * SLOT_BYTES)
        self._view = memoryview(self._memory)
        # Three words a slot: two of hash, and the offset plus one, so that memory as it comes means an empty slot.
        self._words = self._view.cast("Q")
        self._hash = hashlib.blake2b(key=secret, digest_size=HASH_BYTES)

    def close(self) -> None:
        """Give the memory back. The map is of no use afterwards."""
        self._words.release()
        self._view.release()
        self._memory.close()

    @property
    def size_bytes(self) -> int:
        """The size of the table."""
        return self.slots * SLOT_BYTES

    def put_all(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> bool:
        """Note the offsets of ``keys``, in ascending order; null keys are passed over.

        Returns whether all were taken. If not, the map is full, and ``latest_offset`` is that of the last one taken.
        """
        words, slots, steps = self._words, self.slots, self.slots - 1
        copy_hash, unpack = self._hash.copy, _HASH.unpack
        count, most = self.keys, self.max_keys
        taken = self.latest_offset
        for key, offset in zip(keys, offsets, strict=True):
            if key is None:
                continue
            if count >= most:
                break
            hashed = copy_hash()
            hashed.update(key)
            high, low = unpack(hashed.digest())
            slot = high % slots
            at = slot * 3
            while words[at + 2] and not (words[at] == high and words[at + 1] == low):
                slot = (slot + low % steps + 1) % slots
                at = slot * 3
            if not words[at + 2]:
                words[at], words[at + 1] = high, low
                count += 1
            words[at + 2] = offset + 1
            taken = offset
        else:
            self.keys, self.latest_offset = count, taken
            return True
        self.keys, self.latest_offset = count, taken
        return False

    def advance_to(self, offset: int) -> None:
        """Say that everything up to ``offset`` is in the map, whether or not it had keys."""
        assert offset >= self.latest_offset, f"{offset} after {self.latest_offset}"
        self.latest_offset = offset

    def newest_offsets(self, keys: Sequence[bytes | None]) -> list[int]:
        """Return the newest offset of each key: ``NO_OFFSET`` for unknown ones, ``KEYLESS`` for null."""
        words, slots, steps = self._words, self.slots, self.slots - 1
        copy_hash, unpack = self._hash.copy, _HASH.unpack
        # The probing of ``put_all`` again, not a function of both: a call for each key would take longer than the
        # search.
        found: list[int] = []
        add = found.append
        for key in keys:
            if key is None:
                add(KEYLESS)
                continue
            hashed = copy_hash()
            hashed.update(key)
            high, low = unpack(hashed.digest())
            slot = high % slots
            at = slot * 3
            while (offset := words[at + 2]) and not (words[at] == high and words[at + 1] == low):
                slot = (slot + low % steps + 1) % slots
                at = slot * 3
            add(offset - 1)
        return found


def largest_prime_up_to(number: int) -> int:
    """Return the largest prime that is at most ``number``, which is at least 2.

    With a prime number of slots every step of the double hashing visits all of them.
    """
    candidate = number
    while not _is_prime(candidate):
        candidate -= 1
    return candidate


def _is_prime(number: int) -> bool:
    if number < 4:
        return number >= 2
    return number % 2 == 1 and all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))
