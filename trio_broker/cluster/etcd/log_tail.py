"""Reading the log in etcd: pages of it, and the tail that goes on at its end.

A watch is a hint. A tail reads again at each hint and each second, and finds by the offsets what comes next.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import read_batches
from trio_broker.cluster.etcd.layout import ClusterState, EtcdLayout, ForeignMetadata, end_of_prefix
from trio_broker.cluster.etcd.messages import KeyValue, RangeRequest
from trio_broker.cluster.etcd.pulse import Pulse
from trio_broker.cluster.metadata_store import BelowLogStart, CommittedBatch
from trio_broker.common.log_throttle import LogThrottle

IDLE_READ_SECONDS: Final = 1.0
"""Between two reads where no watch reports anything: a watch may be late for ever."""

PAGE_BATCHES: Final = 32
"""Of the log, read at once: at most as many megabytes."""


def page_from(layout: EtcdLayout, offset: int) -> RangeRequest:
    """What reads some batches from ``offset`` on."""
    return RangeRequest(key=layout.batch(offset), range_end=end_of_prefix(layout.log), limit=PAGE_BATCHES)


def batches_in(state: ClusterState, offset: int) -> Sequence[CommittedBatch]:
    """Return the batches of ``page_from``, none if there are none yet.

    Raises:
        BelowLogStart: a snapshot has taken the place of what comes next.
        ForeignMetadata: what is in etcd is not what this broker has read.
    """
    if state.snapshot is not None and state.snapshot.id.end_offset > offset:
        raise BelowLogStart(offset, state.snapshot.id.end_offset)
    if state.end.offset < offset:
        raise ForeignMetadata(
            errno.ESTALE,
            f"the metadata log in etcd ends at offset {state.end.offset}, and this broker has read it up to {offset}:"
            " etcd was restored from a backup",
        )
    batches: list[CommittedBatch] = []
    for batch in map(committed_batch, state.read):
        if batch.base_offset != offset:
            break
        batches.append(batch)
        offset = batch.next_offset
    if not batches and state.end.offset > offset:
        raise ForeignMetadata(
            errno.EIO, f"the metadata log in etcd has no batch at offset {offset}, and ends at {state.end.offset}"
        )
    return batches


def committed_batch(kv: KeyValue) -> CommittedBatch:
    """The batch that is the value of a key of the log.

    Raises:
        ForeignMetadata: it is damaged, or of a newer version.
    """
    try:
        [batch] = read_batches(bytearray(kv.value))
        return CommittedBatch.of(batch)
    except (KafkaError, WireError, ValueError) as error:
        text = f"the metadata in etcd under {kv.key.decode()} cannot be read: {error}"
        raise ForeignMetadata(errno.EIO, text) from error


class EtcdTail:
    """The batches of the log from an offset on. ``read_from`` reads some; at each ``changed`` there may be more."""

    def __init__(
        self,
        read_from: Callable[[int], Awaitable[Sequence[CommittedBatch]]],
        from_offset: int,
        changed: Pulse,
        throttle: LogThrottle,
    ) -> None:
        self._read_from, self._changed, self._throttle = read_from, changed, throttle
        self._next_offset = from_offset
        self._read: deque[CommittedBatch] = deque()

    def __aiter__(self) -> EtcdTail:
        return self

    async def __anext__(self) -> CommittedBatch:
        while not self._read:
            moment = self._changed.moment
            self._read.extend(await self._read_on())
            if not self._read:
                await self._changed.wait(since=moment, until=trio.current_time() + IDLE_READ_SECONDS)
        batch = self._read.popleft()
        self._next_offset = batch.next_offset
        return batch

    async def _read_on(self) -> Sequence[CommittedBatch]:
        try:
            return await self._read_from(self._next_offset)
        except ForeignMetadata:
            raise
        except OSError as error:
            self._throttle.warning("tail", f"the metadata log is not read: {error.strerror}")
            return ()
