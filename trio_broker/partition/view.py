"""One partition as others see it.

On the event loop everybody reads what its writer publishes (``PublishedState``): it changes in one step, without a
checkpoint, and only there. What goes on in a worker thread or after a wait takes a ``LogView``, which changes no more.
Records are read with a ``LogReader`` there.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from kafka_wire.errors import KafkaError


class PublishedState(Protocol):
    """What a ``PartitionWriter`` publishes: its ``PartitionState``, to be read and never changed."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> int | None: ...
    @property
    def leader_epoch(self) -> int: ...
    def has_led_since(self, leader_epoch: int, /) -> bool: ...
    @property
    def min_in_sync_replicas(self) -> int: ...
    @property
    def is_under_min_isr(self) -> bool: ...
    @property
    def in_sync_replica_count(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def durable_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def failure(self) -> KafkaError | None: ...
    def require_online(self) -> None: ...


@attrs.frozen
class LogView:
    """What a partition's writer had published at one moment."""

    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    failure: KafkaError | None

    @classmethod
    def of(cls, state: PublishedState) -> LogView:
        """Return what is published now. On the event loop only: another thread could see half of a step."""
        return cls(
            state.leader_epoch,
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            state.log_end_offset,
            state.failure,
        )
