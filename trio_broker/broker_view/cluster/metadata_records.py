"""The records of the metadata log, for the admin app: no consumer can fetch them.

Read up to what is durable. What a snapshot contains is no longer in the log, so it begins where the newest one ends.
Settings that are passwords, and those that this broker does not know, which may be, are read as hidden.
"""

from __future__ import annotations

from functools import partial
from operator import methodcaller

import attrs
import trio

from broker_admin.views.cluster.messages import ReadablePartition
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ConfigRecord
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.config.client_metrics_config import CLIENT_METRICS_KEYS
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.fetch_operation import FetchedPartition

PARTITION = 0
"""The only one of the metadata log."""


@attrs.frozen
class MetadataRecords:
    """Reads the metadata log as if it were a topic of one partition."""

    services: BrokerServices

    @property
    def log(self) -> MetadataLog:
        return self.services.metadata_log

    @property
    def end_offset(self) -> int:
        return self.log.durable_end

    def readable(self) -> ReadablePartition:
        log = self.log.log
        return ReadablePartition(PARTITION, log.log_start_offset, self.end_offset, log.size_bytes)

    async def offset_at(self, timestamp_ms: int) -> int:
        """The first offset whose record is at least as young as the time, or the end."""
        end_offset = self.end_offset
        look = partial(self.log.log.read_with, methodcaller("offset_for_timestamp", timestamp_ms, end_offset))
        found = (await self.services.replicas.run_in_io_thread(look)).result
        return end_offset if found is None else found.offset

    async def fetch(self, offset: int, max_bytes: int, max_wait_seconds: float) -> FetchedPartition:
        """Batches from ``offset`` on; with ``max_wait_seconds`` it waits for a change of the metadata."""
        if offset == self.end_offset and max_wait_seconds:
            with trio.move_on_after(max_wait_seconds):
                await self.services.metadata_cache.wait_for(offset)
        end_offset = self.end_offset
        read = partial(self.log.log.read_with, methodcaller("read", offset, max_bytes, end_offset=end_offset))
        try:
            fetched = (await self.services.replicas.run_in_io_thread(read)).result
        except KafkaError as error:
            return FetchedPartition(PARTITION, error.code)
        except OSError:
            return FetchedPartition(PARTITION, ErrorCode.KAFKA_STORAGE_ERROR)
        return FetchedPartition(PARTITION, records=fetched.records, size_bytes=fetched.size, high_watermark=end_offset)


def is_secret(record: ConfigRecord) -> bool:
    """Whether the value of a setting must not be shown: it is a password, or its key is not known here."""
    tables = (TOPIC_KEYS, GROUP_KEYS, BROKER_KEYS, CLIENT_METRICS_KEYS)
    key = next((keys[record.name] for keys in tables if record.name in keys), None)
    return key is None or key.sensitive
