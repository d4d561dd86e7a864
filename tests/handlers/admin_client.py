"""Asking the handlers that administer topics and settings, over a controller whose log is in memory."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import attrs

from kafka_wire.codec import decode, encode
from kafka_wire.headers import RequestHeader
from tests.fakes.controllers import make_controller
from tests.fakes.memory_metadata_log import MemoryMetadataLog
from tests.handlers.handler_client import CONNECTION, joined, response_of
from tests.handlers.wire_client import ADVERTISED
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.config_trials import ConfigTrials
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.producer_ids import ProducerIds
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.request_channel import QueuedRequest
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime


@attrs.define
class AdminClient:
    """A client of broker 1, which holds no partitions but decides about them."""

    config: BrokerConfig
    controller: Controller
    metadata_log: MemoryMetadataLog
    groups: Any = None
    """The group coordinator, where a test needs one."""
    node: Any = None
    replicas: Any = None

    async def ask(self, handler: Any, request: Any, version: int) -> Any:
        """The response as a client of ``version`` reads it."""
        wire = memoryview(bytearray(joined(encode(request, version))))
        decoded, _ = decode(type(request), version, wire)
        answer = joined(encode(await response_of(handler, decoded, self.context(version)), version))
        response, end = decode(type(request).RESPONSE, version, answer)
        assert end == len(answer)
        return response

    def context(self, version: int) -> Context:
        header = RequestHeader(api_key=0, api_version=version, correlation_id=7, client_id="test")
        absent: Any = None  # read by the admin app alone
        publisher = self.controller.loader.publisher
        services = BrokerServices(
            node=self.node,
            config=self.config,
            runtime=real_runtime(ManualClock()),
            controller=self.controller,
            metadata_cache=publisher.cache,
            changes=publisher.changes,
            metadata_log=absent,
            replicas=self.replicas,
            log_dir_failures=absent,
            producer_ids=ProducerIds(self.controller.allocate_producer_ids),
            groups=self.groups,
            markers=absent,
            transactions=absent,
            transaction_verification=absent,
            trials=ConfigTrials(self.controller, publisher.dynamic_config, publisher.changes, ManualClock()),
        )
        return Context(QueuedRequest(header, memoryview(b""), CONNECTION), services)


async def make_admin_client(**static: str) -> AdminClient:
    """A client of a broker that has just been started for the first time, with these keys set (``_`` for a dot)."""
    config = BrokerConfig({"node.id": "1", **{name.replace("_", "."): value for name, value in static.items()}})
    metadata_log = MemoryMetadataLog()
    controller = make_controller(metadata_log, config)
    endpoints = tuple(ADVERTISED.values())
    node = NodeRegistration(node_id=1, incarnation_id=uuid4().bytes, endpoints=endpoints, rack=None)
    await controller.register_node(node)
    return AdminClient(config, controller, metadata_log)
