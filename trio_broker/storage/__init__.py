"""The log on disk, in Kafka's format byte for byte: plain synchronous file code.

Start reading at ``log``; ``recovery.open_log`` opens one, ``log_manager`` all of a broker's. Nothing here knows of
Trio, sockets or the network: the floor above decides what runs in a worker thread, and Spark, the dump and the
tests use the same code.
"""

from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.storage.append import AppendInfo, AppendOrigin
from trio_broker.storage.errors import DataDirectoryError, OffsetOutOfRange, StorageFailed
from trio_broker.storage.log import Log
from trio_broker.storage.log_file import FileRecords
from trio_broker.storage.log_manager import LoadReport, LogManager
from trio_broker.storage.recovery import OpenedLog, RecoveryReport, open_log
from trio_broker.storage.segment import FetchedRecords
from trio_broker.storage.time_index import TimestampOffset
from trio_broker.storage.transaction_index import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "AppendOrigin",
    "CleanupPolicy",
    "DataDirectoryError",
    "FetchedRecords",
    "FileRecords",
    "LoadReport",
    "Log",
    "LogConfig",
    "LogManager",
    "OffsetOutOfRange",
    "OpenedLog",
    "RecoveryReport",
    "StorageFailed",
    "TimestampOffset",
    "open_log",
]
