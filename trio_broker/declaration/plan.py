"""How a cluster differs from a declaration: what to create, to add and to set, or why it cannot be carried out.

Nothing here changes anything: the declaration and the state of its topics go in, and a plan or the reasons against one
come out. Whether names and values are valid is decided by who creates topics and sets settings, before the first
change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final, Protocol

import attrs

from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredTopic

_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII)

GROWTH_NOTE: Final = "records of a key may go to another partition than before"


class Plan(Protocol):
    """What is to be done about one thing that is declared."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        ...

    def lines(self) -> Iterator[str]:
        """What is to be done, line by line."""
        ...


@attrs.frozen
class CurrentSetting:
    """The effective value of a setting of a topic; ``is_own`` if the topic has set it and does not inherit it."""

    value: str | None
    is_own: bool


@attrs.frozen
class CurrentTopic:
    """A topic as it is."""

    partitions: int
    replication_factor: int
    settings: Mapping[str, CurrentSetting]


@attrs.frozen
class PlannedSetting:
    """A setting that gets the value ``new``; ``old`` is None where nothing is known of it."""

    name: str
    old: CurrentSetting | None
    new: str

    @property
    def old_text(self) -> str:
        if self.old is None or self.old.value is None:
            return "not set"
        return self.old.value if self.old.is_own else f"{self.old.value} (inherited)"


@attrs.frozen
class TopicPlan:
    """What is to be done about one topic: all of it if ``current`` is None, which is a topic to be created."""

    declared: DeclaredTopic
    current: CurrentTopic | None
    changes: tuple[PlannedSetting, ...] = ()

    @property
    def is_new(self) -> bool:
        return self.current is None

    @property
    def new_partitions(self) -> int | None:
        """The number of partitions to which an existing topic grows, None if it does not."""
        wanted = self.declared.partitions
        return wanted if self.current is not None and wanted not in (None, self.current.partitions) else None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        return not self.is_new and self.new_partitions is None and not self.changes

    def lines(self) -> Iterator[str]:
        """What is to be done, line by line."""
        topic, current = self.declared, self.current
        if current is None:
            facts = [f"{topic.partitions} partition{'s' * (topic.partitions > 1)}"] if topic.partitions else []
            facts += [f"replication factor {topic.replication_factor}"] if topic.replication_factor else []
            facts += [f"{name}={value}" for name, value in topic.settings.items()]
            yield f"+ {topic.name}{': ' if facts else ''}{', '.join(facts)}"
            return
        if self.new_partitions is not None:
            yield f"~ {topic.name}: partitions {current.partitions} → {self.new_partitions} ({GROWTH_NOTE})"
        for change in self.changes:
            yield f"~ {topic.name}: {change.name} {change.old_text} → {change.new}"
        if self.is_done:
            yield f"= {topic.name}"


def plan_declaration(
    declaration: Declaration, current: Mapping[str, CurrentTopic], known_settings: Collection[str]
) -> tuple[TopicPlan, ...]:
    """Return what is to be done about each declared topic, in order; ``current`` has those that exist.

    ``known_settings`` are those that topics may have.

    Raises:
        DeclarationError: it contradicts a topic that exists, or a setting is unknown.
    """
    reasons = [
        f"{topic}: {reason}"
        for topic in declaration.topics
        for reason in _reasons_against(topic, current.get(topic.name), known_settings)
    ]
    if reasons:
        raise DeclarationError(reasons)
    return tuple(_planned(topic, current.get(topic.name)) for topic in declaration.topics)


def _reasons_against(topic: DeclaredTopic, current: CurrentTopic | None, known: Collection[str]) -> Iterator[str]:
    if current is not None:
        if topic.partitions is not None and topic.partitions < current.partitions:
            yield f"it has {current.partitions} partitions, which cannot become {topic.partitions}"
        if topic.replication_factor not in (None, current.replication_factor):
            yield f"its replication factor is {current.replication_factor} and cannot become {topic.replication_factor}"
    for name in topic.settings:
        if name not in known:
            yield f"topics have no setting {name}{did_you_mean(name, known)}"


def _planned(topic: DeclaredTopic, current: CurrentTopic | None) -> TopicPlan:
    if current is None:
        return TopicPlan(topic, None)
    changes = (PlannedSetting(name, current.settings.get(name), value) for name, value in topic.settings.items())
    return TopicPlan(topic, current, tuple(change for change in changes if not _is_set(change)))


def _is_set(change: PlannedSetting) -> bool:
    """Whether the topic has the value already. One that it inherits is not its own, and may change under it."""
    old = change.old
    return old is not None and old.is_own and old.value is not None and _meaning(old.value) == _meaning(change.new)


def _meaning(text: str) -> object:
    """What two texts have in common that stand for the same value: a number, a word, or items in any order."""
    stripped = text.strip()
    return Decimal(stripped) if _NUMBER.fullmatch(stripped) else sorted(map(str.strip, stripped.lower().split(",")))


def difference_lines(plans: Iterable[Plan]) -> list[str]:
    """Return what is to be done in lines: ``+`` for what is created, ``~`` for a change, ``=`` for nothing."""
    return [line for plan in plans for line in plan.lines()]
