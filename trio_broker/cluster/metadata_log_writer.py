"""What a controller appends by: its claim, and the image that its next decision is made on.

That image is ahead of the one that brokers follow, its own included: it has what was appended, and they have what they
have read. So a decision waits for the store and for nobody else.

* A decision that is too large for a batch of the store is a transaction of several. What a client has asked for is one
  too, whose name says who, for the journals of all brokers.
* An append whose answer did not come is repeated, with the same bytes at the same place, before anything else is
  appended; the request that it was for has failed with REQUEST_TIMED_OUT, and may have been carried out.
* A claim that is lost ends the writing at once: NOT_CONTROLLER.

Source: Kafka's QuorumController (ControllerWriteEvent, and what it does about NotLeaderException).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from trio_broker.changes.audit_context import CALLER, THE_BROKER
from trio_broker.changes.change_log import clipped_origin
from trio_broker.changes.origin_text import origin_text
from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import ExpectedChange, MetadataLoader
from trio_broker.cluster.metadata_store import (
    AppendUnknown,
    Claim,
    ClaimLost,
    MetadataStore,
    PreparedBatch,
    UnexpectedEnd,
)
from trio_broker.concurrency.yield_budget import InTurns, in_turns
from trio_broker.runtime.clock import Clock

log = logging.getLogger(__name__)


@attrs.frozen
class UnknownAppend:
    """A batch that may be in the log; it ends ``change``, or is followed by more batches of its transaction."""

    batch: PreparedBatch
    change: ExpectedChange | None


class MetadataLogWriter:
    """Appends one decision after the other; the caller holds a lock from the decision up to the end of its append."""

    def __init__(self, store: MetadataStore, loader: MetadataLoader, clock: Clock) -> None:
        self._store = store
        self._loader = loader
        self._clock = clock
        self._claim: Claim | None = None
        self._image = loader.image
        self._end_offset = 0
        self._is_in_transaction = False
        self._unknown: UnknownAppend | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._claim is not None

    @property
    def image(self) -> MetadataImage:
        """The image that the next decision is made on."""
        return self._loader.image if self._claim is None else self._image

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._end_offset

    def activate(self, claim: Claim) -> None:
        """Begin to append under ``claim``; everything before its end is published."""
        self._claim, self._image, self._end_offset = claim, self._loader.image, claim.end_offset
        # The controller before this one has left its decision unfinished.
        self._is_in_transaction = self._loader.transactions.is_open
        self._unknown = None

    def deactivate(self) -> None:
        """Append nothing any more."""
        self._claim = None
        if self._unknown is not None and self._unknown.change is not None:
            self._loader.forget(self._unknown.change)

    def require_active(self) -> Claim:
        """The claim.

        Raises:
            NotController: there is none.
        """
        if self._claim is None:
            raise NotController("this broker is not the controller")
        return self._claim

    async def append(self, records: Sequence[Any], *, is_recorded: bool = False) -> ExpectedChange:
        """Append ``records`` as one decision; they are in ``image`` then. An append that has begun goes on to its end.

        With ``is_recorded`` journals have it, and where there are several brokers they are to know whose it is.

        Raises:
            NotController: the claim is over and nothing was appended.
            KafkaError: REQUEST_TIMED_OUT: nobody knows.
            OSError: the store refused and nothing has changed, or it has failed.
        """
        if self._unknown is not None or self._is_in_transaction:
            await self._settle()
        claim, now_ms = self.require_active(), self._clock.now_ms()
        caller, name = CALLER.get(), None
        if is_recorded and caller is not THE_BROKER and not self._image.has_one_broker:
            caller = origin = clipped_origin(caller.change_origin.through(claim.node_id))
            name = origin_text(origin)
        batches = await transaction_of(records, now_ms, self._store.max_batch_bytes, name)
        # Before the append: what contradicts the image must not get into the log.
        delta = MetadataDelta(self._image)
        async for record in InTurns(records):
            delta.replay(record)
        offset = self._end_offset + sum(len(batch.records) for batch in batches) - 1
        image = await in_turns(delta.apply_in_turns(offset=offset, epoch=claim.epoch))
        change = self._loader.expect(delta, image, caller)
        with trio.CancelScope(shield=True):
            try:
                for batch in batches:
                    await self._append(batch, change if batch is batches[-1] else None)
            except BaseException:
                # Where nobody knows whether the whole change is in the log, it may yet be read.
                if self._unknown is None or self._unknown.change is not change:
                    self._loader.forget(change)
                raise
        self._image = image
        return change

    async def _settle(self) -> None:
        """Find out what has become of an append without an answer, and end the transaction that is open."""
        with trio.CancelScope(shield=True):
            await self._resolve_unknown()
            if self._is_in_transaction:
                abort = await PreparedBatch.of([AbortTransactionRecord()], self._clock.now_ms())
                await self._append(abort, None)

    async def _resolve_unknown(self) -> None:
        if (unknown := self._unknown) is not None:
            await self._append(unknown.batch, unknown.change)
            self._unknown = None
            if unknown.change is not None:
                self._image = unknown.change.image

    async def _append(self, batch: PreparedBatch, change: ExpectedChange | None) -> None:
        """Append ``batch``, the last one of ``change`` if that is given."""
        claim = self.require_active()
        try:
            await self._store.append(batch, claim=claim, expected_end=self._end_offset)
        except AppendUnknown as error:
            self._unknown = UnknownAppend(batch, change)
            raise KafkaError(f"the metadata store did not answer: {error}", code=ErrorCode.REQUEST_TIMED_OUT) from error
        except (ClaimLost, UnexpectedEnd) as error:
            log.warning("controller of epoch %d no more: %s", claim.epoch, error)
            self.deactivate()
            await self._store.resign(claim)
            raise NotController("this broker is not the controller any more") from error
        self._end_offset += len(batch.records)
        self._is_in_transaction = is_in_transaction_behind(batch, self._is_in_transaction)


def is_in_transaction_behind(batch: PreparedBatch, was_open: bool) -> bool:
    """Whether a transaction is open behind ``batch``, before which one was open or not."""
    if isinstance(batch.records[-1], EndTransactionRecord | AbortTransactionRecord):
        return False
    return was_open or isinstance(batch.records[0], BeginTransactionRecord)


async def transaction_of(
    records: Sequence[Any], now_ms: int, max_bytes: int, name: str | None = None
) -> list[PreparedBatch]:
    """``records`` as one batch; with a ``name`` they are a transaction, and also where one batch were larger than
    ``max_bytes``."""
    if name is None:
        batch = await PreparedBatch.of(records, now_ms)
        if len(batch.data) <= max_bytes:
            return [batch]
    in_transaction = [BeginTransactionRecord(name=name), *records, EndTransactionRecord()]
    return await split(in_transaction, now_ms, max_bytes)


async def split(records: Sequence[Any], now_ms: int, max_bytes: int) -> list[PreparedBatch]:
    """``records`` in their order, in batches of ``max_bytes`` at most; one that is larger by itself is left so."""
    batch = await PreparedBatch.of(records, now_ms)
    if len(batch.data) <= max_bytes or len(records) == 1:
        return [batch]
    middle = len(records) // 2
    return [*await split(records[:middle], now_ms, max_bytes), *await split(records[middle:], now_ms, max_bytes)]
