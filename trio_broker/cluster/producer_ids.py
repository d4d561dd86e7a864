"""Allocates producer ids, unique in the cluster and over all restarts, with one record per thousand ids.

A ProducerIdsRecord, which has the first id of the next block, allocates a block. Ids of a block that are unused at a
restart are skipped: there are 2^63 of them.

Source: Kafka's ProducerIdControlManager and RPCProducerIdManager (KIP-730).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.limits import MAX_PRODUCER_ID
from kafka_wire.primitives import NO_BROKER_EPOCH
from kafka_wire.stored.metadata import ProducerIdsRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import MetadataImage

BLOCK_SIZE: Final = 1000
"""Kafka's number: a write per thousand producers, and at most so many ids skipped at a restart."""

LAST_PRODUCER_ID: Final = MAX_PRODUCER_ID
"""The largest int64, which is given to nobody: it would be the last of a block that ends beyond it."""


@attrs.frozen
class ProducerIdBlock:
    """The ids from ``first`` up to ``end``, exclusive."""

    first: int
    end: int


def decide_producer_id_block(image: MetadataImage, node_id: int) -> ControllerResult[ProducerIdBlock]:
    """Return the next block, and the record that allocates it.

    Raises:
        KafkaError: ``UNKNOWN_SERVER_ERROR``: no block is left, as Kafka's ProducerIdControlManager says it.
    """
    if image.next_producer_id > LAST_PRODUCER_ID - BLOCK_SIZE:
        text = f"no producer id is left: the next would be {image.next_producer_id}"
        raise KafkaError(text, code=ErrorCode.UNKNOWN_SERVER_ERROR)
    block = ProducerIdBlock(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
    broker = image.brokers.get(node_id)
    record = ProducerIdsRecord(
        broker_id=node_id,
        broker_epoch=broker.broker_epoch if broker is not None else NO_BROKER_EPOCH,
        next_producer_id=block.end,
    )
    return ControllerResult(block, (record,))


class ProducerIds:
    """Returns ids of the current block, and allocates a new block when it is used up."""

    def __init__(self, allocate_block: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """``allocate_block`` is ``Controller.allocate_producer_ids``."""
        self._allocate_block = allocate_block
        self._lock = trio.Lock()
        self._block = ProducerIdBlock(0, 0)

    async def next(self) -> int:
        """Return an id that was never returned before.

        Raises:
            KafkaError: no id is left.
            OSError: a new block could not be recorded.
        """
        async with self._lock:
            # Under the lock, since the allocation waits for the disk: two callers would allocate two blocks.
            if self._block.first == self._block.end:
                self._block = await self._allocate_block()
            producer_id = self._block.first
            self._block = ProducerIdBlock(producer_id + 1, self._block.end)
            return producer_id
