"""What a failed log directory means for the broker as a whole.

A directory fails as one: the metadata log goes offline with the partitions that lie beside it, and they with it. Where
another directory works, its partitions are served on, but nothing can be decided any more: changes are refused with
KAFKA_STORAGE_ERROR, and the broker is not ready. Once every directory has failed nothing can be served; ``all_failed``
is set then, and the process ends.

Source: Kafka's LogDirFailureChannel and ReplicaManager.handleLogDirFailure, which halt without the metadata directory.
"""

from __future__ import annotations

from pathlib import PurePath

import trio

from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.partition.replica_manager import ReplicaManager


class LogDirFailureHandler:
    """Passes failures on between the metadata log and the partitions of its directory."""

    def __init__(self, metadata_log: MetadataLog, replicas: ReplicaManager) -> None:
        self.all_failed = trio.Event()
        self._metadata_log = metadata_log
        self._replicas = replicas
        metadata_log.on_failure = self._metadata_log_failed
        replicas.failures.on_directory_failure = self._directory_failed

    def _metadata_log_failed(self, error: OSError) -> None:
        log = self._metadata_log.log
        self._replicas.failures.take_directory_offline(log.topic_partition, log.directory.parent, error)

    def _directory_failed(self, directory: PurePath, error: OSError) -> None:
        log = self._metadata_log.log
        if log.directory.parent == directory and log.failure is None:
            log.fail(error)
        if all(each.failure for each in self._replicas.log_manager.directories):
            self.all_failed.set()

    def reason_not_served(self) -> str:
        """Why clients are not served, or the empty string.

        While one of several data directories works, the partitions in it are served, so one failed disk is no reason.
        Without the metadata log nothing can be decided: no topic, no setting, no producer id.
        """
        failures = [directory.failure for directory in self._replicas.log_manager.directories]
        if all(failures):
            return f"every data directory failed: {'; '.join(map(str, failures))}"
        if (failure := self._metadata_log.failure) is not None:
            return f"the metadata log failed: {failure}"
        return ""
