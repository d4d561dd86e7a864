"""What a failed log directory means for the broker as a whole.

A directory fails as one: the metadata log goes offline with the partitions that lie beside it, and they with it. Where
another directory works, its partitions are served on. A broker alone can decide nothing any more without the metadata
log: changes are refused with KAFKA_STORAGE_ERROR, and it is not ready. One of several tells the controller at once,
which has other brokers lead, and goes on without its copy of the metadata. Once every directory has failed nothing can
be served; ``all_failed`` is set then, and the process ends.

Source: Kafka's LogDirFailureChannel and ReplicaManager.handleLogDirFailure, which halt without the metadata directory.
"""

from __future__ import annotations

from pathlib import PurePath

import trio

from trio_broker.cluster.broker_lifecycle_manager import BrokerLifecycleManager
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.partition.replica_manager import ReplicaManager


class LogDirFailureHandler:
    """Passes failures on between the metadata log and the partitions of its directory, and, where this broker is one of
    several, to its ``lifecycle``."""

    def __init__(
        self, metadata_log: MetadataLog, replicas: ReplicaManager, lifecycle: BrokerLifecycleManager | None = None
    ) -> None:
        self.all_failed = trio.Event()
        self._lifecycle = lifecycle
        self._metadata_log = metadata_log
        self._replicas = replicas
        metadata_log.on_failure = self._metadata_log_failed
        replicas.failures.on_directory_failure = self._directory_failed

    def _metadata_log_failed(self, error: OSError) -> None:
        log = self._metadata_log.log
        self._replicas.failures.take_directory_offline(log.topic_partition, log.directory.parent, error)

    def _directory_failed(self, directory: PurePath, error: OSError) -> None:
        log = self._metadata_log.log
        # A copy is a worker thread's, and is not needed.
        if self._lifecycle is None and log.directory.parent == directory and log.failure is None:
            log.fail(error)
        if all(each.failure for each in self._replicas.log_manager.directories):
            self.all_failed.set()
        elif self._lifecycle is not None:
            self._lifecycle.heartbeat_soon()

    def reason_not_served(self) -> str:
        """Why clients are not served, or the empty string.

        While one of several data directories works, the partitions in it are served, so one failed disk is no reason.
        Without the metadata log a broker alone can decide nothing: no topic, no setting, no producer id.
        """
        failures = [directory.failure for directory in self._replicas.log_manager.directories]
        if all(failures):
            return f"every data directory failed: {'; '.join(map(str, failures))}"
        if self._lifecycle is None and (failure := self._metadata_log.failure) is not None:
            return f"the metadata log failed: {failure}"
        return ""
