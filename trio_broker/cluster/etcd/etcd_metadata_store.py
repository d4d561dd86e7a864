"""The metadata store in etcd.

Each change is one transaction, which compares the birth of the controller's key and the last change of ``end``: neither
comes back, whatever is deleted. Nothing else is trusted. A watch and a lease are hints, a read may be stale, and a call
without an answer may be carried out at any later time: so an append is repeated with the same bytes at the same place,
until etcd says whether they are there.

Source: docs/decisions/0090-one-contract-for-metadata-stores.md, docs/formats/metadata-in-etcd.md.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import read_batches
from trio_broker.cluster.etcd.client import Etcd
from trio_broker.cluster.etcd.errors import EtcdError, EtcdLeaseGone, EtcdOutOfSpace, EtcdUnknown
from trio_broker.cluster.etcd.layout import (
    ClusterState,
    EndOfLog,
    EtcdLayout,
    ForeignMetadata,
    Holder,
    birth_of,
    is_held,
    require_held,
    state_of,
    state_operations,
)
from trio_broker.cluster.etcd.lease_keeper import HeldLease, LeaseKeeper
from trio_broker.cluster.etcd.log_tail import IDLE_READ_SECONDS, EtcdTail, batches_in, page_from
from trio_broker.cluster.etcd.messages import (
    Compare,
    RangeRequest,
    RequestOp,
    created_at,
    delete,
    modified_at,
    put,
)
from trio_broker.cluster.etcd.pulse import Pulse
from trio_broker.cluster.etcd.snapshots import MAX_STORED_BYTES, read_current_snapshot, write_snapshot
from trio_broker.cluster.etcd.transactions import RETRY_SECONDS, EtcdTransactions, as_os_error, until_answered
from trio_broker.cluster.leader_change import leader_change_batch
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import (
    AppendUnknown,
    Claim,
    ClaimLost,
    CommittedBatch,
    LeaderAndEpoch,
    PreparedBatch,
    UnexpectedEnd,
)
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.concurrency.barrier import start_background
from trio_broker.runtime.clock import Clock

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 1024 * 1024
"""etcd takes requests of 1.5 MiB, in which the batch is not alone."""

ALARM_SECONDS: Final = 60.0
"""Between two questions for alarms."""

WARN_STORED_BYTES: Final = MAX_STORED_BYTES // 2


class EtcdMetadataStore:
    """Implements ``MetadataStore``. ``join`` comes first; ``run`` runs beside everything else."""

    max_batch_bytes: Final = MAX_BATCH_BYTES

    def __init__(self, etcd: Etcd, layout: EtcdLayout, cluster_id: str, clock: Clock) -> None:
        self._etcd, self._layout, self._clock = etcd, layout, clock
        self.transactions = EtcdTransactions(etcd, layout, cluster_id)
        self._throttle = LogThrottle(logger, clock)
        self._leases = LeaseKeeper(etcd, self._throttle)
        self._claim: Claim | None = None
        self._claim_lease: HeldLease | None = None
        self._leader = LeaderAndEpoch()
        # This broker as the controller, when its claim has ended here: it may be in etcd for a while.
        self._former: LeaderAndEpoch | None = None
        # Of the newest state that was read or made: an older one is stale.
        self._revision = 0
        self._end = EndOfLog()
        # Epoch and offset of an append that may be carried out yet.
        self._unsettled: tuple[int, int] | None = None
        self._stored_bytes = 0
        # Why the last look was not answered.
        self._unanswered = ""
        # Why nothing is done any more.
        self.failure: ForeignMetadata | None = None
        self.changed = Pulse()
        self._controller_changed = Pulse()

    # --- What runs beside everything ---

    async def join(self) -> None:
        """Enter the cluster's id in etcd, or compare it with the one that is there. Waits until etcd answers.

        Raises:
            OSError: the keys belong to another cluster, or etcd refuses.
        """
        state = await until_answered(self.transactions.entered, self._throttle)
        self.transactions.require_own(state)
        self._note(state)

    async def run(self) -> None:
        """Hold a lease, and learn who is the controller."""
        async with trio.open_nursery() as nursery:
            start_background(nursery, "the lease of the metadata", self._leases.run)
            start_background(nursery, "the watch of the metadata", self._watch)
            start_background(nursery, "the look for the controller", self._look)
            start_background(nursery, "the look for alarms of etcd", self._look_for_alarms)

    async def _watch(self) -> None:
        """Wake whatever waits for a change. Nothing is taken from the events: they may be late, and some missing."""
        while True:
            try:
                async with self._etcd.watch(self._layout.controller, self._layout.end + b"\0") as watch:
                    while True:
                        await watch.receive()
                        self.changed.wake()
            except EtcdError as error:
                logger.debug("the watch of the metadata ended: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def _look(self) -> None:
        """Read who is the controller, whenever something has changed, and every second."""
        while True:
            moment = self.changed.moment
            try:
                await self._look_once()
                self._unanswered = ""
            except ForeignMetadata as error:
                self._fail(error)
            except OSError as error:
                self._unanswered = str(error.strerror)
                self._throttle.warning("look", f"who is the controller is not known: {error.strerror}")
            await self.changed.wait(since=moment, until=trio.current_time() + IDLE_READ_SECONDS)

    @property
    def problem(self) -> str:
        """See ``MetadataStore``."""
        return self._unanswered if self.failure is None else str(self.failure.strerror)

    async def _look_for_alarms(self) -> None:
        """Say each minute what etcd itself calls wrong."""
        while True:
            try:
                status = await self._etcd.status()
            except EtcdError as error:
                logger.debug("etcd does not say how it is: %s", error)
            else:
                for alarm in status.errors:
                    logger.warning("etcd, whose database has %d bytes, raises an alarm: %s", status.db_size, alarm)
            await trio.sleep(ALARM_SECONDS)

    async def _look_once(self) -> None:
        known = self._revision
        state = await self.transactions.state()
        if state.revision < known:
            state = await self.transactions.present_state()
        if state.revision < known:
            raise ForeignMetadata(
                errno.ESTALE,
                f"etcd has gone back from revision {known} to {state.revision}, as if restored from a backup:"
                " what was decided since then is missing there",
            )
        self._note(state)

    def _fail(self, error: ForeignMetadata) -> None:
        """Do nothing any more: what is in etcd is not what this broker has read."""
        if self.failure is None:
            logger.critical("the cluster's metadata cannot be used any more: %s", error.strerror)
        self.failure = error
        if self._claim is not None:
            self._end_claim(self._claim)
        self.changed.wake()

    def _require_whole(self) -> None:
        if self.failure is not None:
            raise ForeignMetadata(self.failure.errno, self.failure.strerror)

    def _note(self, state: ClusterState) -> None:
        """Take over what ``state`` says, unless more is known already."""
        claim = self._claim
        if claim is not None and state.revision >= birth_of(claim) and not is_held(claim, state):
            self._end_claim(claim)
        if state.revision < self._revision:
            return
        self._revision, self._end = state.revision, state.end
        self._note_stored(state.stored_bytes)
        leader = state.leader if state.leader != self._former else LeaderAndEpoch(epoch=state.epoch)
        if leader != self._leader and leader.epoch >= self._leader.epoch:
            self._leader = leader
            self._controller_changed.wake()

    def _note_stored(self, stored_bytes: int) -> None:
        self._stored_bytes = stored_bytes
        if stored_bytes > WARN_STORED_BYTES:
            self._throttle.warning(
                "size",
                f"the metadata takes {stored_bytes} bytes in etcd; beyond {MAX_STORED_BYTES} nothing is appended",
            )

    # --- The claim ---

    @property
    def held_claim(self) -> Claim | None:
        """The claim of this broker, None while it has none."""
        return self._claim

    async def claim(self, node_id: int, incarnation_id: bytes = NO_UUID) -> Claim:
        if self._claim is not None:
            self._end_claim(self._claim)
        attempt, lease = None, None
        try:
            while True:
                self._require_whole()
                lease = await self._leases.held()
                state = await until_answered(self.transactions.state, self._throttle)
                holder = state.holder
                if holder is None or state.controller is None:
                    attempt = Holder(node_id, state.epoch + 1, lease.id, incarnation_id)
                    await self._try(self.claim_conditions(state), self._claiming_operations(attempt, state), lease)
                elif holder == attempt and lease.id == attempt.lease:
                    return self._claimed(attempt, state, lease)
                elif (holder.node_id, holder.incarnation_id) == (node_id, incarnation_id):
                    # Of an attempt that was given up.
                    birth = created_at(self._layout.controller, state.controller.create_revision)
                    await self._try([birth], [delete(self._layout.controller)], lease)
                else:
                    await self._controller_changed.wait(until=trio.current_time() + IDLE_READ_SECONDS)
        except OSError:
            # The lease is kept for the next time: an etcd that is full grants no other.
            raise
        except BaseException:
            # An attempt may come off yet, with nobody to use it: it has to run out.
            if lease is not None and attempt is not None:
                self._leases.abandon(lease)
            raise

    def claim_conditions(self, state: ClusterState) -> Sequence[Compare]:
        """That nobody is the controller, and that no epoch was begun and nothing appended since ``state``."""
        epoch = state.controller_epoch
        return [
            self.transactions.in_own_cluster,
            created_at(self._layout.controller, 0),
            modified_at(self._layout.controller_epoch, 0 if epoch is None else epoch.mod_revision),
            modified_at(self._layout.end, state.end.mod_revision),
        ]

    def _claiming_operations(self, holder: Holder, state: ClusterState) -> Sequence[RequestOp]:
        """What makes ``holder`` the controller, with the first batch of its epoch."""
        batch = leader_change_batch(
            holder.node_id, timestamp=self._clock.now_ms(), base_offset=state.end.offset, epoch=holder.epoch
        )
        return [
            put(self._layout.controller, holder.to_bytes(), lease=holder.lease),
            put(self._layout.controller_epoch, b"%d" % holder.epoch),
            *self._appending_operations(batch, state.end, state.end.after(batch, 1, holder.epoch)),
        ]

    async def _try(self, compare: Sequence[Compare], success: Sequence[RequestOp], lease: HeldLease) -> None:
        """Make a transaction, which may need ``lease``, and whose outcome is read afterwards."""
        try:
            await self._etcd.txn(compare, success)
        except EtcdOutOfSpace as error:
            raise as_os_error(error) from error
        except EtcdError as error:
            self._throttle.info("claim", f"the metadata is not claimed yet: {error}")
            if isinstance(error, EtcdLeaseGone):
                # etcd 3.4 may go on to say that it is renewed.
                self._leases.abandon(lease)
            await trio.sleep(RETRY_SECONDS)

    def _claimed(self, holder: Holder, state: ClusterState, lease: HeldLease) -> Claim:
        assert state.controller is not None
        self._claim = Claim(holder.node_id, holder.epoch, state.end.offset, state.controller.create_revision)
        self._claim_lease = lease
        self._note(state)
        return self._claim

    def _end_claim(self, claim: Claim) -> None:
        """Know that ``claim`` is over, and see to it that it is in etcd as well."""
        if self._claim != claim:
            return
        self._claim, self._former = None, LeaderAndEpoch(claim.node_id, claim.epoch)
        if self._leader == self._former:
            self._leader = LeaderAndEpoch(epoch=claim.epoch)
        if self._claim_lease is not None:
            self._leases.abandon(self._claim_lease)

    async def wait_lost(self, claim: Claim) -> None:
        """See ``MetadataStore``. A claim whose lease was not renewed in time counts as lost, since nobody knows.

        etcd might still accept its appends; but without etcd this broker may not say any more who is alive.
        """
        lease = self._claim_lease
        while self._claim == claim and lease is not None and lease.is_alive:
            await self._leases.changed.wait(until=lease.deadline)
        self._end_claim(claim)

    async def resign(self, claim: Claim) -> None:
        if self._claim == claim and (lease := self._claim_lease) is not None:
            self._end_claim(claim)
            await self._leases.revoke(lease)

    def controller(self) -> LeaderAndEpoch:
        return self._leader

    # --- Appends ---

    async def append(self, batch: PreparedBatch, *, claim: Claim, expected_end: int) -> int:
        data = stamped(batch, base_offset=expected_end, epoch=claim.epoch)
        if claim != self._claim:
            return await self._look_for(data, claim, expected_end)
        place = (claim.epoch, expected_end)
        was_unsettled = self._unsettled == place
        if not was_unsettled:
            self._require_room(data)
        self._unsettled = place
        try:
            appended = await self._append_at(expected_end, data, batch, claim)
        except EtcdUnknown as error:
            raise AppendUnknown(f"etcd does not answer: {error}") from error
        except EtcdError as error:
            if was_unsettled:
                # What refuses this try says nothing of the one before.
                raise AppendUnknown(
                    f"an earlier try was not answered, and now {as_os_error(error).strerror}"
                ) from error
            self._unsettled = None
            raise as_os_error(error) from error
        except (ClaimLost, UnexpectedEnd):
            self._unsettled = None
            raise
        self._unsettled = None
        return appended

    async def _append_at(self, offset: int, data: bytes, batch: PreparedBatch, claim: Claim) -> int:
        # Where the end is not known, the transaction fails and says it.
        end = self._end if self._end.offset == offset else EndOfLog(offset)
        while True:
            self._require_whole()
            new_end = end.after(data, len(batch.records), claim.epoch)
            response = await self.transactions.settled(
                self.append_conditions(claim, end),
                self._appending_operations(data, end, new_end),
                state_operations(self._layout, RangeRequest(key=self._layout.batch(offset))),
            )
            if response.succeeded:
                self._note_appended(new_end, response.revision)
                return offset
            state = state_of(response)
            self._note(state)
            if state.read and state.read[0].value == data:
                return offset
            self.transactions.require_own(state)
            require_held(claim, state)
            if state.end.offset != offset:
                raise UnexpectedEnd(offset, state.end.offset)
            end = state.end

    async def _look_for(self, data: bytes, claim: Claim, offset: int) -> int:
        """Return ``offset`` if an earlier append of a claim that is over has put ``data`` there.

        The claim ends in etcd as well, so that no such append can be carried out later.
        """
        reading = state_operations(self._layout, RangeRequest(key=self._layout.batch(offset)))
        key = self._layout.controller
        try:
            response = await self.transactions.settled(
                [created_at(key, birth_of(claim))], [delete(key), *reading], reading
            )
        except EtcdError as error:
            raise AppendUnknown(f"etcd does not answer: {error}") from error
        state = state_of(response)
        if state.read and state.read[0].value == data:
            return offset
        raise ClaimLost.of(claim)

    def append_conditions(self, claim: Claim, end: EndOfLog) -> Sequence[Compare]:
        """That ``claim`` lasts, and that nothing was appended behind ``end``."""
        return self.transactions.while_held(claim, modified_at(self._layout.end, end.mod_revision))

    def _appending_operations(self, data: bytes, end: EndOfLog, new_end: EndOfLog) -> Sequence[RequestOp]:
        return [put(self._layout.batch(end.offset), data), put(self._layout.end, new_end.to_bytes())]

    def _require_room(self, data: bytes) -> None:
        if len(data) > MAX_BATCH_BYTES:
            raise OSError(errno.EMSGSIZE, f"a batch of {len(data)} bytes; etcd is given at most {MAX_BATCH_BYTES}")
        if self._stored_bytes + len(data) > MAX_STORED_BYTES:
            raise OSError(
                errno.ENOSPC,
                f"the metadata takes {self._stored_bytes} bytes in etcd, of {MAX_STORED_BYTES}: a snapshot is due",
            )

    def _note_appended(self, end: EndOfLog, revision: int) -> None:
        if revision >= self._revision:
            self._note_stored(self._stored_bytes + end.appended_bytes - self._end.appended_bytes)
            self._revision, self._end = revision, attrs.evolve(end, mod_revision=revision)
        self.changed.wake()

    # --- Reading ---

    async def end_offset(self) -> int:
        self._require_whole()
        state = await self.transactions.present_state()
        self._note(state)
        return state.end.offset

    def tail(self, from_offset: int) -> EtcdTail:
        return EtcdTail(self._read_from, from_offset, self.changed, self._throttle)

    async def _read_from(self, offset: int) -> Sequence[CommittedBatch]:
        self._require_whole()
        state = await self.transactions.state(page_from(self._layout, offset))
        if state.end.offset < offset:
            state = await self.transactions.present_state(page_from(self._layout, offset))
        self._note(state)
        return batches_in(state, offset)

    # --- Snapshots ---

    async def snapshot(self) -> MetadataSnapshot | None:
        self._require_whole()
        return await read_current_snapshot(self.transactions)

    async def take_snapshot(self, snapshot: MetadataSnapshot, *, claim: Claim) -> None:
        self._require_whole()
        await write_snapshot(self.transactions, snapshot, claim)


def stamped(batch: PreparedBatch, *, base_offset: int, epoch: int) -> bytes:
    """The bytes of ``batch`` as they stand in the log."""
    data = bytearray(batch.data)
    [own] = read_batches(data)
    own.stamp(base_offset=base_offset, partition_leader_epoch=epoch)
    return bytes(data)
