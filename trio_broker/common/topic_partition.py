"""The name of one partition, used by every floor above the wire."""

from __future__ import annotations

import attrs


@attrs.frozen(order=True, slots=True, cache_hash=True)
class TopicPartition:
    """One partition of one topic. Prints as Kafka's directories are named: ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
