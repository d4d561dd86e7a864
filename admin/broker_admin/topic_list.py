"""Which topics, partitions, segments and groups a list shows, and by what it can be ordered. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from broker_admin.listing import ListQuery, Page, SortValue, ordered_by, take_page
from broker_admin.views.cluster.topics import PartitionDetail, TopicConsumer, TopicSummary
from broker_admin.views.node.topic_segments import SegmentDetail

NUMBER_WIDTH = 19
"""Digits of the largest offset: ids of equal length are ordered as the numbers are."""

TOPIC_COLUMNS: Mapping[str, Callable[[TopicSummary], SortValue]] = {
    "name": lambda topic: topic.name,
    "partitions": lambda topic: topic.partition_count,
    "records": lambda topic: topic.record_count,
    "size": lambda topic: topic.size_bytes,
    "records_in": lambda topic: topic.records_in_per_second,
    "bytes_in": lambda topic: topic.bytes_in_per_second,
    "records_out": lambda topic: topic.records_out_per_second,
    "bytes_out": lambda topic: topic.bytes_out_per_second,
    "groups": lambda topic: topic.group_count,
    "lag_seconds": lambda topic: topic.lag_seconds,
    "last_append": lambda topic: topic.last_append_at_ms,
}

PARTITION_COLUMNS: Mapping[str, Callable[[PartitionDetail], SortValue]] = {
    "partition": lambda partition: partition.partition,
    "size": lambda partition: partition.size_bytes,
    "segments": lambda partition: partition.segment_count,
    "records_in": lambda partition: partition.records_in_per_second,
    "bytes_in": lambda partition: partition.bytes_in_per_second,
    "bytes_out": lambda partition: partition.bytes_out_per_second,
    "last_append": lambda partition: partition.last_append_at_ms,
}

SEGMENT_COLUMNS: Mapping[str, Callable[[SegmentDetail], SortValue]] = {
    "base_offset": lambda segment: segment.base_offset,
    "size": lambda segment: segment.size_bytes,
    "newest_record": lambda segment: segment.newest_record_at_ms,
}

CONSUMER_COLUMNS: Mapping[str, Callable[[TopicConsumer], SortValue]] = {
    "group_id": lambda group: group.group_id,
    "lag_records": lambda group: group.lag_records,
    "lag_seconds": lambda group: group.lag_seconds,
    "lag_change": lambda group: None if group.rates is None else group.rates.lag_change_per_second,
}


@attrs.frozen(kw_only=True)
class TopicsQuery(ListQuery):
    """Which topics are wanted; ``internal`` are the broker's own."""

    order: str = ordered_by("name", TOPIC_COLUMNS)
    internal: bool = False


@attrs.frozen(kw_only=True)
class PartitionsQuery(ListQuery):
    """Which partitions of a topic are wanted; ``search`` looks through their numbers."""

    order: str = ordered_by("partition", PARTITION_COLUMNS)


@attrs.frozen(kw_only=True)
class SegmentsQuery(ListQuery):
    """Which segments of a partition are wanted; ``search`` looks through their base offsets."""

    order: str = ordered_by("base_offset", SEGMENT_COLUMNS)


@attrs.frozen(kw_only=True)
class ConsumersQuery(ListQuery):
    """Which groups are wanted."""

    order: str = ordered_by("-lag_seconds", CONSUMER_COLUMNS)


def select_topics(topics: Sequence[TopicSummary], query: TopicsQuery) -> Page[TopicSummary]:
    shown = topics if query.internal else [topic for topic in topics if not topic.internal]
    return take_page(shown, query, id_of=lambda topic: topic.name, columns=TOPIC_COLUMNS)


def select_partitions(partitions: Sequence[PartitionDetail], query: PartitionsQuery) -> Page[PartitionDetail]:
    return take_page(
        partitions,
        query,
        id_of=lambda each: f"{each.partition:0{NUMBER_WIDTH}}",
        columns=PARTITION_COLUMNS,
        search_text=lambda each: str(each.partition),
    )


def select_segments(segments: Sequence[SegmentDetail], query: SegmentsQuery) -> Page[SegmentDetail]:
    return take_page(
        segments,
        query,
        id_of=lambda each: f"{each.base_offset:0{NUMBER_WIDTH}}",
        columns=SEGMENT_COLUMNS,
        search_text=lambda each: str(each.base_offset),
    )


def select_consumers(groups: Sequence[TopicConsumer], query: ConsumersQuery) -> Page[TopicConsumer]:
    return take_page(groups, query, id_of=lambda each: each.group_id, columns=CONSUMER_COLUMNS)
