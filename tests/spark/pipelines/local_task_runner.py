"""A job without Spark's tasks."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trio_broker.spark.pipelines.task_runner import Result, T, TaskFunction, TasksDone


@attrs.frozen
class LocalTaskRunner:
    """Runs one task after the other in this process."""

    def parallelism(self) -> int:
        return 1

    def run(
        self, tasks: Sequence[T], function: TaskFunction[T], on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        results = []
        for number, task in enumerate(tasks):
            results.append(function(number, task))
            if on_done is not None:
                on_done(number + 1)
        return results
