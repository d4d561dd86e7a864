"""A broker that joins the cluster of another one, by the requests that it sends to the controller."""

from __future__ import annotations

from typing import Any

import attrs
import trio.testing

from kafka_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafka_wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.handlers.two_brokers import Locator
from tests.handlers.wire_client import WireClient
from trio_broker.cluster.features import own_features

NODE_ID = 2
LOG_DIR = b"\7" * 16


@attrs.define(eq=False)
class SecondBroker:
    """Speaks to the controller by ``wire``. ``locator`` is what the controller takes for the controller."""

    wire: WireClient
    locator: Locator
    broker_epoch: int = -1

    def registration(self, **others: Any) -> Any:
        request = BrokerRegistrationRequest(
            broker_id=NODE_ID,
            cluster_id=self.wire.services.node.cluster_id,
            incarnation_id=bytes(15) + b"\2",
            listeners=[Listener(name="BROKERS", host="b2", port=9093, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
                for name, levels in own_features().items()
            ],
            rack="b",
            log_dirs=[LOG_DIR],
        )
        return attrs.evolve(request, **others)  # type: ignore[misc]

    async def register(self) -> None:
        response = await self.wire.ask(self.registration(), 4)
        assert response.error_code == 0
        self.broker_epoch = response.broker_epoch

    async def beat(self, **others: Any) -> BrokerHeartbeatResponse:
        """Say that it is alive, and has read everything."""
        request: Any = BrokerHeartbeatRequest(
            broker_id=NODE_ID,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.wire.services.metadata_cache.image.offset,
            want_fence=False,
            want_shut_down=False,
        )
        response: BrokerHeartbeatResponse = await self.wire.ask(attrs.evolve(request, **others), 2)
        # It is answered before the controller's own broker follows.
        await trio.testing.wait_all_tasks_blocked()
        return response
