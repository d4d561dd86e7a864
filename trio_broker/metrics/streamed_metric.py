"""A metric whose samples are made one by one while they are written.

prometheus_client keeps a list of all samples of a metric. With ten thousand partitions those lists make the garbage
collector walk the whole heap, for a third of a second in which no thread runs; a sample that is dropped as soon as its
line is written does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, cast

import attrs
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from trio_broker.metrics.snapshot import PartitionReading

LabelledValue: TypeAlias = tuple[dict[str, str], float]
"""The labels of a series, and its value."""


@attrs.frozen
class SampleStream:
    """The samples of one metric, made anew for each reader."""

    name: str
    make: Callable[[], Iterable[LabelledValue]]

    def __iter__(self) -> Iterator[Sample]:
        for labels, value in self.make():
            yield Sample(self.name, labels, value)


def streamed_metric(name: str, documentation: str, make: Callable[[], Iterable[LabelledValue]]) -> Metric:
    """A metric of what ``make`` returns: a counter if ``name`` ends like one, else a gauge."""
    metric = Metric(name.removesuffix("_total"), documentation, "counter" if name.endswith("_total") else "gauge")
    metric.samples = cast("list[Sample]", SampleStream(name, make))
    return metric


def values_of_partitions(
    partitions: Sequence[PartitionReading], value: Callable[[PartitionReading], int]
) -> Iterator[LabelledValue]:
    """The ``value`` of each, by topic and partition."""
    return (({"topic": each.topic, "partition": str(each.partition)}, value(each)) for each in partitions)
