"""What happens in a broker, as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker_admin.views.cluster.config import SettingChange
from broker_admin.views.cluster.groups import GroupsRebalanced
from trio_broker.cluster.cluster_event import ClusterChanged
from trio_broker.metrics.history import HistorySample

BrokerEvent = HistorySample | SettingChange | GroupsRebalanced | ClusterChanged
"""What a listener receives: each new sample, each change of a setting by any client, rebalances, and what happens in
the cluster."""


class EventsView(Protocol):
    """The events of a broker, as the admin app receives them."""

    def subscribe(self, listener: Callable[[BrokerEvent], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop with every event from now on; returns what ends that.

        The listener returns at once and does not raise.
        """
        ...
