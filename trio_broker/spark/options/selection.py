"""Which partitions a job reads: named ones, those of named topics, or those of topics whose names match.

Source: the options ``assign``, ``subscribe`` and ``subscribePattern`` of Spark's Kafka source.
"""

from __future__ import annotations

import re

import attrs

from trio_broker.common.topic_partition import TopicPartition


@attrs.frozen
class Assign:
    """These partitions and no others; sorted."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class Subscribe:
    """All partitions of these topics, also those that are added later; sorted."""

    topics: tuple[str, ...]


@attrs.frozen
class SubscribePattern:
    """All partitions of the topics that ``matches`` finds, also of those created later; internal topics never."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether the pattern, a regular expression of Python's, is found somewhere in the name of ``topic``.

        Not the whole name has to match: ``orders`` also finds ``old-orders``, as it does in Spark's Kafka source.
        """
        return re.search(self.pattern, topic) is not None


Selection = Assign | Subscribe | SubscribePattern
