"""One file of a data directory, damaged: what a disk, a copy or a hand may do to it, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import PurePath

import attrs

Files = Mapping[PurePath, bytes]


@attrs.frozen
class FileDamage:
    """``content`` is what the file at ``path`` holds now, None where it is gone. ``what`` tells it."""

    path: PurePath
    what: str
    content: bytes | None

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"

    def applied(self, files: Files) -> dict[PurePath, bytes]:
        """Return ``files`` with this one damaged."""
        changed = {path: content for path, content in files.items() if path != self.path}
        if self.content is not None:
            changed[self.path] = self.content
        return changed


def kind_of(path: PurePath) -> str:
    """What kind of file this is: its suffix, or its name where it has none."""
    return path.suffix or path.name


def _flip(chance: random.Random, content: bytes) -> tuple[str, bytes]:
    position, bit = chance.randrange(len(content)), chance.randrange(8)
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    return f"bit {bit} of byte {position} flipped", bytes(changed)


def _flip_in_header(chance: random.Random, content: bytes) -> tuple[str, bytes]:
    """In the header of a batch, most of which is before the checksum."""
    starts, at = [], 0
    while at + 61 <= len(content):
        starts.append(at)
        at += 12 + max(49, int.from_bytes(content[at + 8 : at + 12], "big"))
    if not starts:
        return _flip(chance, content)
    position, bit = chance.choice((*starts, starts[-1], starts[-1])) + chance.randrange(61), chance.randrange(8)
    changed = bytearray(content)
    changed[min(position, len(content) - 1)] ^= 1 << bit
    return f"bit {bit} of byte {position} flipped, in a header", bytes(changed)


def _zeros(chance: random.Random, content: bytes) -> tuple[str, bytes]:
    start = chance.randrange(len(content))
    size = min(chance.choice((1, 4, 16, 100, 512)), len(content) - start)
    return f"{size} zeros at {start}", content[:start] + bytes(size) + content[start + size :]


def _cut(chance: random.Random, content: bytes) -> tuple[str, bytes]:
    size = chance.choice((0, chance.randrange(len(content)), len(content) - 1))
    return f"cut to {size} bytes", content[:size]


def _longer(chance: random.Random, content: bytes) -> tuple[str, bytes]:
    more = chance.choice((bytes(12), chance.randbytes(20), content[:40], content))
    return f"{len(more)} bytes behind its end", content + more


def _digit(chance: random.Random, content: bytes) -> tuple[str, bytes]:
    """Another digit in a text."""
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return _flip(chance, content)
    at, digit = chance.choice(places), chance.choice(b"0123456789")
    changed = bytearray(content)
    changed[at] = digit
    return f"digit {digit - 48} at {at}", bytes(changed)


CHANGES: dict[Callable[[random.Random, bytes], tuple[str, bytes]], int] = {
    _flip: 6,
    _flip_in_header: 4,
    _zeros: 2,
    _cut: 2,
    _longer: 1,
    _digit: 3,
}


def drawn(chance: random.Random, files: Files) -> FileDamage:
    """Damage one of ``files``; each kind of file comes equally often, the log twice."""
    kinds: dict[str, list[PurePath]] = {}
    for path in sorted(files):
        kinds.setdefault(kind_of(path), []).append(path)
    kind = chance.choice((*sorted(kinds), ".log"))
    path = chance.choice(kinds[kind])
    content = files[path]
    way = chance.random()
    if way < 0.05:
        return FileDamage(path, "gone", None)
    others = [each for each in kinds[kind] if each != path]
    if way < 0.12 and others:
        other = chance.choice(others)
        return FileDamage(path, f"replaced by {other}", files[other])
    if not content:
        return FileDamage(path, "filled", chance.randbytes(20))
    (change,) = chance.choices(tuple(CHANGES), weights=tuple(CHANGES.values()))
    what, changed = change(chance, content)
    return FileDamage(path, what, changed)
