"""The end of a stream's next micro-batch.

Three options decide: ``maxOffsetsPerTrigger`` bounds a micro-batch and is divided among the partitions in proportion to
their unread offsets; ``minOffsetsPerTrigger`` makes it wait for enough offsets, but for no longer than
``maxTriggerDelay``. The result depends on the arguments alone; the caller keeps the time of the last trigger.

New partitions begin at their earliest offset. None drops out of the offsets: the caller gives the start as the end of
one that the cluster does not name now, since the metadata may say less for a moment, and a partition that came back
would be taken for a new one. One whose log has become shorter keeps its new, smaller end, which
``offset_planning.plan_stream`` reports as a loss.

Source: KafkaMicroBatchStream of Spark's connector. Shares are computed exactly here, in floating point there, which may
make a difference of one offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.offset_specs import listed
from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.planning.offset_planning import Offsets


@attrs.frozen
class Limits:
    """The bounds of a micro-batch; None for no bound. ``max_delay_ms`` counts only with ``min_offsets``."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0


UNLIMITED = Limits()
"""No bounds: ``Trigger.Once``."""


@attrs.frozen
class Admission:
    """The end of the next micro-batch, equal to its start if it is to wait, and the time of the last trigger then."""

    offsets: Offsets
    last_trigger_ms: int | None


def limits_of(options: ReadOptions, *, available_now: bool = False) -> Limits:
    """Return the bounds in the options of a stream.

    A query that ends once it has read all (``available_now``) ignores the minimum: there is no next trigger for the
    rest.
    """
    return Limits(
        max_offsets=options.max_offsets_per_trigger,
        min_offsets=None if available_now else options.min_offsets_per_trigger,
        max_delay_ms=options.max_trigger_delay_ms,
    )


def new_partitions(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions that are not in ``start``, sorted; the caller looks up their earliest offsets."""
    return sorted(latest.keys() - start.keys())


def shorter_logs(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions that end before ``start``, sorted.

    The high watermark of a broker that has just become the leader may not be up to date, so that the caller should ask
    again before it reports a loss.
    """
    return sorted(partition for partition, offset in latest.items() if offset < start.get(partition, 0))


def next_offsets(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    earliest_of_new: Mapping[TopicPartition, int],
    limits: Limits = UNLIMITED,
    *,
    last_trigger_ms: int | None = None,
    now_ms: int = 0,
) -> Admission:
    """Return the end of the micro-batch that begins at ``start``.

    ``latest`` has the ends of all partitions, those in ``start`` included, ``earliest_of_new`` the beginnings of those
    that are not in ``start``; one that is in neither was created and deleted at once. ``last_trigger_ms`` is that of
    the last admission, None before the first one, which never waits. Times are milliseconds of any one clock.
    """
    assert start.keys() <= latest.keys(), f"no end for {listed(start.keys() - latest.keys())}"
    begins = {**earliest_of_new, **start}
    waiting = {partition: max(end - begins.get(partition, end), 0) for partition, end in latest.items()}
    if limits.min_offsets is not None:
        is_late = last_trigger_ms is None or now_ms - last_trigger_ms >= limits.max_delay_ms
        if not is_late and sum(waiting.values()) < limits.min_offsets:
            return Admission(dict(start), last_trigger_ms)
        last_trigger_ms = now_ms
    if limits.max_offsets is None:
        return Admission(dict(latest), last_trigger_ms)
    shares = divide_in_proportion(limits.max_offsets, waiting)
    offsets = {
        partition: begins[partition] + shares[partition] if waiting[partition] else end
        for partition, end in latest.items()
    }
    return Admission(offsets, last_trigger_ms)


def divide_in_proportion(limit: int, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many of up to ``limit`` offsets each partition gets, in proportion to its number in ``waiting``.

    Shares are rounded down, but a partition with any offsets gets at least one: a small one beside large ones would
    otherwise wait for ever. So the sum may exceed the limit by the number of such partitions.
    """
    total = sum(waiting.values())
    return {partition: min(max(limit * size // total, 1), size) if size else 0 for partition, size in waiting.items()}


def check_available_now(
    frozen: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    gone: Collection[TopicPartition],
) -> None:
    """Check that a micro-batch of a query that ends at ``frozen``, the offsets of its start, does not reach further.

    It may do so after a restart, when the checkpoint holds a micro-batch that was planned by an earlier run, or when
    partitions with records in it were deleted since (``gone``): the query would not end where it should.

    Raises:
        SparkJobError: ``end`` has other partitions or offsets beyond ``frozen``, or partitions are gone.
    """
    if differing := frozen.keys() ^ end.keys():
        raise SparkJobError(f"partitions came or went since the query was started: {listed(differing)}; start it again")
    if beyond := [partition for partition, offset in end.items() if offset > frozen[partition]]:
        raise SparkJobError(f"the log became shorter since the query was started: {listed(beyond)}; start it again")
    if gone:
        raise SparkJobError(f"partitions went since the query was started: {listed(gone)}; start it again")
