"""The MetadataLoader: reads the metadata store, and has each batch published, one after the other.

It is the only way to an image for every broker, that of the controller included: what is published is what the store
has, in its order, and the controller's decisions wait for none of it. A broker that is so far behind that a snapshot
has taken the place of what comes next publishes the snapshot, as one change from what it has. What the controller of
this broker has decided it expects here, so that the batch is not folded a second time, and that the request is
answered once all parts of this broker have followed. The journal says which client asked, here or through another
broker: the metadata say it (decision 98).

What cannot be read or folded ends the loading, and the broker, since no image behind it would be the cluster's: a
record of a newer version is not passed over.

Source: Kafka's MetadataLoader.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs
import trio

from kafka_wire.errors import KafkaError, WireError
from trio_broker.changes.audit_context import CALLER, THE_BROKER, Caller
from trio_broker.changes.change import Change
from trio_broker.changes.origin_text import read_origin
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.cluster.metadata_store import BelowLogStart, CommittedBatch, MetadataStore
from trio_broker.cluster.metadata_transactions import MetadataTransactions
from trio_broker.concurrency.free_lock import FreeLock
from trio_broker.concurrency.yield_budget import InTurns, in_turns

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class ExpectedChange:
    """What this broker's controller is about to append, which leads from the image of ``delta`` to ``image``.

    ``recorded`` is what the journal has of it once it is published.
    """

    delta: MetadataDelta
    image: MetadataImage
    caller: Caller
    recorded: Sequence[Change] = ()


@attrs.define(eq=False)
class MetadataLoader:
    """Publishes what ``store`` has behind the image that ``publisher`` has at first, which ``transactions`` go with."""

    store: MetadataStore
    publisher: MetadataPublisher
    transactions: MetadataTransactions = attrs.field(factory=MetadataTransactions)
    copy: Callable[[CommittedBatch], Awaitable[None]] | None = None
    """Keeps each batch before it is published."""
    lock: FreeLock = attrs.field(factory=FreeLock)
    """Held while a batch is published: who has it sees an image that all parts follow."""
    next_offset: int = attrs.field(init=False)
    """The offset behind the last batch that was read and published."""
    last_timestamp_ms: int = attrs.field(default=-1, init=False)
    """Of that batch."""
    leader_id: int = attrs.field(default=NO_LEADER, init=False)
    """Which broker the last LEADER_CHANGE named that was read; the one before it is ``previous_leader_id``."""
    previous_leader_id: int = attrs.field(default=NO_LEADER, init=False)
    _expected: dict[int, ExpectedChange] = attrs.field(factory=dict, init=False)
    _loaded: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.image.offset + 1

    @property
    def image(self) -> MetadataImage:
        """The image that is published, or about to be."""
        return self.publisher.cache.image

    def expect(self, delta: MetadataDelta, image: MetadataImage, caller: Caller) -> ExpectedChange:
        """Expect a change that ``caller`` asked for, before the append that leads to ``image``."""
        expected = self._expected[image.offset] = ExpectedChange(delta, image, caller)
        return expected

    def forget(self, expected: ExpectedChange) -> None:
        """Expect no longer what was not appended."""
        self._expected.pop(expected.image.offset, None)

    async def wait_loaded(self, offset: int) -> None:
        """Wait until everything before ``offset`` is published, and all parts of this broker have followed."""
        while self.next_offset < offset:
            await self._loaded.wait()

    async def run(self) -> None:
        """Publish what the store has, until cancelled or until something in it cannot be followed.

        Begun again after a failure between two batches, it goes on with the next one.
        """
        while True:
            try:
                async for batch in self.store.tail(self.next_offset):
                    if not await self._publish(partial(self._load, batch)):
                        return
                    self.last_timestamp_ms = batch.timestamp_ms
            except BelowLogStart as error:
                log.warning("%s: the newest snapshot is loaded instead", error)
                if not await self._publish(self._load_snapshot):
                    return
            except (KafkaError, WireError, OSError) as error:
                self.publisher.faults.loading_failed(error)
                return

    async def _publish(self, load: Callable[[], Awaitable[int]]) -> bool:
        """Publish what ``load`` has next, which returns the offset behind it; return whether it could be followed. If
        not the broker stops: were it tried again, the same would come of it."""
        # Shielded: a part that misses a batch would follow the next one from a state that never was.
        with trio.CancelScope(shield=True):
            async with self.lock:
                try:
                    self.next_offset = await load()
                except Exception as error:
                    self.publisher.faults.loading_failed(error)
                    return False
        self._loaded.set()
        self._loaded = trio.Event()
        return True

    async def _load_snapshot(self) -> int:
        """Publish the newest snapshot, with what differs in it from the image that is there.

        Raises:
            KafkaError, WireError, NotImplementedError: it is damaged, or has something that is not known.
            OSError: the store does not answer.
        """
        snapshot = await self.store.snapshot()
        assert snapshot is not None, "the log does not begin at 0"
        whole = MetadataDelta(MetadataImage())
        async for record in InTurns(snapshot.records()):
            whole.replay(record)
        last_offset, epoch = snapshot.id.end_offset - 1, snapshot.id.epoch
        image = await in_turns(whole.apply_in_turns(offset=last_offset, epoch=epoch))
        delta = await in_turns(MetadataDelta.between(self.image, image))
        self.transactions = MetadataTransactions()
        self._expected.clear()
        # Which controller has appended since is not in it.
        self.previous_leader_id, self.leader_id = self.leader_id, self.store.controller().leader_id
        await self.publisher.publish(delta, image)
        return snapshot.id.end_offset

    async def _load(self, batch: CommittedBatch) -> int:
        """Publish ``batch``, or keep it until its transaction ends."""
        if self.copy is not None:
            await self.copy(batch)
        expected, before = self._expected.pop(batch.last_offset, None), self.image
        caller = THE_BROKER
        if self.transactions.has_no_part_in(batch.records):
            records = batch.records
        else:
            records = [record async for record in InTurns(self.transactions.settled(batch.records))]
            if self.transactions.is_open:
                return batch.next_offset
            caller = read_origin(self.transactions.name or "") or THE_BROKER
        if not records:
            # A control batch, or the end of a transaction that came to nothing.
            if (leader_id := batch.leader_id) is not None:
                self.previous_leader_id, self.leader_id = self.leader_id, leader_id
            self.publisher.cache.set_image(attrs.evolve(before, offset=batch.last_offset, epoch=batch.epoch))
            return batch.next_offset
        # Of another epoch than this broker's: another controller has decided at that place.
        if expected is not None and expected.image.epoch != batch.epoch:
            expected = None
        if expected is not None and expected.delta.image is before:
            delta, image = expected.delta, expected.image
        else:
            delta = MetadataDelta(before)
            async for record in InTurns(records):
                delta.replay(record)
            image = await in_turns(delta.apply_in_turns(offset=batch.last_offset, epoch=batch.epoch))
        token = CALLER.set(caller if expected is None else expected.caller)
        try:
            recorded = await self.publisher.publish(delta, image)
        finally:
            CALLER.reset(token)
        if expected is not None:
            expected.recorded = recorded
        return batch.next_offset
