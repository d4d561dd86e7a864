"""The broker with a record of the steps that held its event loop: what one task does between two waits.

A step's CPU time is the loop's own thread's, so neither other programs nor worker threads are in it; what the garbage
collector took of it stands beside. The wall time of a step has both. Timing a step costs a microsecond, which is why
the broker itself does it on demand only.

    python -m bench.step_times steps.txt start --port 0        # trio-broker; a line for each step of a millisecond
"""

from __future__ import annotations

import gc
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
    collecting_ns: int
    task: str


class StepTimes(trio.abc.Instrument):
    """Writes the slow steps of the loop that it is installed in."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.began_ns = perf_counter_ns()
        self.began_cpu_ns = 0
        self.collecting_ns = 0
        self._collecting_since_ns = 0

    def collector_called(self, phase: str, information: dict[str, int]) -> None:
        """To be among ``gc.callbacks``. A collection in another thread is counted for the step that it delays."""
        if phase == "start":
            self._collecting_since_ns = thread_time_ns()
        else:
            self.collecting_ns += thread_time_ns() - self._collecting_since_ns

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.began_ns = perf_counter_ns()
        self.began_cpu_ns = thread_time_ns()
        self.collecting_ns = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        cpu_ns = thread_time_ns() - self.began_cpu_ns
        if cpu_ns > SLOW_STEP_NS:
            wall_ns = perf_counter_ns() - self.began_ns
            name = task.name.replace(" ", "_")
            print(self.began_ns, cpu_ns, wall_ns, self.collecting_ns, name, file=self.file, flush=True)


def slow_steps(path: Path, position: int = 0) -> tuple[list[TimedStep], int]:
    """The steps in the file of a broker that runs, from ``position`` on, and the position after them.

    A line that is just being written is left for the next time.
    """
    with path.open("rb") as file:
        file.seek(position)
        lines = file.read()
    lines = lines[: lines.rfind(b"\n") + 1]
    fields = [line.split() for line in lines.decode().splitlines()]
    return [timed_step(*each) for each in fields], position + len(lines)


def timed_step(began: str, cpu: str, wall: str, collecting: str, task: str) -> TimedStep:
    return TimedStep(int(began), int(cpu), int(wall), int(collecting), task)


def main(arguments: list[str]) -> None:
    """Run the ``trio-broker`` command with its steps timed."""
    from trio_broker.cli import main as broker_command

    with Path(arguments[0]).open("w") as file:
        times = StepTimes(file)
        gc.callbacks.append(times.collector_called)
        trio.run = partial(trio.run, instruments=[times])  # type: ignore[assignment]
        broker_command(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
