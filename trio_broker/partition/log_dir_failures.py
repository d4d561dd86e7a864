"""What an error on the files of a partition means, and what is given up for it.

A log directory whose disk failed is given up as a whole and for good: every partition in it answers
KAFKA_STORAGE_ERROR from then on, and other directories go on. A sync that fails for another reason, such as a file that
was removed by hand, costs its partition alone. A disk that is merely full refuses until it is not.

Source: Kafka's ReplicaManager.handleLogDirFailure and LogDirFailureChannel.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import PurePath
from typing import TypeVar, cast

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.partition.flusher import is_postponed
from trio_broker.partition.partition import Partition
from trio_broker.partition.sync_queue import Syncable
from trio_broker.partition.writer import PartitionWriter
from trio_broker.runtime.clock import Clock
from trio_broker.storage.errors import StorageFailed, is_disk_failure, is_log_failure, is_shortage
from trio_broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

T = TypeVar("T")


class LogDirFailures:
    """See the head of the file. ``partitions`` gives those held, also where their disk failed before."""

    def __init__(self, log_manager: LogManager, clock: Clock, partitions: Callable[[], Iterable[Partition]]) -> None:
        self.log_manager = log_manager
        self._partitions = partitions
        self._throttled_log = LogThrottle(log, clock)
        # Called with each log directory that fails, once.
        self.on_directory_failure: Callable[[PurePath, OSError], None] = lambda directory, error: None

    def storage_failed(self, partition: Partition, error: OSError) -> KafkaError:
        """Decide what ``error`` on the files of ``partition`` means; return the error for the request that met it.

        A broken disk costs the whole log directory; another error that storage calls final, the partition. Anything
        else is refused and no more: nothing was written, reading goes on, and other partitions have nothing to do with
        it.
        """
        if partition.failure is not None:
            return KafkaError(str(partition.failure), code=partition.failure.code)
        if is_log_failure(error):
            return self._log_failed(partition.writer, error)
        # The log file may lie on the disk that is full, so this must not be said for every request.
        what = "write refused, disk full" if is_shortage(error) else "request refused"
        text = f"{partition.topic_partition}: {what}: {type(error).__name__}: {error}"
        self._throttled_log.error("refused", text)
        return KafkaError(f"{partition.topic_partition}: {error}", code=ErrorCode.KAFKA_STORAGE_ERROR)

    async def changing(self, partition: Partition, change: Awaitable[T]) -> T:
        """Wait for what changes the files of ``partition``.

        Raises:
            KafkaError: ``KAFKA_STORAGE_ERROR``: the disk refused or failed.
        """
        try:
            return await change
        except OSError as error:
            raise self.storage_failed(partition, error) from error

    def _log_failed(self, writer: PartitionWriter, error: OSError) -> KafkaError:
        """Give up a log after an error that is final, with its directory if the disk is broken; return what its
        requests get."""
        topic_partition = writer.log.topic_partition
        if is_disk_failure(error):
            failure = self.take_directory_offline(topic_partition, writer.log.directory.parent, error)
        else:
            failure = KafkaError(f"{topic_partition} is offline: {error}", code=ErrorCode.KAFKA_STORAGE_ERROR)
            # Otherwise closing it would sync again, with success, and call durable what may be gone.
            if writer.log.failure is None:
                writer.log.fail(error)
        writer.fail(failure)
        return failure

    def take_directory_offline(self, cause: object, directory: PurePath, error: OSError) -> KafkaError:
        """Give a log directory up for good, with every partition in it; return the error for those that meet this.

        ``cause`` is the partition or the task that met ``error``, for the log.
        """
        failure = KafkaError(f"log directory {directory} failed: {error}", code=ErrorCode.KAFKA_STORAGE_ERROR)
        if self.log_manager.is_online(directory):
            self.log_manager.take_offline(directory, error)
            self._fail_partitions(cause, directory, error, failure)
            self.on_directory_failure(directory, error)
        return failure

    def _fail_partitions(self, cause: object, directory: PurePath, error: OSError, failure: KafkaError) -> None:
        affected = [
            each for each in self._partitions() if each.log.directory.parent == directory and each.failure is None
        ]
        log.error(
            "%s: log directory %s goes offline with %d partitions: %s: %s",
            cause,
            directory,
            len(affected),
            type(error).__name__,
            error,
        )
        for each in affected:
            each.fail(failure)

    def sync_failed(self, syncable: Syncable, error: Exception) -> None:
        """Give the log up: after a failed sync nobody knows what of it is on the disk."""
        writer = cast(PartitionWriter, syncable)
        if is_postponed(error):
            # Of opening, before anything was synced: the flusher tries again.
            self._throttled_log.error("unsynced", f"{writer.log.topic_partition}: not synced yet: {error}")
            return
        if not isinstance(error, OSError):
            log.error("%r: a sync failed on our own account", writer, exc_info=error)
            error = StorageFailed(f"a sync failed: {error!r}")
        self._log_failed(writer, error)
