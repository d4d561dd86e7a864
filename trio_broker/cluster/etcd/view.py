"""The cluster's metadata as keys that an operator reads with ``etcdctl get --prefix``. Nothing here reads them.

The keys are those that Kafka had in ZooKeeper, below ``view/``. They follow the log, late and one after another, since
a transaction takes 128 keys and a cluster has thousands; each transaction compares the claim, so that only the
controller writes them. ``view/offset`` is written last: with an older one than that of ``end``, they are behind.

Source: Kafka's ZkData of 3.x.
"""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Iterator
from typing import Final

import trio

from kafka_wire.primitives import uuid_text
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import end_of_prefix, json_bytes, require_held, state_of, state_operations
from trio_broker.cluster.etcd.messages import KeyValue, RangeRequest, RequestOp, delete, modified_at, put
from trio_broker.cluster.etcd.transactions import RETRY_SECONDS, EtcdTransactions
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import BrokerImage, MetadataImage, TopicImage
from trio_broker.cluster.metadata_store import Claim, ClaimLost
from trio_broker.common.host_port import host_port

log = logging.getLogger(__name__)

OPERATIONS: Final = 100
"""Of a transaction, of the 128 that etcd takes."""

KEYS_PER_READ: Final = 500

OFFSET: Final = b"offset"


async def keep_view(store: EtcdMetadataStore, cache: MetadataCache) -> None:
    """Have the keys show the newest image for as long as this broker is the controller, until cancelled."""
    view: EtcdView | None = None
    while True:
        image, claim = cache.image, store.held_claim
        if claim is None:
            view = None
        else:
            if view is None or view.claim is not claim:
                view = EtcdView(store.transactions, claim)
            try:
                await view.show(image)
            except ClaimLost:
                view = None
            except OSError as error:
                log.debug("the view of the metadata in etcd is behind: %s", error)
                await trio.sleep(RETRY_SECONDS)
                continue
        await cache.wait_after(image)


class EtcdView:
    """The keys of one controller, for as long as it has its claim."""

    def __init__(self, transactions: EtcdTransactions, claim: Claim) -> None:
        self.claim = claim
        self._transactions = transactions
        self._prefix = transactions.layout.view
        # What the keys show; None where that is not known.
        self._shown: MetadataImage | None = None
        # Of ``view/offset``: a transaction without an answer may be carried out late, and is not to undo later ones.
        self._offset_revision = 0

    async def show(self, image: MetadataImage) -> None:
        """Have the keys show ``image``. The work is that of what has changed since the last one, but for the first.

        Raises:
            ClaimLost: another broker is the controller.
            OSError: etcd refuses or does not answer; the next call begins anew.
        """
        before, self._shown = self._shown, None
        changes = await self._differences(image) if before is None else changed_keys(before, image)
        operations = (operation(self._prefix + key, value) for key, value in changes)
        while chunk := list(itertools.islice(operations, OPERATIONS)):
            await self._make(chunk)
        self._offset_revision = await self._make([put(self._prefix + OFFSET, b"%d" % image.offset)])
        self._shown = image

    async def _differences(self, image: MetadataImage) -> Iterator[tuple[bytes, bytes | None]]:
        """What tells the keys that are there from those of ``image``."""
        wanted = {key: value for key, value in changed_keys(MetadataImage(), image) if value is not None}
        there = {kv.key.removeprefix(self._prefix): kv for kv in await self._keys()}
        self._offset_revision = there[OFFSET].mod_revision if OFFSET in there else 0
        gone = ((key, None) for key in there if key not in wanted and key != OFFSET)
        return itertools.chain(
            gone, (each for each in wanted.items() if each[0] not in there or there[each[0]].value != each[1])
        )

    async def _keys(self) -> list[KeyValue]:
        found: list[KeyValue] = []
        key, end = self._prefix, end_of_prefix(self._prefix)
        while True:
            state = await self._transactions.present_state(RangeRequest(key=key, range_end=end, limit=KEYS_PER_READ))
            found += state.read
            if len(state.read) < KEYS_PER_READ:
                return found
            key = state.read[-1].key + b"\0"

    async def _make(self, operations: list[RequestOp]) -> int:
        """Make one transaction, and return its revision."""
        transactions = self._transactions
        conditions = transactions.while_held(self.claim, modified_at(self._prefix + OFFSET, self._offset_revision))
        response = await transactions.made(conditions, operations, state_operations(transactions.layout))
        if not response.succeeded:
            state = state_of(response)
            transactions.require_own(state)
            require_held(self.claim, state)
            raise OSError(errno.EAGAIN, "an earlier change of the view in etcd was made late")
        return response.revision


def operation(key: bytes, value: bytes | None) -> RequestOp:
    return delete(key) if value is None else put(key, value)


def changed_keys(before: MetadataImage, after: MetadataImage) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys that differ, with their new values, None for one that is gone. What two images share is not looked
    at."""
    for broker_id in before.brokers.keys() | after.brokers.keys():
        broker = after.brokers.get(broker_id)
        if before.brokers.get(broker_id) is not broker:
            yield b"brokers/ids/%d" % broker_id, None if broker is None else broker_value(broker)
    for name in before.topics.keys() | after.topics.keys():
        old, new = before.topics.get(name), after.topics.get(name)
        if old is not new:
            old_keys = {} if old is None else topic_keys(old)
            new_keys = {} if new is None else topic_keys(new)
            yield from ((key, None) for key in old_keys if key not in new_keys)
            yield from ((key, value) for key, value in new_keys.items() if old_keys.get(key) != value)


def broker_value(broker: BrokerImage) -> bytes:
    endpoints = [f"{each.name}://{host_port(each.host, each.port)}" for each in broker.endpoints]
    return json_bytes(
        {"endpoints": endpoints, "epoch": broker.broker_epoch, "fenced": broker.fenced, "rack": broker.rack}
    )


def topic_keys(topic: TopicImage) -> dict[bytes, bytes]:
    """The keys of a topic: its assignment, and the state of each partition."""
    path = b"brokers/topics/%s" % topic.name.encode()
    assignment = {str(index): list(each.replicas) for index, each in topic.partitions.items()}
    keys = {path: json_bytes({"topic_id": uuid_text(topic.topic_id), "partitions": assignment})}
    for index, each in topic.partitions.items():
        keys[path + b"/partitions/%d/state" % index] = json_bytes(
            {
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "isr": list(each.isr),
                "partition_epoch": each.partition_epoch,
            }
        )
    return keys
