"""A broker's own metadata into etcd, and those in etcd back to a broker: ``trio-broker cluster join`` and ``leave``.

Both work on the data directory of a broker that is stopped, and hold its lock meanwhile.

**Join.** The metadata become a snapshot in etcd, under a prefix where nothing was ever appended. One transaction names
it, with the cluster's id, the end of the log and the newest leader epoch: offsets, ids and epochs go on. Then the
directory's log becomes a copy. What was cut before the transaction has changed nothing but chunks that nobody reads;
what was cut behind it finds its own snapshot there, and goes on.

**Leave.** This broker claims the log, so that nobody else decides, reads the copy up to the end, and makes it its own.
Then the keys in etcd are deleted, as long as the claim lasts. What was cut before the copy changed hands has changed
nothing; what was cut behind it deletes the keys the next time. The first start alone takes the other brokers out
(``cluster_control``), so only a broker that has all that is committed may leave.

Source: docs/decisions/0092-metadata-change-hands-by-one-name.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath

import attrs
import trio

from kafka_wire.primitives import NO_BROKER_EPOCH
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import (
    ClusterState,
    CurrentSnapshot,
    EndOfLog,
    cluster_bytes,
    end_of_prefix,
    state_of,
    state_operations,
)
from trio_broker.cluster.etcd.messages import Compare, RequestOp, created_at, delete, modified_at, put
from trio_broker.cluster.etcd.opening import OpenStore
from trio_broker.cluster.etcd.snapshots import MAX_STORED_BYTES, chunk_operations, described
from trio_broker.cluster.etcd.transactions import EtcdTransactions
from trio_broker.cluster.kafka_handover import UNREADABLE, HandoverRefused
from trio_broker.cluster.metadata_copy import MetadataCopy, image_in, open_metadata_log, replace_by_snapshot
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_ownership import give_up, has_records, is_own, take_over
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import Claim
from trio_broker.cluster.stored_metadata import require_own_metadata
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import file_names
from trio_broker.storage.log_directory import LogDirectory, MetaProperties, clean_shutdown_epoch

CLAIM_SECONDS = 10.0
"""How long a claim may take that nobody else has: a lease that has just ended, and an election in etcd."""


@attrs.frozen
class StoppedBroker:
    """The metadata in the data directory of a broker that is stopped, which is locked."""

    directory: LogDirectory
    properties: MetaProperties
    copy: MetadataCopy
    is_own: bool

    @property
    def path(self) -> PurePath:
        return self.directory.path

    def snapshot(self) -> MetadataSnapshot:
        """All that the log says, as one snapshot: the same bytes whenever it is asked for. Blocks."""
        log = self.copy.metadata_log
        if (last := log.last_batch()) is None:
            snapshot = log.read_snapshot()
            assert snapshot is not None, "there are records"
            return snapshot
        time_ms = last.header.max_timestamp
        return MetadataSnapshot.of_image(self.copy.image, last_timestamp_ms=time_ms, now_ms=time_ms)


@contextmanager
def stopped_broker(path: PurePath, runtime: Runtime) -> Iterator[StoppedBroker]:
    """Hold the lock of a data directory, with its metadata log open. Blocks.

    Raises:
        HandoverRefused: it is none, or in use, or Kafka's, or cannot be read.
        OSError: the disk refused.
    """
    disk, directory = runtime.disk, LogDirectory(runtime.disk, path)
    if not disk.exists(path / file_names.META_PROPERTIES):
        raise HandoverRefused(f"{path} is not a data directory: it has no meta.properties")
    try:
        properties = directory.open()
        assert properties is not None, "meta.properties is there"
        require_own_metadata(disk, [path])
        owns = is_own(disk, path)
        metadata_log = open_metadata_log(directory, runtime)
        copy = MetadataCopy.of(metadata_log, metadata_log.replay(), runtime.workers)
        try:
            yield StoppedBroker(directory, properties, copy, owns)
        finally:
            copy.metadata_log.close()
    except UNREADABLE as error:
        raise HandoverRefused(str(error)) from error
    finally:
        directory.unlock()


# --- Join ---


@attrs.frozen
class Joined:
    """Which cluster's metadata are in etcd now, up to which offset, and what they take; whether they ``were_there``
    before."""

    cluster_id: str
    end_offset: int
    topics: int
    stored_bytes: int
    were_there: bool


async def move_into_etcd(
    path: PurePath, runtime: Runtime, open_store: OpenStore, *, restores: bool = False
) -> Joined | None:
    """Have the metadata of the data directory ``path`` in etcd, in place of its own; None if it has none. Blocks.

    With ``restores`` a copy is brought too, where etcd has lost what it is a copy of. All brokers of the cluster go on
    then, but one whose copy ends later.

    Raises:
        HandoverRefused: a broker runs on the directory, or it cannot be read, or etcd has others there or no room.
        OSError: etcd refuses or does not answer, or the disk refused.
    """
    if not has_records(runtime.disk, path):
        return None
    with stopped_broker(path, runtime) as broker:
        async with open_store(broker.properties.cluster_id) as (store, _):
            transactions = store.transactions
            state = await transactions.state_of_any()
            log = broker.copy.metadata_log
            # A broker that has been started since has left the id of the cluster there.
            brings = broker.is_own or (restores and not state.end.offset)
            if state.cluster is not None or not brings:
                transactions.require_own(state)
            if not brings and state.end.offset < log.log_end_offset:
                raise HandoverRefused(
                    f"the metadata in etcd end at offset {state.end.offset}, and this copy at {log.log_end_offset}:"
                    " they were emptied or set back; --restore brings the copy where nothing is"
                )
            if brings:
                await bring(transactions, state, broker.snapshot(), log.leader_epoch)
                if broker.is_own:
                    give_up(runtime.disk, path)
                state = await transactions.present_state()
        return Joined(
            broker.properties.cluster_id,
            state.end.offset,
            len(broker.copy.image.topics),
            state.stored_bytes,
            were_there=not brings,
        )


async def bring(
    transactions: EtcdTransactions, state: ClusterState, snapshot: MetadataSnapshot, leader_epoch: int
) -> None:
    """Make ``snapshot`` all that the cluster has decided, where ``state`` is what is there.

    Raises:
        HandoverRefused: something was decided there that is not in it, or it is too large.
        OSError: etcd refuses or does not answer.
    """
    layout, current = transactions.layout, described(snapshot, appended_bytes=0)
    if state.snapshot is not None and state.snapshot.name == current.name:
        return
    if state.controller is not None or state.end.appended_bytes or state.end.offset > snapshot.id.end_offset:
        raise HandoverRefused(
            f"under {layout.prefix.decode()} in etcd the cluster has gone on, up to offset {state.end.offset}, without"
            f" this directory, which ends at {snapshot.id.end_offset}: name another prefix, or remove what is there"
        )
    if current.size_bytes > MAX_STORED_BYTES:
        raise HandoverRefused(f"the metadata take {current.size_bytes} bytes; etcd is given at most {MAX_STORED_BYTES}")
    bringing = Bringing(transactions, state, current)
    # What an earlier try has left.
    await bringing.make([delete(layout.snapshots, end_of_prefix(layout.snapshots))])
    for operation in chunk_operations(layout, current, snapshot.content):
        await bringing.make([operation])
    await bringing.make(
        [
            put(layout.cluster, cluster_bytes(transactions.cluster_id)),
            put(layout.controller_epoch, b"%d" % leader_epoch),
            put(layout.end, EndOfLog(snapshot.id.end_offset, snapshot.id.epoch).to_bytes()),
            put(layout.current_snapshot, current.to_bytes()),
        ]
    )


@attrs.frozen
class Bringing:
    """The transactions that bring the snapshot ``current``, while nothing but that changes of ``state``."""

    transactions: EtcdTransactions
    state: ClusterState
    current: CurrentSnapshot

    @property
    def conditions(self) -> Sequence[Compare]:
        layout, state = self.transactions.layout, self.state
        return [
            created_at(layout.cluster, 0) if state.cluster is None else self.transactions.in_own_cluster,
            created_at(layout.controller, 0),
            modified_at(layout.end, state.end.mod_revision),
        ]

    async def make(self, operations: Sequence[RequestOp]) -> None:
        """Make one, which may be carried out again as long as the snapshot is not named.

        Raises:
            HandoverRefused: somebody else has changed something.
            OSError: etcd refuses or does not answer.
        """
        present = state_operations(self.transactions.layout)
        response = await self.transactions.made(self.conditions, operations, present)
        if not response.succeeded:
            found = state_of(response).snapshot
            if found is None or found.name != self.current.name:
                raise HandoverRefused("the keys in etcd are changed by somebody else at the same time")


# --- Leave ---


@attrs.frozen
class Departure:
    """What a broker that leaves takes along, up to ``end_offset``, and what the others lose: ``other_brokers``, which
    are registered, and the replicas that they have of ``replicated`` partitions.

    ``is_end_known`` is whether etcd has said that nothing was decided behind it; a copy may be behind. ``is_clean`` is
    whether the broker was stopped cleanly, and ``was_own`` whether it has left before.
    """

    node_id: int
    cluster_id: str
    end_offset: int
    topics: int
    other_brokers: Sequence[int]
    replicated: int
    is_end_known: bool
    is_clean: bool
    was_own: bool


async def move_out_of_etcd(
    path: PurePath, runtime: Runtime, open_store: OpenStore | None, agree: Callable[[Departure], bool]
) -> Departure:
    """Make the copy in the data directory ``path`` the broker's own metadata, and have those in etcd go, if ``agree``
    returns true. Without ``open_store`` etcd is not asked, as where it is lost. Blocks.

    Raises:
        HandoverRefused: a broker of the cluster runs, or has what this one has not; or the directory cannot be read.
        OSError: etcd refuses or does not answer, or the disk refused.
    """
    with stopped_broker(path, runtime) as broker:
        if open_store is None:
            return _leave_alone(broker, runtime, agree)
        async with open_store(broker.properties.cluster_id) as (store, nursery):
            return await _leave_etcd(broker, store, nursery, runtime, agree)


def _leave_alone(broker: StoppedBroker, runtime: Runtime, agree: Callable[[Departure], bool]) -> Departure:
    image = broker.copy.image
    departure = departure_of(broker, image, is_end_known=broker.is_own)
    if not broker.is_own:
        running = [each.broker_id for each in image.brokers.values() if not each.fenced]
        if others := sorted(set(running) - {broker.properties.node_id}):
            raise HandoverRefused(
                f"broker {others[0]} was in contact when this copy ended, at offset {departure.end_offset}: name the"
                " metadata.store, or leave with the broker that was stopped last; where it was lost while they ran,"
                " bring the copy that ends last into another: trio-broker cluster join --restore"
            )
        if agree(departure):
            _take_over(broker, runtime, broker.copy.metadata_log.leader_epoch)
    return departure


async def _leave_etcd(
    broker: StoppedBroker,
    store: EtcdMetadataStore,
    nursery: trio.Nursery,
    runtime: Runtime,
    agree: Callable[[Departure], bool],
) -> Departure:
    transactions, node_id = store.transactions, broker.properties.node_id
    state = await transactions.state_of_any()
    if broker.is_own and state.cluster is None:
        return departure_of(broker, broker.copy.image, is_end_known=True)
    transactions.require_own(state)
    # Its own is that of an earlier try, or of a life that has ended: the directory is locked.
    if state.holder is not None and state.holder.node_id != node_id:
        raise HandoverRefused(f"broker {state.holder.node_id} is in contact: stop all brokers first")
    if not broker.is_own:
        # Before anybody agrees to what would be refused then.
        await broker.copy.require_beginning_of(store)
    image = broker.copy.image if broker.is_own else await image_in(store)
    departure = departure_of(broker, image, is_end_known=True)
    if broker.is_own:
        conditions = unchanged(transactions, state, broker.copy.metadata_log.log_end_offset)
    if not agree(departure):
        return departure
    if not broker.is_own:
        start_background(nursery, "metadata in etcd", store.run)
        claim = await _claimed(store, node_id)
        await _take_all_over(broker, store, claim, runtime)
        conditions = transactions.while_held(claim)
    prefix = transactions.layout.prefix
    response = await transactions.made(conditions, [delete(prefix, end_of_prefix(prefix))])
    if not response.succeeded and (await transactions.state_of_any()).cluster is not None:
        raise HandoverRefused("the directory has metadata of its own now, and those in etcd are not deleted: repeat it")
    return departure


def unchanged(transactions: EtcdTransactions, state: ClusterState, own_end: int) -> Sequence[Compare]:
    """That nothing was decided in etcd since ``state``, behind which a log that has left ends at ``own_end``.

    Raises:
        HandoverRefused: it does not.
    """
    if state.end.offset > own_end:
        raise HandoverRefused(
            f"in etcd the cluster has gone on up to offset {state.end.offset}, and this directory has metadata of its"
            f" own up to {own_end}: the two have parted"
        )
    layout, controller = transactions.layout, state.controller
    return [
        transactions.in_own_cluster,
        created_at(layout.controller, 0 if controller is None else controller.create_revision),
        modified_at(layout.end, state.end.mod_revision),
    ]


async def _claimed(store: EtcdMetadataStore, node_id: int) -> Claim:
    with trio.move_on_after(CLAIM_SECONDS):
        return await store.claim(node_id)
    raise HandoverRefused("another broker has come, or etcd has no leader: stop all brokers first")


async def _take_all_over(broker: StoppedBroker, store: EtcdMetadataStore, claim: Claim, runtime: Runtime) -> None:
    """Read the copy up to the beginning of ``claim``, behind which nobody else decides, and make it the broker's."""
    await broker.copy.catch_up(store, partial(replace_by_snapshot, broker.directory, runtime))
    if broker.copy.metadata_log.log_end_offset < claim.end_offset:
        raise HandoverRefused(f"{broker.path} has no room for all of the metadata")
    # Of what was decided since it was agreed to, too.
    require_all_here(broker.copy.image, claim.node_id)
    _take_over(broker, runtime, claim.epoch)


def _take_over(broker: StoppedBroker, runtime: Runtime, leader_epoch: int) -> None:
    # All that is in the copy is on the disk already.
    properties = broker.properties
    take_over(runtime.disk, broker.path, properties.node_id, leader_epoch, properties.directory_uuid)


def departure_of(broker: StoppedBroker, image: MetadataImage, *, is_end_known: bool) -> Departure:
    """What follows when ``broker`` leaves by ``image``.

    Raises:
        HandoverRefused: it has not all that is committed.
    """
    node_id = broker.properties.node_id
    if not broker.is_own:
        require_all_here(image, node_id)
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    return Departure(
        node_id,
        broker.properties.cluster_id,
        image.offset + 1,
        len(image.topics),
        sorted(image.brokers.keys() - {node_id}),
        sum(each.replicas != (node_id,) for each in partitions),
        is_end_known,
        clean_shutdown_epoch(broker.directory.disk, [broker.path]) != NO_BROKER_EPOCH,
        broker.is_own,
    )


def require_all_here(image: MetadataImage, node_id: int) -> None:
    """Refuse a broker to leave without records that are committed.

    Raises:
        HandoverRefused: a partition has no replica here, or one that is behind.
    """
    missing, behind = list[str](), list[str]()
    for topic in image.topics.values():
        for index, each in topic.partitions.items():
            partition = str(TopicPartition(topic.name, index))
            if node_id not in each.replicas:
                missing.append(partition)
            elif node_id not in (*each.isr, *each.eligible_leader_replicas):
                behind.append(f"{partition}, in sync on {list(each.isr or each.eligible_leader_replicas)}")
    for found, reason in ((missing, "has no replica on"), (behind, "is behind on")):
        if found:
            more = f", and {len(found) - 1} more partitions" if len(found) > 1 else ""
            name, _, where = found[0].partition(", ")
            raise HandoverRefused(f"{name} {reason} broker {node_id}{where and f' ({where})'}{more}")
