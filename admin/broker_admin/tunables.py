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
class Tunable:
    """A config key whose slider goes to ``slider_maximum`` at least; ``reading`` names the chart with its effect."""

    key: str
    title: str
    reading: str
    slider_maximum: int
    does: str
    does_not: str


POOL_SLIDER_MAXIMUM = 16
"""Twice the default of num.io.threads. Sizes beyond it can be typed; a slider over all of them could not be aimed."""

QUEUE_SLIDER_MAXIMUM = 2000
"""Four times the default of queued.max.requests."""

CLEANER_SLIDER_MAXIMUM = 8
"""Compaction is Python for the most part, which more threads than that only take from the clients."""

TUNABLES = (
    Tunable(
        key="num.network.threads",
        title="Network threads",
        reading="network",
        slider_maximum=POOL_SLIDER_MAXIMUM,
        does=(
            "Each owns one worker thread for socket work that blocks or leaves the interpreter lock: sending log pages "
            "that are not in memory, TLS records. More of them help consumers that read old data."
        ),
        does_not=(
            "Small plaintext requests on cached data do not get faster: they are served by the one event loop, which "
            "no number of threads divides."
        ),
    ),
    Tunable(
        key="num.io.threads",
        title="I/O threads",
        reading="io",
        slider_maximum=POOL_SLIDER_MAXIMUM,
        does=(
            "The number of requests handled at once, and of worker threads for their disk work, the flusher's syncs "
            "included. More of them raise throughput wherever the disk is waited for."
        ),
        does_not=(
            "Handling itself stays Python on one event loop. When that is busy, more slots only move the queue. "
            "Waiting polls and acks=all give their slot back and need none."
        ),
    ),
    Tunable(
        key="queued.max.requests",
        title="Request queue",
        reading="queue",
        slider_maximum=QUEUE_SLIDER_MAXIMUM,
        does=(
            "How many requests may wait for a slot before connections are no longer read and clients are slowed by "
            "TCP. More smooth out bursts; fewer keep latency and memory low."
        ),
        does_not="It adds no throughput: a queue that is always full says that something behind it is too slow.",
    ),
    Tunable(
        key="log.cleaner.threads",
        title="Compaction threads",
        reading="cleaner",
        slider_maximum=CLEANER_SLIDER_MAXIMUM,
        does="How many partitions are compacted at a time. More of them catch up sooner with many compacted topics.",
        does_not=(
            "They share the disk and the interpreter with the clients' requests, and one partition is compacted by one "
            "thread."
        ),
    ),
)


@attrs.frozen
class TunableState:
    """A tunable as it stands now. ``allowed`` is None where any number from 1 on may be set, whatever stands now.

    It can be reset if this broker has a stored value of its own, and nothing is tried in its place."""

    tunable: Tunable
    value: int
    default: str | None
    can_reset: bool
    allowed: AllowedRange | None

    @property
    def slider(self) -> AllowedRange:
        """Where the slider goes: as far as is likely to be wanted, within what is allowed. As in ``tunables.js``."""
        wanted = AllowedRange(1, max(self.tunable.slider_maximum, 4 * self.value))
        if self.allowed is None:
            return wanted
        return AllowedRange(self.allowed.minimum, min(self.allowed.maximum, wanted.maximum))


def tunable_states(entries: Sequence[ConfigEntry]) -> list[TunableState]:
    """The tunables this broker has, with their values and what they may be changed to now."""
    by_name = {entry.name: entry for entry in entries}
    return [tunable_state(tunable, by_name[tunable.key]) for tunable in TUNABLES if tunable.key in by_name]


def tunable_state(tunable: Tunable, entry: ConfigEntry) -> TunableState:
    return TunableState(
        tunable=tunable,
        value=int(entry.value or 0),
        default=entry.default,
        can_reset=entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG and not is_on_trial(entry),
        allowed=entry.allowed_range,
    )
