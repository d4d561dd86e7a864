"""The metadata store: the one log of the cluster's metadata, and who may append to it.

A log of record batches, each of which was written at the place that its writer expected, by the broker that had the
*claim*. Nothing but that comparison is trusted: a controller that has been replaced without noticing has its next
append refused, whatever it believes. Every store keeps these promises, and ``tests/cluster/test_metadata_store.py``
holds all of them to it:

* Offsets are contiguous, and an offset has one value for ever. A batch is there as a whole or not at all.
* An append with a claim that is over, or at another place than the end, is refused and changes nothing. Only where its
  very bytes stand at that place already it has succeeded: it is repeated because the first answer was lost.
* A claim has a higher epoch than all before it, which have ended: no process has one while another has. Its first batch
  is a LEADER_CHANGE.
* ``tail`` yields every batch once, in order, whichever way the store learns of them.
* The newest snapshot and the batches behind it fold into the same image as all batches from the beginning.

Every broker reads the store; the one with the claim is the controller. Offsets are those of records, control records
included, so that broker epochs and metadata offsets are the same numbers in each store.

Source: Kafka's RaftClient, Batch and LeaderAndEpoch; docs/decisions/0090-one-contract-for-metadata-stores.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import attrs

from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import RecordBatch, build_batch_in_turns, read_batches
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import decode_metadata_record, encode_metadata_record
from trio_broker.cluster.leader_change import leader_change_in
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.concurrency.yield_budget import in_turns

# --- Errors: each has changed nothing, but for AppendUnknown ---


class ClaimLost(Exception):
    """Another broker has claimed the log, or the claim has run out. Nothing was appended."""

    @classmethod
    def of(cls, claim: Claim) -> ClaimLost:
        """That ``claim`` is over."""
        return cls(f"broker {claim.node_id} has not got epoch {claim.epoch} of the metadata log any more")


class UnexpectedEnd(Exception):
    """The log does not end where the writer expected: it has not read everything. Nothing was appended."""

    def __init__(self, expected_end: int, end_offset: int) -> None:
        super().__init__(f"the metadata log ends at offset {end_offset}, and not at {expected_end}")
        self.expected_end = expected_end
        self.end_offset = end_offset


class AppendUnknown(Exception):
    """No answer came in time: the batch may be in the log, or may yet get there.

    Only two things may follow: the same append again, or no append any more in this epoch.
    """


class BelowLogStart(Exception):
    """What was asked for is contained in a snapshot, and no longer in the log."""

    def __init__(self, offset: int, log_start_offset: int) -> None:
        super().__init__(f"the metadata log begins at offset {log_start_offset}, behind {offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset


# --- Values ---


@attrs.frozen
class LeaderAndEpoch:
    """The controller, ``NO_LEADER`` while there is none, and the last epoch that is known.

    ``incarnation_id`` tells the process that is the controller from others of the same id. An epoch has one.
    """

    leader_id: int = NO_LEADER
    epoch: int = 0
    incarnation_id: bytes = attrs.field(default=NO_UUID, eq=False)


@attrs.frozen
class Claim:
    """The right of one broker to append, in one epoch.

    ``end_offset`` is behind its LEADER_CHANGE: the claimant may decide once it has read the log up to there. ``token``
    is what the store compares, and nobody else's business.
    """

    node_id: int
    epoch: int
    end_offset: int
    token: object = attrs.field(default=None, repr=False)


@attrs.frozen
class PreparedBatch:
    """Records, and their bytes as one batch, which a repeated append has again. Offset and epoch are the store's."""

    records: Sequence[Any]
    data: bytes

    @classmethod
    async def of(cls, records: Sequence[Any], now_ms: int) -> PreparedBatch:
        """``records`` as one batch, encoded in turns."""
        values = (NewRecord(now_ms, None, encode_metadata_record(record)) for record in records)
        return cls(tuple(records), await in_turns(build_batch_in_turns(values)))

    def is_in(self, committed: bytes, *, base_offset: int, epoch: int) -> bool:
        """Whether ``committed``, bytes of the log, are this batch as appended at ``base_offset`` in ``epoch``."""
        [own] = read_batches(bytearray(self.data))
        own.stamp(base_offset=base_offset, partition_leader_epoch=epoch)
        return own.buffer == committed


@attrs.frozen
class CommittedBatch:
    """A batch of the log. ``data`` are its bytes, offset and epoch included; a control batch has no ``records``."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[Any] = attrs.field(repr=False)
    data: bytes = attrs.field(repr=False)

    @property
    def next_offset(self) -> int:
        """The offset behind it."""
        return self.last_offset + 1

    @property
    def leader_id(self) -> int | None:
        """Which broker a LEADER_CHANGE says leads; None for every other batch."""
        [batch] = read_batches(self.data)
        change = leader_change_in(batch)
        return None if change is None else change.leader_id

    @classmethod
    def of(cls, batch: RecordBatch, records: Sequence[Any] | None = None) -> CommittedBatch:
        """The batch of the log that ``batch`` is; ``records`` are given where they need not be decoded again.

        Raises:
            KafkaError, WireError: it is damaged, or a record is of a kind or version that is not known.
        """
        header = batch.header
        if records is None:
            batch.verify_crc()
            values = () if header.is_control else batch.records()
            records = tuple(decode_metadata_record(record.value or b"") for record in values)
        return cls(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            records,
            bytes(batch.buffer),
        )


class MetadataStore(Protocol):
    """Where the metadata is. All that waits may be cancelled; an append that was is as one whose answer was lost."""

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that can be appended. A decision of more records is a transaction of several batches."""
        ...

    @property
    def problem(self) -> str:
        """Why the metadata cannot be read or changed now; empty if they can."""
        ...

    async def claim(self, node_id: int, incarnation_id: bytes = NO_UUID) -> Claim:
        """Wait until no other process has the claim, take it, and append the LEADER_CHANGE of its epoch.

        A process is a broker and its incarnation, so that a second one of a broker's id takes nothing away. A claim
        that the same process had before is over then; that of an earlier life of the broker has to run out.

        Raises:
            OSError: the store refused or failed.
        """
        ...

    async def wait_lost(self, claim: Claim) -> None:
        """Return when ``claim`` is over, as far as this broker can know without an append."""
        ...

    async def resign(self, claim: Claim) -> None:
        """Give ``claim`` up, so that another broker need not wait until it runs out. One that is over stays so."""
        ...

    def controller(self) -> LeaderAndEpoch:
        """Who has the claim, as far as is known: it may be over already. Does not wait."""
        ...

    async def append(self, batch: PreparedBatch, *, claim: Claim, expected_end: int) -> int:
        """Append ``batch`` at ``expected_end`` and return that offset, once it is durable.

        Raises:
            ClaimLost, UnexpectedEnd: it is refused.
            AppendUnknown: no answer came in time.
            OSError: the store refused and nothing was written, or it has failed and accepts nothing more.
        """
        ...

    async def end_offset(self) -> int:
        """The end of the log now: everything that was appended before the call is below it.

        Raises:
            OSError: the store does not answer, or has failed.
        """
        ...

    def tail(self, from_offset: int) -> AsyncIterator[CommittedBatch]:
        """Yield all batches from ``from_offset`` on, where one begins, in order; at the end wait for more.

        The iterator raises:
            BelowLogStart: a snapshot has taken the place of what comes next.
            OSError: the store has failed for good.
        """
        ...

    async def snapshot(self) -> MetadataSnapshot | None:
        """The newest snapshot, None if the log has all that ever was.

        Raises:
            OSError: the store does not answer, or has failed.
        """
        ...

    async def take_snapshot(self, snapshot: MetadataSnapshot, *, claim: Claim) -> None:
        """Keep ``snapshot``, which ends where a batch does, and delete the log before it. An older one is passed over.

        Raises:
            ClaimLost: it is refused.
            OSError: the store refused. What was there is there still.
        """
        ...
