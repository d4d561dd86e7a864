"""An ``OffsetSource`` with offsets that a test sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.offset_specs import OffsetSource
from trio_broker.spark.options.selection import Assign, Selection, Subscribe


class FakeLogs:
    """Partitions with a first and a next offset, and a time for every record that a test cares about.

    ``questions`` are the names of the methods that were called. The attributes may be changed between questions.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, tuple[int, int]],
        *,
        times: Mapping[TopicPartition, Sequence[int]] | None = None,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.logs = dict(logs)
        self.times = dict(times or {})
        self.ids = dict(topic_ids or {})
        self.questions: list[str] = []
        self.is_closed = False

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        self.questions.append("partitions")
        if isinstance(selection, Assign):
            self._check_topics({partition.topic for partition in selection.partitions})
            return sorted(set(selection.partitions) & self.logs.keys())
        if isinstance(selection, Subscribe):
            self._check_topics(selection.topics)
            return sorted(partition for partition in self.logs if partition.topic in selection.topics)
        return sorted(partition for partition in self.logs if selection.matches(partition.topic))

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.questions.append("earliest")
        return {partition: self.logs[partition][0] for partition in partitions if partition in self.logs}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.questions.append("latest")
        return {partition: self.logs[partition][1] for partition in partitions if partition in self.logs}

    def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first record of ``self.times``, which has the time of each from the earliest on."""
        self.questions.append("for_times")
        return {partition: self._first(partition, time) for partition, time in times.items() if partition in self.logs}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        self.questions.append("topic_ids")
        return {topic: self.ids.get(topic, "") for topic in topics}

    def close(self) -> None:
        self.is_closed = True

    def _first(self, partition: TopicPartition, time: int) -> int | None:
        earliest, _ = self.logs[partition]
        found = (earliest + index for index, other in enumerate(self.times.get(partition, ())) if other >= time)
        return next(found, None)

    def _check_topics(self, topics: Collection[str]) -> None:
        existing = {partition.topic for partition in self.logs}
        for topic in sorted(topics):
            if topic not in existing:
                raise OptionError("subscribe", f"there is no topic {topic!r}")


def logs(**topics: Sequence[tuple[int, int]]) -> FakeLogs:
    """Return logs of topics: ``logs(orders=[(0, 10), (5, 20)])`` has two partitions."""
    return FakeLogs(
        {
            TopicPartition(topic, number): bounds
            for topic, partitions in topics.items()
            for number, bounds in enumerate(partitions)
        }
    )


_: OffsetSource = FakeLogs({})
