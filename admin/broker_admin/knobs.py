"""The settings that have a slider on the page of tuning, and what each does and does not do.

The texts are part of the product: in a Python process with one event loop, more threads are not more throughput, and
the page must not suggest that they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from broker_admin.config_table import is_on_trial
from trio_broker.config.entries import AllowedRange, ConfigEntry, ConfigSource


@attrs.frozen
class Knob:
    """A config key with a slider that goes to ``reach`` at least. ``reading`` names the chart that shows its effect."""

    key: str
    title: str
    reading: str
    reach: int
    does: str
    does_not: str


POOL_REACH = 16
"""Twice the default of num.io.threads. Sizes beyond it can be typed; a slider over all of them could not be aimed."""

QUEUE_REACH = 2000
"""Four times the default of queued.max.requests."""

CLEANER_REACH = 8
"""Compaction is Python for the most part, which more threads than that only take from the clients."""

KNOBS = (
    Knob(
        key="num.network.threads",
        title="Network threads",
        reading="network",
        reach=POOL_REACH,
        does=(
            "Each owns one worker thread for socket work that blocks or leaves the interpreter lock: sending log pages "
            "that are not in memory, TLS records. More of them help consumers that read old data."
        ),
        does_not=(
            "Small plaintext requests on cached data do not get faster: they are served by the one event loop, which "
            "no number of threads divides."
        ),
    ),
    Knob(
        key="num.io.threads",
        title="I/O threads",
        reading="io",
        reach=POOL_REACH,
        does=(
            "The number of requests handled at once, and of worker threads for their disk work, the flusher's syncs "
            "included. More of them raise throughput wherever the disk is waited for."
        ),
        does_not=(
            "Handling itself stays Python on one event loop. When that is busy, more slots only move the queue. "
            "Waiting polls and acks=all give their slot back and need none."
        ),
    ),
    Knob(
        key="queued.max.requests",
        title="Request queue",
        reading="queue",
        reach=QUEUE_REACH,
        does=(
            "How many requests may wait for a slot before connections are no longer read and clients are slowed by "
            "TCP. More smooth out bursts; fewer keep latency and memory low."
        ),
        does_not="It adds no throughput: a queue that is always full says that something behind it is too slow.",
    ),
    Knob(
        key="log.cleaner.threads",
        title="Compaction threads",
        reading="cleaner",
        reach=CLEANER_REACH,
        does="How many partitions are compacted at a time. More of them catch up sooner with many compacted topics.",
        does_not=(
            "They share the disk and the interpreter with the clients' requests, and one partition is compacted by one "
            "thread."
        ),
    ),
)


@attrs.frozen
class KnobState:
    """A knob as it stands now. ``allowed`` is None where any number from 1 on may be set, whatever stands now.

    It can be reset if this broker has a stored value of its own, and nothing is tried in its place."""

    knob: Knob
    value: int
    default: str | None
    can_reset: bool
    allowed: AllowedRange | None

    @property
    def slider(self) -> AllowedRange:
        """Where the slider goes: as far as is likely to be wanted, within what is allowed. As in ``knobs.js``."""
        wanted = AllowedRange(1, max(self.knob.reach, 4 * self.value))
        if self.allowed is None:
            return wanted
        return AllowedRange(self.allowed.minimum, min(self.allowed.maximum, wanted.maximum))


def knob_states(entries: Sequence[ConfigEntry]) -> list[KnobState]:
    """The knobs this broker has, with their values and what they may be changed to now."""
    by_name = {entry.name: entry for entry in entries}
    return [knob_state(knob, by_name[knob.key]) for knob in KNOBS if knob.key in by_name]


def knob_state(knob: Knob, entry: ConfigEntry) -> KnobState:
    return KnobState(
        knob=knob,
        value=int(entry.value or 0),
        default=entry.default,
        can_reset=entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG and not is_on_trial(entry),
        allowed=entry.allowed_range,
    )
