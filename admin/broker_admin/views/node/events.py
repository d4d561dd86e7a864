"""What happens in a broker, as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_admin.views.cluster.config import SettingChange
from broker_admin.views.cluster.groups import GroupsRebalanced
from trio_broker.cluster.cluster_event import ClusterChanged
from trio_broker.metrics.history import HistorySample

BrokerEvent = HistorySample | SettingChange | GroupsRebalanced | ClusterChanged
"""Each new sample, each change of a setting by any client, rebalances, and what happens in the cluster."""


class EventsForgotten(Exception):
    """The events that a reader wants next are not kept any more."""


class EventsView(Protocol):
    """The newest events of a broker, numbered in the order in which they happened."""

    @property
    def newest(self) -> int:
        """The number of the newest event. Those of a later life of the broker are higher."""
        ...

    def after(self, number: int) -> Sequence[BrokerEvent]:
        """The events after that with ``number``.

        Raises:
            EventsForgotten: there were too many since, or it was never given.
        """
        ...

    async def wait(self) -> None:
        """Wait for the next event."""
        ...
