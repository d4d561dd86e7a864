"""The segments of one partition of a running broker, for the admin app.

Which segments there are is read on the event loop, at once; what their files tell, timestamps and the sizes of indexes,
in a worker thread.
"""

from __future__ import annotations

from functools import partial

import trio

from broker_admin.views.cluster.topics import TopicRefused
from broker_admin.views.node.topic_segments import PartitionSegments, SegmentDetail
from kafka_wire.errors import KafkaError
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.view import LogView
from trio_broker.storage import file_names
from trio_broker.storage.compaction_plan import compaction_range
from trio_broker.storage.log_reader import LogReader
from trio_broker.storage.offset_index import OffsetIndex
from trio_broker.storage.retention import retention_forecast
from trio_broker.storage.segment import Segment

SEGMENT_THREADS = 1
"""Partitions whose segments are described at once: each may have thousands, and clients need the interpreter more."""


class LiveTopicSegmentsView:
    """The part of the admin app's view that is about the files of one partition."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self._describing = trio.CapacityLimiter(SEGMENT_THREADS)

    async def of_partition(self, name: str, partition: int) -> PartitionSegments[tuple[SegmentDetail, ...]] | None:
        local = self.services.replicas.topics.get(name)
        if local is None or partition not in {*local.partitions, *local.failures}:
            return None
        replicas = self.services.replicas
        try:
            found = local.partition(partition)
            found.require_leader()
            work = partial(
                describe,
                view=found.view(),
                now_ms=self.services.clock.now_ms(),
                check_interval_ms=self.services.config.log_manager.log_retention_check_interval_ms,
            )
            async with self._describing:
                return await replicas.run_in_thread(found, work)
        except KafkaError as error:
            raise TopicRefused(error.code.name, str(error)) from error


def describe(
    log: LogReader, *, view: LogView, now_ms: int, check_interval_ms: int
) -> PartitionSegments[tuple[SegmentDetail, ...]]:
    """The segments with what retention and compaction do to them. Blocks: runs in a worker thread.

    Raises:
        OSError: a file cannot be read.
    """
    row = log.segments
    facts = log.segment_facts()
    forecasts = retention_forecast(
        facts,
        log.config,
        now_ms=now_ms,
        high_watermark=view.high_watermark,
        log_start_offset=log.log_start_offset,
    )
    compaction = None
    if log.config.cleanup_policy.compact:
        compaction = compaction_range(log, stable_offset=view.last_stable_offset, now_ms=now_ms)
    compacted_up_to = None if compaction is None else compaction.first_dirty_offset
    details = []
    for segment, fact, forecast in zip(row, facts, forecasts, strict=True):
        is_active = segment is row[-1]
        details.append(
            SegmentDetail(
                base_offset=segment.base_offset,
                next_offset=fact.end_offset,
                size_bytes=fact.size_bytes,
                is_active=is_active,
                newest_record_at_ms=newest_record_ms(segment),
                index_entries=index_entries(segment, is_active=is_active),
                is_compacted=compacted_up_to is not None and fact.end_offset <= compacted_up_to and not is_active,
                retention_reason=None if forecast.reason is None else forecast.reason.value,
                retention_due_at_ms=forecast.due_at_ms,
                retention_due_after_bytes=forecast.due_after_bytes,
            )
        )
        log.evict_if_idle(segment)
    return PartitionSegments(
        partition=log.topic_partition.partition,
        log_directory=str(file_names.absolute(log.directory)),
        retention_check_interval_ms=check_interval_ms,
        compacted_up_to=compacted_up_to,
        dirty_ratio=None if compaction is None else compaction.dirty_ratio,
        segments=tuple(details),
    )


def newest_record_ms(segment: Segment) -> int | None:
    """The largest timestamp in the segment, None without one."""
    timestamp_ms = segment.largest_timestamp_offset_pair().timestamp_ms
    return timestamp_ms if segment.size and timestamp_ms >= 0 else None


def index_entries(segment: Segment, *, is_active: bool) -> int | None:
    """Entries of the offset index; None where its file is missing. That of the active segment is in memory."""
    if is_active:
        return len(segment.offset_index)
    try:
        return segment.disk.status(segment.path(file_names.INDEX_SUFFIX)).size_bytes // OffsetIndex.ENTRY.size
    except FileNotFoundError:
        return None
