"""All findings of a data directory, as ``trio-broker fsck`` has them."""

from __future__ import annotations

from pathlib import PurePath

from trio_broker.runtime.disk import Disk
from trio_broker.storage.directory_check import TopicFacts, read_directory, read_topics
from trio_broker.storage.findings import StorageFinding
from trio_broker.storage.partition_check import PartitionReport, check_partition


def checked_partitions(disk: Disk, directory: PurePath, topics: TopicFacts | None = None) -> list[PartitionReport]:
    facts = read_directory(disk, directory, topics or read_topics(disk, [directory]))
    return [check_partition(disk, task.directory, task.topic_partition, task.bounds) for task in facts.tasks]


def findings_in(disk: Disk, directory: PurePath, topics: TopicFacts | None = None) -> list[StorageFinding]:
    facts = read_directory(disk, directory, topics or read_topics(disk, [directory]))
    reports = checked_partitions(disk, directory, topics)
    return [*facts.findings, *(found for each in reports for found in each.findings)]
