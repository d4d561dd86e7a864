"""The controller as the metadata has it: the broker with the claim on the log, at the address of its registration.

Source: Kafka's RaftControllerNodeProvider.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import NO_LEADER, EndpointImage
from trio_broker.cluster.metadata_store import LeaderAndEpoch


@attrs.frozen
class StoredControllerLocator:
    """See ``ControllerLocator``. ``leader`` is ``MetadataStore.controller``; ``listener_name`` is that of brokers.

    A second process of the controller's id asks the first one, by which it is refused.
    """

    node_id: int
    incarnation_id: bytes
    leader: Callable[[], LeaderAndEpoch]
    metadata_cache: MetadataCache
    listener_name: str

    def controller(self) -> EndpointImage | None:
        """Return where other brokers reach the controller; None: it is this broker.

        Raises:
            NotController: there is none now, or this broker has not read its registration.
        """
        leader = self.leader()
        leader_id = leader.leader_id
        if (leader_id, leader.incarnation_id) == (self.node_id, self.incarnation_id):
            return None
        if leader_id == NO_LEADER:
            raise NotController("there is no controller now")
        broker = self.metadata_cache.image.brokers.get(leader_id)
        if broker is None or (endpoint := broker.endpoint(self.listener_name)) is None:
            raise NotController(
                f"broker {leader_id} is the controller, and has no address by listener {self.listener_name}"
            )
        return endpoint
