"""A broker's own copy of the metadata that several brokers share: ``__cluster_metadata-0``, byte for byte.

A start goes on from the copy, so that it reads only what was decided since, and the tools for metadata logs read the
copy of each broker. It decides nothing: the store is right, and a copy that says anything else ends the start, since
one of the two is another cluster's, or was set back.

Source: docs/decisions/0090-one-contract-for-metadata-stores.md.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from kafka_wire.errors import KafkaError, WireError
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_delta import ContradictoryMetadata, MetadataDelta, replayed
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot, write_snapshot
from trio_broker.cluster.metadata_store import BelowLogStart, CommittedBatch, MetadataStore
from trio_broker.cluster.metadata_transactions import MetadataTransactions
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.workers import Workers
from trio_broker.storage import file_names
from trio_broker.storage.deleted_logs import rename_marked
from trio_broker.storage.errors import is_log_failure
from trio_broker.storage.log_directory import LogDirectory

log = logging.getLogger(__name__)


def open_metadata_log(directory: LogDirectory, runtime: Runtime) -> MetadataLog:
    """Open the metadata log in a data directory, which is open. Blocks.

    Raises:
        MetadataLogUnusable: it is damaged.
    """
    assert directory.properties is not None, "the directory is open"
    return MetadataLog.open(
        directory.path,
        runtime,
        directory_id=directory.properties.directory_uuid,
        reserve=directory,
        require_in_place=directory.require_in_place,
    )


def replace_by_snapshot(directory: LogDirectory, runtime: Runtime, snapshot: MetadataSnapshot) -> MetadataLog:
    """Put ``snapshot`` in place of the copy of the metadata in a data directory, of which it is not. Blocks."""
    disk, path = runtime.disk, directory.path / file_names.CLUSTER_METADATA_DIRECTORY
    # A copy that is gone is read anew; one of which a crash has left some files would be taken for damaged.
    aside = rename_marked(disk, runtime.random, path, TopicPartition(CLUSTER_METADATA_TOPIC, 0), "delete")
    disk.sync_directory(directory.path)
    disk.remove_tree(aside)
    disk.make_directory(path)
    write_snapshot(disk, path, snapshot)
    return open_metadata_log(directory, runtime)


async def image_in(store: MetadataStore) -> MetadataImage:
    """The image at the end of ``store`` now, for a look that needs no copy.

    Raises:
        OSError: the store does not answer.
        KafkaError, WireError: its snapshot is damaged, or has records of a kind that is not known.
    """
    while True:
        # Another snapshot may take the place of what is being read.
        with suppress(BelowLogStart):
            return await _image_read(store)


async def _image_read(store: MetadataStore) -> MetadataImage:
    end_offset, snapshot = await store.end_offset(), await store.snapshot()
    image = MetadataImage() if snapshot is None else _image_of(snapshot)
    delta, transactions, batch = MetadataDelta(image), MetadataTransactions(), None
    position = image.offset + 1
    tail = store.tail(position)
    while position < end_offset:
        batch = await anext(tail)
        position = batch.next_offset
        for record in transactions.settled(batch.records):
            delta.replay(record)
    return image if batch is None else delta.apply(offset=batch.last_offset, epoch=batch.epoch)


def _image_of(snapshot: MetadataSnapshot) -> MetadataImage:
    return replayed(snapshot.records(), offset=snapshot.id.end_offset - 1, epoch=snapshot.id.epoch)


@attrs.define(eq=False)
class MetadataCopy:
    """The copy in ``metadata_log``, up to whose end ``image`` and ``transactions`` are."""

    metadata_log: MetadataLog
    image: MetadataImage
    transactions: MetadataTransactions
    workers: Workers
    _is_writing: bool = True

    @classmethod
    def of(cls, metadata_log: MetadataLog, records: Iterable[Any], workers: Workers) -> MetadataCopy:
        """The copy in ``metadata_log``, whose ``records`` are those that it replays. Blocks.

        Raises:
            MetadataLogUnusable: they contradict each other, or have effects unknown to this version.
        """
        transactions = MetadataTransactions()
        offset, epoch = metadata_log.log_end_offset - 1, metadata_log.leader_epoch
        try:
            image = replayed(transactions.settled(records), offset=offset, epoch=epoch)
        except (ContradictoryMetadata, NotImplementedError) as error:
            raise MetadataLogUnusable(f"{metadata_log.log.directory} cannot be replayed: {error}") from error
        return cls(metadata_log, image, transactions, workers)

    async def catch_up(self, store: MetadataStore, replace: Callable[[MetadataSnapshot], MetadataLog]) -> None:
        """Read what ``store`` has behind the copy, up to its end now. ``replace`` puts a snapshot in place of the whole
        copy; it blocks.

        Raises:
            MetadataLogUnusable: the store has something else than the copy, or a record that is not known.
            OSError: the store does not answer, or a disk failed.
        """
        try:
            await self._catch_up(store, replace)
        except (KafkaError, WireError, NotImplementedError) as error:
            raise MetadataLogUnusable(f"the metadata of the cluster cannot be read: {error}") from error

    async def _catch_up(self, store: MetadataStore, replace: Callable[[MetadataSnapshot], MetadataLog]) -> None:
        end_offset = await store.end_offset()
        try:
            await self._require_same(store, end_offset)
            await self._read(store, end_offset)
        except BelowLogStart:
            snapshot = await store.snapshot()
            assert snapshot is not None, "the log does not begin at 0"
            self.metadata_log = await self.workers.run(partial(replace, snapshot))
            self.image = _image_of(snapshot)
            self.transactions = MetadataTransactions()
            await self._read(store, end_offset)

    async def require_beginning_of(self, store: MetadataStore) -> None:
        """Refuse a store that has something else than the copy, as ``catch_up`` does, and change nothing.

        Raises:
            MetadataLogUnusable: it has.
            OSError: the store does not answer, or a disk failed.
            KafkaError, WireError: what it has cannot be read.
        """
        # Of what it has in a snapshot only, nothing can be compared.
        with suppress(BelowLogStart):
            await self._require_same(store, await store.end_offset())

    async def _require_same(self, store: MetadataStore, end_offset: int) -> None:
        directory, own_end = self.metadata_log.log.directory, self.metadata_log.log_end_offset
        if own_end > end_offset:
            raise MetadataLogUnusable(
                f"{directory} has {own_end} records, and the metadata store of the cluster {end_offset}: it is another"
                " cluster's, or was set back"
            )
        if (last := await self.workers.run(self.metadata_log.last_batch)) is None:
            return
        if (await anext(store.tail(last.header.base_offset))).data != last.buffer:
            raise MetadataLogUnusable(
                f"{directory} differs from the metadata store of the cluster at offset {last.header.base_offset}: one"
                " of them is another cluster's, or was set back"
            )

    async def _read(self, store: MetadataStore, end_offset: int) -> None:
        position, delta = self.metadata_log.log_end_offset, MetadataDelta(self.image)
        batches: AsyncIterator[CommittedBatch] = store.tail(position)
        while position < end_offset:
            batch = await anext(batches)
            position = batch.next_offset
            await self.append(batch)
            for record in self.transactions.settled(batch.records):
                delta.replay(record)
            if position >= end_offset:
                self.image = delta.apply(offset=batch.last_offset, epoch=batch.epoch)

    async def append(self, batch: CommittedBatch) -> None:
        """Append a batch that the store has. Without room for it, behind a snapshot that was loaded, and where
        the disk fails, with which the directory does, the copy ends here until the next start goes on."""
        if not self._is_writing:
            return
        if (end_offset := self.metadata_log.log_end_offset) < batch.base_offset:
            self._is_writing = False
            log.warning("the copy of the metadata ends at offset %d until the next start", end_offset)
            return
        try:
            await self.workers.run(partial(self.metadata_log.append_committed, batch.data))
        except OSError as error:
            self._is_writing = False
            log.error("the copy of the metadata ends at offset %d: %s", batch.base_offset, error)
            if is_log_failure(error):
                self.metadata_log.log.bind_to_thread()
                self.metadata_log.fail(error)
