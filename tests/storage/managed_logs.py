"""What tests ask of a ``LogManager`` at once, and the broker in steps of which worker threads do some."""

from __future__ import annotations

from collections.abc import Iterable

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.storage.deleted_logs import remove_expired
from trio_broker.storage.log import Log
from trio_broker.storage.log_loading import ConfigFor, KnownAs, known_as_none
from trio_broker.storage.log_manager import LoadReport, LogManager


def load_logs(manager: LogManager, config_for: ConfigFor, known_as: KnownAs = known_as_none) -> LoadReport:
    """Open all logs, one after another."""
    loading = manager.plan_load(config_for, known_as)
    for load in loading.loads:
        manager.load_partition(loading, load)
    return manager.end_load(loading)


def create_log(manager: LogManager, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
    """The log of a partition, which is made if it is not there."""
    log = manager.find_or_open(partition, topic_id, config)
    manager.add(log)
    return log


def delete_logs(manager: LogManager, partitions: Iterable[TopicPartition]) -> None:
    """Rename the directories of logs. Unknown ones are no error."""
    marked = manager.deleted_logs.mark(manager.take_logs(partitions))
    manager.deleted_logs.note_marked(marked.files)
    for error in marked.failures.values():
        raise error


def remove_expired_files(manager: LogManager, now_ms: int) -> int:
    """Remove what was deleted and whose time has come. Returns how many files and directories."""
    expired = manager.take_expired_files(now_ms)
    remove_expired(manager.disk, expired)
    return len(expired)
