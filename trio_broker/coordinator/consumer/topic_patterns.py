"""Regular expressions that members of consumer groups subscribe to, matched here against the names of all topics.

The syntax is RE2's, as in Kafka, by the library google-re2: matching takes time linear in the name, whatever the
expression is. A pattern has to match the whole name.

Linear is not the same as quick: a short expression with large repetitions compiles to thousands of instructions, each
of which may be tried for each letter, and a group may have many patterns to match with all topics. So a resolution is
done in steps with a bound on the instructions tried; the event loop runs between two of them.

Source: Kafka's TopicRegexResolver; the RE2 syntax page; KIP-848.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

MAX_PATTERN_LENGTH = 10_000
"""Characters of one pattern: enough for an alternation of a hundred long names. Kafka has no limit."""

MAX_PATTERN_MEMORY_BYTES = 1 << 20
"""What one compiled pattern may take; RE2 refuses those that need more, and matches slower rather than grow."""

COMPILED_PATTERNS = 64
"""Patterns kept compiled, for all groups together: with the limit above, 64 MiB at the worst."""

MAX_UNICODE_CLASSES = 100
"""``\\pL`` and the like in one pattern: each is three characters to send and 80 microseconds to read."""

MAX_PROGRAM_SIZE = 20_000
"""Instructions of a compiled pattern; the alternation of a hundred long names takes 15,000. One match of a long name
takes 40 milliseconds at the worst then."""

COST_PER_STEP = 1_000_000
"""The cost of one step: about a thousand names with common patterns, one with the worst. The unit is an instruction at
a letter, which takes 15 nanoseconds at the worst and mostly far less."""

COST_PER_MATCH = 1_000
"""What a match costs beside the instructions, in the same unit."""

COST_PER_PATTERN = 200_000
"""What compiling a pattern costs, in the same unit: 3 milliseconds, for a long one."""

NO_METADATA_VERSION = 0
"""Written where Kafka writes the offset of the metadata: a Kafka that reads the record resolves anew."""


class InvalidPattern(Exception):
    """The text cannot be used as a regular expression; the message says why."""


@attrs.frozen(weakref_slot=False)
class ResolvedPattern:
    """The topics that a pattern was resolved to at ``timestamp_ms``."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def check_pattern(pattern: str) -> None:
    """Compile ``pattern``.

    Raises:
        InvalidPattern: it is too long, too large or malformed.
    """
    compiled_pattern(pattern)


@functools.lru_cache(maxsize=COMPILED_PATTERNS)
def compiled_pattern(pattern: str) -> Any:
    """The compiled form of ``pattern``; errors as ``check_pattern``."""
    # Imported late: a broker without such subscriptions needs neither the time nor the memory.
    import re2

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidPattern(f"it has {len(pattern)} characters, at most {MAX_PATTERN_LENGTH} are allowed")
    if (classes := pattern.count(r"\p") + pattern.count(r"\P")) > MAX_UNICODE_CLASSES:
        raise InvalidPattern(f"it has {classes} Unicode classes, at most {MAX_UNICODE_CLASSES} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(_text(error)) from None
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise InvalidPattern(f"it takes {compiled.programsize} instructions, at most {MAX_PROGRAM_SIZE} are allowed")
    return compiled


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


class PatternResolution:
    """Finds the topics of each pattern, one step after another; with ``may_see`` those that it is true of."""

    def __init__(
        self,
        patterns: Iterable[str],
        topic_names: Sequence[str],
        started_at_ms: int,
        may_see: Callable[[str], bool] | None = None,
    ) -> None:
        self._may_see = may_see
        self._started_at_ms = started_at_ms
        self._topics: dict[str, set[str]] = {pattern: set() for pattern in patterns}
        self._work = self._matches(topic_names)

    def _matches(self, topic_names: Sequence[str]) -> Iterator[int]:
        """Match one name after the other; yields the cost of each at the worst."""
        for pattern, topics in self._topics.items():
            try:
                matcher = compiled_pattern(pattern)
            except InvalidPattern:
                # Members' patterns are checked; this one was written by a broker with other limits. It matches nothing.
                continue
            yield COST_PER_PATTERN
            size: int = matcher.programsize
            for name in topic_names:
                if matcher.fullmatch(name) is not None and (self._may_see is None or self._may_see(name)):
                    topics.add(name)
                yield COST_PER_MATCH + size * len(name)

    def step(self, cost: int = COST_PER_STEP) -> bool:
        """Match more names, up to ``cost`` and at least one; return whether that was all."""
        return all(spent < cost for spent in itertools.accumulate(self._work))

    def result(self) -> dict[str, ResolvedPattern]:
        """The topics of each pattern, after the last step."""
        return {
            pattern: ResolvedPattern(frozenset(topics), NO_METADATA_VERSION, self._started_at_ms)
            for pattern, topics in self._topics.items()
        }
