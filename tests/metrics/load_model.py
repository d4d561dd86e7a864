"""Clients and a disk as numbers: what a second of a broker reads like while requests wait for its sync threads.

Requests wait in one line for one of ``threads`` syncs, whose times scatter as those of a slow disk do. Of the two kinds
of clients one sends on its own, in bursts that last for seconds to minutes; the other sends the next request when the
last was answered, after a pause. All is drawn from a seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any

import attrs

SYNC_SECONDS = 0.02
"""The median of a sync."""

CALM_RATE, BURST_RATE = 20.0, 45.0
"""Requests a second of clients that send on their own."""

CALM_SECONDS, BURST_SECONDS = 40.0, 15.0
"""How long each of them lasts, on the average."""

SPELL_SECONDS, MAX_SLOWNESS = 30.0, 3.0
"""How long the disk of a machine with other work is as slow as that, on the average."""


@attrs.define
class LoadModel:
    """``seconds`` yields the readings of one second after another; ``threads`` may be changed in between."""

    random: random.Random
    threads: int = 1
    closed_loop_clients: int = 0
    """0 for clients that send on their own."""
    think_seconds: float = 0.0
    sync_scale: float = 1.0
    has_slow_spells: bool = False
    """Whether the disk is slower for half a minute now and then, as one that others use, too."""
    _free_at: list[float] = attrs.field(init=False, factory=lambda: [0.0])
    _arrivals: list[float] = attrs.field(init=False, factory=list)
    _is_burst: bool = False
    _changes_at: float = 0.0
    _spell: float = 1.0
    _spell_ends_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._arrivals = [self.random.random() for _ in range(max(1, self.closed_loop_clients))]
        heapq.heapify(self._arrivals)

    def resize(self, threads: int, now: float) -> None:
        free = sorted(self._free_at)[:threads]
        self._free_at = free + [now] * (threads - len(free))
        heapq.heapify(self._free_at)
        self.threads = threads

    def seconds(self) -> Iterator[dict[str, Any]]:
        self.resize(self.threads, 0.0)
        finished: list[tuple[float, float, float]] = []
        now = 0.0
        while True:
            while self._arrivals[0] < now + 1:
                finished.append(self._serve(heapq.heappop(self._arrivals)))
            over = [each for each in finished if each[0] < now + 1]
            finished = [each for each in finished if each[0] >= now + 1]
            yield self._readings(sorted(1000 * latency for _, latency, _ in over), sum(sync for *_, sync in over))
            now += 1

    def _serve(self, arrival: float) -> tuple[float, float, float]:
        """When a request is answered, after how long, and the time of its sync."""
        sync = self._slowness(arrival) * self.sync_scale * SYNC_SECONDS * self.random.lognormvariate(0, 0.6)
        answered = max(arrival, heapq.heappop(self._free_at)) + sync
        heapq.heappush(self._free_at, answered)
        if self.closed_loop_clients:
            pause = self.random.expovariate(1 / self.think_seconds) if self.think_seconds else 0.0
            heapq.heappush(self._arrivals, answered + pause)
        else:
            heapq.heappush(self._arrivals, arrival + self.random.expovariate(self._rate(arrival)))
        return answered, answered - arrival, sync

    def _slowness(self, now: float) -> float:
        if self.has_slow_spells and now >= self._spell_ends_at:
            self._spell = self.random.uniform(1.0, MAX_SLOWNESS)
            self._spell_ends_at = now + self.random.expovariate(1 / SPELL_SECONDS)
        return self._spell

    def _rate(self, now: float) -> float:
        if now >= self._changes_at:
            self._is_burst = not self._is_burst
            self._changes_at = now + self.random.expovariate(1 / (BURST_SECONDS if self._is_burst else CALM_SECONDS))
        return BURST_RATE if self._is_burst else CALM_RATE

    def _readings(self, latencies_ms: list[float], sync_seconds: float) -> dict[str, Any]:
        count = len(latencies_ms)
        return {
            "requests_per_second": float(count),
            "records_in_per_second": float(count),
            "bytes_in_per_second": 1000.0 * count,
            "connections": self.closed_loop_clients or 6,
            "produce_p50_ms": latencies_ms[count // 2] if count else 0.0,
            "produce_p99_ms": latencies_ms[int(0.99 * count)] if count else 0.0,
            "sync_busy_ratio": min(1.0, sync_seconds / self.threads),
            "io_idle_ratio": 1.0,
        }
