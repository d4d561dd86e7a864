"""A declaration: topics that are to exist, with settings that are to be set.

What is not declared stays as it is: other topics, and other settings of the same topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs


class DeclarationError(Exception):
    """A declaration is malformed, or contradicts what exists. Each of ``reasons`` is one line."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


@attrs.frozen(kw_only=True)
class DeclaredTopic:
    """One topic. None for partitions or replication factor is the broker's default for a new topic, and anything for
    one that exists. ``origin`` is the file or the option."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict)
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}: topic {self.name!r}"


@attrs.frozen
class Declaration:
    """All that is declared, each topic once."""

    topics: tuple[DeclaredTopic, ...] = ()

    @property
    def origin(self) -> str:
        """The file and the option, as far as they declare anything."""
        return ", ".join(dict.fromkeys(topic.origin for topic in self.topics))


def united(topics: Iterable[DeclaredTopic]) -> Declaration:
    """Return the declaration of these topics.

    Raises:
        DeclarationError: one is declared twice.
    """
    declaration = Declaration(tuple(topics))
    counts = Counter(topic.name for topic in declaration.topics)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DeclarationError(f"{declaration.origin}: topic {name!r} is declared twice" for name in twice)
    return declaration
