"""Another broker that asks a controller: it registers, beats, and leads."""

from __future__ import annotations

from typing import Any

import attrs

from kafka_wire.messages.alter_partition import AlterPartitionRequest, BrokerState
from kafka_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafka_wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from tests.handlers.wire_client import WireClient
from trio_broker.cluster.features import own_features

SECOND = 2
"""The id of the other broker."""


def registration(wire: WireClient, **fields: Any) -> BrokerRegistrationRequest:
    """The registration of the other broker; ``fields`` are other fields of the request."""
    given: dict[str, Any] = {
        "broker_id": SECOND,
        "cluster_id": wire.services.node.cluster_id,
        "incarnation_id": bytes(15) + b"\x07",
        "listeners": [Listener(name="BROKERS", host="second.test", port=9093, security_protocol=0)],
        "features": [
            Feature(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
            for name, levels in own_features().items()
        ],
        "rack": "b",
        "log_dirs": [bytes(14) + b"\x01\x02"],
    }
    return BrokerRegistrationRequest(**given | fields)


@attrs.define
class BrokersClient:
    """What the other broker asks by ``wire``, in the epoch of its registration."""

    wire: WireClient
    epoch: int = -1

    async def register(self, **fields: Any) -> BrokerRegistrationResponse:
        response: BrokerRegistrationResponse = await self.wire.ask(registration(self.wire, **fields), 4)
        if not response.error_code:
            self.epoch = response.broker_epoch
        return response

    async def beat(self, **fields: Any) -> BrokerHeartbeatResponse:
        given: dict[str, Any] = {
            "broker_id": SECOND,
            "broker_epoch": self.epoch,
            "current_metadata_offset": self.wire.services.metadata_cache.image.offset,
            "want_fence": False,
            "want_shut_down": False,
        }
        response: BrokerHeartbeatResponse = await self.wire.ask(BrokerHeartbeatRequest(**given | fields), 1)
        return response


def alter_partition(
    wire: WireClient, topic: str, isr: list[int], *, broker_id: int, version: int = 3, **fields: Any
) -> AlterPartitionRequest:
    """What the leader of partition 0 of ``topic`` asks for; ``fields`` are other fields of the partition."""
    image = wire.services.metadata_cache.image
    present = image.topics[topic].partitions[0]
    epochs = {each.broker_id: each.broker_epoch for each in image.brokers.values()}
    members: dict[str, Any] = {"new_isr": isr}
    if version >= 3:
        members = {
            "new_isr_with_epochs": [BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr]
        }
    given: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": present.leader_epoch,
        "partition_epoch": present.partition_epoch,
        **members,
    }
    partition = AlterPartitionRequest.PartitionData(**given | fields)
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=epochs[broker_id],
        topics=[AlterPartitionRequest.TopicData(topic_id=image.topics[topic].topic_id, partitions=[partition])],
    )
