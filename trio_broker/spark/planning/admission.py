"""How much of what is there the next micro-batch of a stream takes.

Three options have a say: ``maxOffsetsPerTrigger`` bounds a micro-batch and is shared out among the partitions in
proportion to what each has to give; ``minOffsetsPerTrigger`` makes it wait for enough to come, but for no longer than
``maxTriggerDelay``. What is decided depends on the arguments alone; the caller keeps the time of the last trigger.

Partitions that come into being begin at their earliest offset. Those that are gone drop out of the offsets, and one
whose log is shorter than it was keeps its new, smaller end: ``planning.plan_stream`` tells both as losses.

Source: KafkaMicroBatchStream of Spark's connector. Shares are computed exactly here, in floating point there, which may
give an offset more or less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.offset_specs import listed
from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.planning.offset_planning import Offsets
from trio_broker.topic_partition import TopicPartition


@attrs.frozen
class Limits:
    """What bounds a micro-batch; None bounds nothing. ``max_delay_ms`` counts only with ``min_offsets``."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0


UNLIMITED = Limits()
"""Everything that is there: what ``Trigger.Once`` asks for."""


@attrs.frozen
class Admission:
    """The end of the next micro-batch, equal to its start if it is to wait, and the time of the last trigger then."""

    offsets: Offsets
    last_trigger_ms: int | None


def limits_of(options: ReadOptions, *, available_now: bool = False) -> Limits:
    """Return what the options of a stream bound.

    A query that ends once it has read all (``available_now``) does not wait for more to come: there is no next trigger
    that the rest could be left to.
    """
    return Limits(
        max_offsets=options.max_offsets_per_trigger,
        min_offsets=None if available_now else options.min_offsets_per_trigger,
        max_delay_ms=options.max_trigger_delay_ms,
    )


def new_partitions(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions that came into being since ``start``, sorted; their earliest offsets must be asked for."""
    return sorted(latest.keys() - start.keys())


def shorter_logs(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions that end before ``start``, sorted.

    A broker that just became the leader may not know yet how far it may show its log, so it is worth asking again
    before this is taken for a loss.
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
    """Return where the micro-batch that begins at ``start`` ends.

    ``latest`` has the ends of all partitions there are, ``earliest_of_new`` the beginnings of those that are not in
    ``start``; one that is in neither has just gone again. ``last_trigger_ms`` is what the last admission said, None
    before the first one, which never waits. Times are milliseconds of any one clock.
    """
    begins = {**earliest_of_new, **start}
    waiting = {partition: max(end - begins.get(partition, end), 0) for partition, end in latest.items()}
    if limits.min_offsets is not None:
        is_late = last_trigger_ms is None or now_ms - last_trigger_ms >= limits.max_delay_ms
        if not is_late and sum(waiting.values()) < limits.min_offsets:
            return Admission(dict(start), last_trigger_ms)
        last_trigger_ms = now_ms
    if limits.max_offsets is None:
        return Admission(dict(latest), last_trigger_ms)
    shares = share_out(limits.max_offsets, waiting)
    offsets = {
        partition: begins[partition] + shares[partition] if waiting[partition] else end
        for partition, end in latest.items()
    }
    return Admission(offsets, last_trigger_ms)


def share_out(limit: int, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many of up to ``limit`` offsets each partition gives, in proportion to what waits there.

    Shares are rounded down, but whoever has something gives at least one: a small partition beside large ones would
    otherwise wait for ever. So the sum may be above the limit by as many as there are such partitions.
    """
    total = sum(waiting.values())
    return {partition: min(max(limit * size // total, 1), size) if size else 0 for partition, size in waiting.items()}


def check_available_now(
    frozen: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    existing: Collection[TopicPartition],
) -> None:
    """Check that a micro-batch of a query that reads what was there at its start (``frozen``) stays within that.

    It does not when the checkpoint holds a micro-batch that was planned before the query was started again and then
    reaches further, or when partitions have gone meanwhile: reading on would not end where the query is to end.

    Raises:
        SparkJobError: ``end`` has other partitions, offsets beyond ``frozen``, or partitions that are gone.
    """
    if differing := frozen.keys() ^ end.keys():
        raise SparkJobError(f"partitions came or went since the query was started: {listed(differing)}; start it again")
    if beyond := [partition for partition, offset in end.items() if offset > frozen[partition]]:
        raise SparkJobError(f"the log became shorter since the query was started: {listed(beyond)}; start it again")
    if gone := end.keys() - set(existing):
        raise SparkJobError(f"partitions went since the query was started: {listed(gone)}; start it again")
