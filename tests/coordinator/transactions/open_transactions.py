"""Transactions under way, and disks that are full in the middle of one."""

from __future__ import annotations

import errno
from typing import Any

from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup
from tests.handlers.transaction_client import TransactionClient
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.partition.partition import Partition

SECOND_PROTOCOL = 5
"""The version of EndTxn."""


async def started(client: TransactionClient, *partitions: int) -> ProducerIdAndEpoch:
    """The producer of ``id``, which has written one record to each partition."""
    producer = await client.begin()
    assert set((await client.add(producer, *partitions)).values()) == {0}
    for partition in partitions:
        assert await client.produce(producer, partition) == 0
    return producer


async def committed(client: TransactionClient) -> dict[str, dict[int, int]]:
    request = OffsetFetchRequestGroup(group_id="g", topics=None)
    response = await client.wire.services.groups.fetch_offsets(request, lambda phase: None)
    return {topic.name: {p.partition_index: p.committed_offset for p in topic.partitions} for topic in response.topics}


def refuse_appends(partition: Partition, monkeypatch, *, after: int = 0) -> None:
    """Let the disk of ``partition`` be full after some more batches."""
    append, batches = partition.log.append, iter(range(after))

    def until_full(*arguments: Any, **keywords: Any) -> Any:
        if next(batches, None) is None:
            raise OSError(errno.ENOSPC, "no space left on device")
        return append(*arguments, **keywords)

    monkeypatch.setattr(partition.log, "append", until_full)
