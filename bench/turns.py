"""Small loads in turns: two servers are up at the same time, and each load takes its turn with one, then the other.

A turn is short, so that both see the same machine, and long beside a collection of garbage. A server that compiles
while it runs, as Kafka's JVM does, is warmed up first with the very load that is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self

import attrs

from bench.outcome import Options
from bench.small import Runs

TURN_SECONDS = 1.5

WARM_TURN_SECONDS = 0.75

WARM_TURNS = 8
"""At most, for one load: a machine that others use may look as if it became faster for ever."""

RISING = 1.05
"""A turn that is less than this faster than the best before it shows no rise."""

STEADY_TURNS = 2
"""Without a rise, in a row, end the warm-up: between two compilers the rate stands still for a moment."""

FIRST_RATE = 2_000.0
"""Requests a second that the first turn expects; each one after it goes by the one before."""


def warm_up(turn: Callable[[], float]) -> int:
    """Call ``turn``, which returns a rate, until the rate has stopped rising; return how often that was."""
    best = 0.0
    steady = 0
    for count in range(1, WARM_TURNS + 1):
        rate = turn()
        steady = 0 if rate > best * RISING else steady + 1
        best = max(best, rate)
        if steady == STEADY_TURNS:
            return count
    return WARM_TURNS


@attrs.define(kw_only=True)
class PacedTurns:
    """A load on one server, of which each turn is as large as the rate of the one before says."""

    runs: Runs = attrs.field(factory=Runs)
    rate: float = FIRST_RATE

    def warm_up(self, scale: float) -> None:
        """Run the load until its rate has stopped rising; no figure of it is kept."""
        warm_up(lambda: self._run(self.runs.without_figures(), WARM_TURN_SECONDS * scale))

    def warm_for(self, seconds: float) -> None:
        """Run the load that long; no figure of it is kept."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._run(self.runs.without_figures(), WARM_TURN_SECONDS)

    def without_figures(self) -> Self:
        """The same load, of which nothing is measured yet."""
        return attrs.evolve(self, runs=self.runs.without_figures())

    def take(self, scale: float) -> None:
        """Measure one turn."""
        self._run(self.runs, TURN_SECONDS * scale)

    def _run(self, runs: Runs, seconds: float) -> float:
        """Take what should last ``seconds``, and keep the figures in ``runs``; return the new ``rate``."""
        raise NotImplementedError


@attrs.define
class Turns(PacedTurns):
    """One load of small requests on one server: a frame per connection, every answer of ``response_bytes`` bytes."""

    pid: int
    port: int
    frames: list[bytearray]
    response_bytes: int

    def _run(self, runs: Runs, seconds: float) -> float:
        """Send as many requests as should take ``seconds``; return how many a second it were."""
        requests = max(len(self.frames), round(self.rate * seconds))
        runs.take(self.pid, self.port, self.frames, requests, self.response_bytes)
        self.rate = runs.figures[-1].requests_per_second
        return self.rate


class Side(Protocol):
    """One load on one server."""

    def warm_up(self, scale: float) -> None: ...

    def take(self, scale: float) -> None: ...


def take_in_turns(loads: Iterable[tuple[Side, ...]], options: Options) -> None:
    """Warm up all sides of every load, then measure them in turns."""
    sides = [side for load in loads for side in load]
    for side in sides:
        side.warm_up(options.scale)
    measure_in_turns(sides, options)


def measure_in_turns(sides: Sequence[Side], options: Options) -> None:
    """Measure all sides in turns, again and again; they are warm."""
    for _ in range(options.repeats):
        for side in sides:
            side.take(options.scale)
