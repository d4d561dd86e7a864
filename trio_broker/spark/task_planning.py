"""From a job's options to its tasks: the source of offsets, and the transport of each range.

The readers of Spark and the pipelines plan alike: ``open_offset_source``, then ``planning`` decides which offsets, then
``plan_tasks`` makes tasks of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from trio_broker.spark.options.offset_specs import OffsetSource
from trio_broker.spark.options.read_options import ReadOptions, TransportKind
from trio_broker.spark.planning.offset_planning import plan_batch, split
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask
from trio_broker.spark.wire.cluster import KafkaCluster
from trio_broker.spark.wire.transport import WireTransport

if TYPE_CHECKING:
    from trio_broker.spark.files.file_planning import FileTask
    from trio_broker.spark.files.manifest import ManifestSource


def plan_batch_tasks(options: ReadOptions, columns: tuple[str, ...] | None = None) -> list[ReadTask]:
    """Return the tasks of a batch, with ``columns`` or those of the options.

    Raises:
        OptionError: as ``plan_batch``.
        DataLoss: requested records are gone.
        SourceUnavailable: no broker answers.
    """
    with closing(open_offset_source(options)) as source:
        return plan_tasks(options, source, plan_batch(options, source), columns=columns)


def open_offset_source(options: ReadOptions) -> OffsetSource:
    """Return the source of offsets: the cluster, or the directories of a job without one. The caller closes it.

    Raises:
        OptionError: a directory does not exist, or belongs to a running broker.
    """
    if options.is_offline:
        from trio_broker.spark.files.offline import OfflineLogs

        return OfflineLogs(options.path, read_committed=options.read_committed)
    return KafkaCluster(
        options.kafka,
        read_committed=options.read_committed,
        retries=options.fetch_offset_retries,
        retry_interval_ms=options.fetch_offset_retry_interval_ms,
    )


def plan_tasks(
    options: ReadOptions,
    source: OffsetSource,
    ranges: Sequence[OffsetRange],
    *,
    columns: tuple[str, ...] | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> list[ReadTask]:
    """Cut ``ranges`` into tasks and choose how each is read.

    ``topic_ids`` are the ids that the topics had when the ranges were planned; without them they are requested now.

    Raises:
        OptionError: the broker does not say where its files are.
        DataLoss: a topic was deleted and created again.
        SourceUnavailable: no broker answers.
    """
    if not ranges:
        return []
    if topic_ids is None:
        topic_ids = source.topic_ids({offsets.partition.topic for offsets in ranges})
    decoding = options.decoding(columns)
    if options.transport is TransportKind.FILES:
        return [
            ReadTask(task.offsets, task.transport, decoding) for task in _file_tasks(options, source, ranges, topic_ids)
        ]
    transports = {topic: _wire_transport(options, topic_id) for topic, topic_id in topic_ids.items()}
    parts = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    return [ReadTask(part, transports[part.partition.topic], decoding) for part in parts]


def _wire_transport(options: ReadOptions, topic_id: str) -> WireTransport:
    return WireTransport(
        options.kafka,
        read_committed=options.read_committed,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        topic_id=topic_id,
    )


def _file_tasks(
    options: ReadOptions, source: OffsetSource, ranges: Sequence[OffsetRange], topic_ids: Mapping[str, str]
) -> list[FileTask]:
    """Plan from the files of this moment. The manifest of a running broker is not kept: its files change."""
    from trio_broker.spark.files.cluster_manifests import ClusterManifests
    from trio_broker.spark.files.file_planning import plan_files
    from trio_broker.spark.files.offline import OfflineLogs

    if isinstance(source, OfflineLogs):
        manifests: ManifestSource = source
    else:
        manifests = ClusterManifests(options.kafka, options.admin_urls, options.admin_token, options.path)
    return plan_files(
        ranges,
        manifests,
        paths=options.path,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        topic_ids=topic_ids,
        fail_on_data_loss=options.fail_on_data_loss,
    )
