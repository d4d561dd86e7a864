"""What a job reads: its options, the source of its offsets, and tasks for ranges of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import attrs

from trio_broker.spark.options.offset_specs import OffsetSource
from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.task_planning import open_offset_source, plan_tasks
from trio_broker.spark.tasks import ReadTask


@attrs.frozen
class JobSource:
    """A context manager, which closes the offset source."""

    options: ReadOptions
    offset_source: OffsetSource

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Return the source that ``options`` describe. No request is sent yet."""
        return cls(options, open_offset_source(options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.offset_source.close()

    def tasks(
        self, ranges: Sequence[OffsetRange], columns: tuple[str, ...], parallelism: int, topic_ids: Mapping[str, str]
    ) -> list[ReadTask]:
        """Return tasks that read ``columns`` of ``ranges``, ``parallelism`` or more unless the options set their
        number.

        Raises:
            SparkJobError: no broker answers, or a topic has another id now.
        """
        options = attrs.evolve(self.options, min_partitions=self.options.min_partitions or parallelism)
        return plan_tasks(options, self.offset_source, ranges, columns=columns, topic_ids=topic_ids)
