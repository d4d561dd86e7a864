"""The number of distinct keys of a partition, counted in parts that are joined later.

A set keeps a hash of 64 bits of each key, in a sorted array; joining two sets merges their arrays. Two of a million
keys share a hash in one partition out of 37 million, so the count is regarded as exact.

Beyond ``KEPT_HASHES`` only the smallest hashes are kept (a KMV sketch). Hashes are spread evenly, so the largest one
kept gives an estimate of the number of all keys, with a standard error of one in the square root of the number kept: a
tenth of a percent. Such sets join as well, in any order.

Source: Bar-Yossef et al., "Counting distinct elements in a data stream" (2002); the mixing steps are splitmix64's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

UInt64Array = npt.NDArray[np.uint64]

KEPT_HASHES: Final = 1 << 20
"""8 MiB for each slice of a partition: what a driver can take from hundreds of tasks."""

HASHES: Final = 2.0**64
"""The number of possible hashes."""

WORD_BYTES: Final = 8


@attrs.frozen
class KeySet:
    """Hashes of distinct keys, sorted; with ``is_cut`` larger ones were dropped."""

    hashes: UInt64Array = attrs.field(
        factory=lambda: np.empty(0, np.uint64), eq=attrs.cmp_using(eq=np.array_equal), repr=False
    )
    is_cut: bool = False

    def union(self, *others: KeySet, kept: int = KEPT_HASHES) -> KeySet:
        """Return the keys that are in any of the sets; the same for any order and grouping."""
        hashes = np.unique(np.concatenate([each.hashes for each in (self, *others)]))
        is_cut = len(hashes) > kept or any(each.is_cut for each in (self, *others))
        return KeySet(hashes[:kept], is_cut)

    @property
    def count(self) -> int:
        """How many keys there are; an estimate where ``is_cut``."""
        if not self.is_cut:
            return len(self.hashes)
        return round((len(self.hashes) - 1) / ((float(self.hashes[-1]) + 1) / HASHES))


@attrs.define
class KeyCollector:
    """Collects the keys of many arrays.

    Arrays are merged only when as many hashes wait as the set has, or a sixteenth of its maximum: merging each array on
    its own would copy the whole set each time.
    """

    kept: int = KEPT_HASHES
    _keys: KeySet = attrs.field(factory=KeySet)
    _waiting: list[KeySet] = attrs.field(factory=list)
    _waiting_count: int = 0

    def add(self, keys: pa.BinaryArray) -> None:
        """Add the keys of an array that are not null."""
        hashes = KeySet(np.unique(hashes_of(keys)))
        self._waiting.append(hashes)
        self._waiting_count += len(hashes.hashes)
        if self._waiting_count > max(len(self._keys.hashes), self.kept // 16):
            self._merge()

    def result(self) -> KeySet:
        """Return the set of all keys added."""
        self._merge()
        return self._keys

    def _merge(self) -> None:
        self._keys = self._keys.union(*self._waiting, kept=self.kept)
        self._waiting.clear()
        self._waiting_count = 0


def hashes_of(keys: pa.BinaryArray) -> UInt64Array:
    """Return the hashes of the keys that are not null, in no particular order; they do not depend on the process."""
    # Keys of one length are hashed together, as columns of words: numpy has no loop over keys of different lengths.
    offsets, data = _buffers(keys.drop_null())
    starts, lengths = offsets[:-1], np.diff(offsets)
    every_length = np.unique(lengths).tolist()
    by_length = [_hashes_of_length(data, starts[lengths == length], length) for length in every_length]
    return np.concatenate([np.empty(0, np.uint64), *by_length])


def _buffers(keys: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the starts of the keys, followed by the last one's end, and the bytes of all."""
    _, offsets, data = keys.buffers()
    if not len(keys):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    used = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return used.astype(np.int64), np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _hashes_of_length(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int) -> UInt64Array:
    hashes = np.full(len(starts), length, np.uint64)
    for words in _words(data, starts, length):
        hashes = _mix(hashes ^ words)
    return _mix(hashes)


def _words(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int) -> Iterator[UInt64Array]:
    """Yield the first eight bytes of all keys, then the next eight; the last word is filled with zeros."""
    for begin in range(0, length, WORD_BYTES):
        width = min(WORD_BYTES, length - begin)
        word = np.zeros((len(starts), WORD_BYTES), np.uint8)
        word[:, :width] = data[(starts + begin)[:, None] + np.arange(width)]
        yield word.view(np.uint64)[:, 0]


def _mix(values: UInt64Array) -> UInt64Array:
    """Return the values with their bits mixed; different values stay different."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(UInt64Array, values ^ (values >> np.uint64(31)))
