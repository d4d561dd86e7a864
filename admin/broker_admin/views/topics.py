"""The topics of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trio_broker.metrics.topics import TopicInfo


class TopicsView(Protocol):
    """The topics of a broker, as the admin app sees them."""

    def topics(self) -> Sequence[TopicInfo]:
        """All topics, by name."""
        ...

    def topic_names(self) -> Sequence[str]:
        """The names of all topics, in no order; cheap however many they are."""
        ...
