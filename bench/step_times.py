"""The broker with a record of the steps that held its event loop: what one task does between two waits.

A step's CPU time is the loop's own thread's, so neither other programs nor worker threads are in it. The wall time of a
step has both. Timing a step costs a microsecond, which is why the broker itself does it on demand only.

    python -m bench.step_times steps.txt start --port 0        # trio-broker; a line for each step of a millisecond
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import TextIO

import attrs
import trio

SLOW_STEP_NS = 1_000_000
"""Shorter steps are not written: a step of a small request takes a tenth of it."""


@attrs.frozen
class TimedStep:
    """A slow step: when it began by ``perf_counter_ns``, which all processes share, and what it took."""

    began_ns: int
    cpu_ns: int
    wall_ns: int
    task: str


class StepTimes(trio.abc.Instrument):
    """Writes the slow steps of the loop that it is installed in."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.began_ns = perf_counter_ns()
        self.began_cpu_ns = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.began_ns = perf_counter_ns()
        self.began_cpu_ns = thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        cpu_ns = thread_time_ns() - self.began_cpu_ns
        if cpu_ns > SLOW_STEP_NS:
            wall_ns = perf_counter_ns() - self.began_ns
            print(self.began_ns, cpu_ns, wall_ns, task.name.replace(" ", "_"), file=self.file, flush=True)


def slow_steps(path: Path) -> list[TimedStep]:
    """The steps in the file of a broker that runs; a line that it is just writing is left out."""
    lines = path.read_text().splitlines(keepends=True)
    fields = [line.split() for line in lines if line.endswith("\n")]
    return [TimedStep(int(began), int(cpu), int(wall), task) for began, cpu, wall, task in fields]


def main(arguments: list[str]) -> None:
    """Run the ``trio-broker`` command with its steps timed."""
    from trio_broker.cli import main as broker_command

    with Path(arguments[0]).open("w") as file:
        trio.run = partial(trio.run, instruments=[StepTimes(file)])  # type: ignore[assignment]
        broker_command(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
