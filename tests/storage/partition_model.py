"""What must and what may be left of a log on a disk whose power was cut."""

from __future__ import annotations

import attrs

from tests.storage.log_content import Written
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig


@attrs.define
class PartitionModel:
    """What must and what may be found of one partition.

    ``records`` are those in the log, ``possible`` for each offset all that a power cut could bring back. The log may
    begin anywhere from ``durable_start`` to ``start``; ``asked_start`` is the highest there was. Epochs, producers and
    names before that may go before the log start does.
    """

    partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    records: dict[int, Written] = attrs.field(factory=dict)
    possible: dict[int, set[Written]] = attrs.field(factory=dict)
    end: int = 0
    durable_end: int = 0
    start: int = 0
    durable_start: int = 0
    is_created: bool = False
    sequences: dict[int, int] = attrs.field(factory=dict)
    has_been_cut: bool = False
    asked_start: int = 0
    epoch: int = 0

    @property
    def is_compacted(self) -> bool:
        return self.config.cleanup_policy.compact

    def may_append(self, offset: int, records: list[Written]) -> None:
        """Note what is about to be appended."""
        for position, record in enumerate(records, offset):
            self.possible.setdefault(position, set()).add(record)

    def appended(self, offset: int, records: list[Written]) -> None:
        """Note what has been appended."""
        assert offset == self.end, f"appended at {offset}, the log ended at {self.end}"
        self.records.update(enumerate(records, offset))
        self.end = offset + len(records)

    def synced(self, end: int) -> None:
        """Note that the log up to ``end`` is durable."""
        assert end == self.end
        self.durable_end = end
        self.has_been_cut = False
        self.ruled_out_all_but(self.records)

    def ruled_out_all_but(self, records: dict[int, Written]) -> None:
        """Note that these are on the disk. What lies before the start may come back with its segments."""
        before = {offset: written for offset, written in self.possible.items() if offset < self.asked_start}
        self.possible = before | {offset: {record} for offset, record in records.items()}

    def ask_start(self, offset: int) -> None:
        """Note that the log may begin at ``offset`` from now on."""
        self.start = max(self.start, offset)
        self.asked_start = max(self.asked_start, self.start)

    def cut(self, offset: int) -> None:
        """Note that the log ends at ``offset`` now, durably."""
        self.records = {position: record for position, record in self.records.items() if position < offset}
        self.possible = {position: records for position, records in self.possible.items() if position < offset}
        self.end = offset
        self.has_been_cut = False

    def newest(self, end: int) -> dict[bytes, int]:
        """The offset of the newest record of each key before ``end``."""
        newest: dict[bytes, int] = {}
        for offset, record in sorted(self.records.items()):
            if offset < end and record.key is not None:
                newest[record.key] = offset
        return newest
