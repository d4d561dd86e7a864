"""A registered node with a controller whose log is in memory, and a metadata log on the disk."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.fakes.controllers import make_controller
from tests.fakes.memory_metadata_log import MemoryMetadataLog
from tests.fakes.metadata_logs import leading_log
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime


@pytest.fixture
def config():
    return BrokerConfig({"node.id": "1"})


@pytest.fixture
def metadata_log():
    return MemoryMetadataLog()


@pytest.fixture
def node():
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 9092)
    return NodeRegistration(node_id=1, incarnation_id=uuid4().bytes, endpoints=[endpoint], rack="r1")


@pytest.fixture
async def controller(metadata_log, config, node):
    made = make_controller(metadata_log, config)
    await made.register_node(node)
    return made


@pytest.fixture
def image(controller):
    return controller.image


@pytest.fixture
def reopen(tmp_path):
    """Open the metadata log below ``tmp_path``; each further call opens it again, as after a crash."""
    opened: list[MetadataLog] = []

    def open_log():
        if opened:
            opened[-1].log.release()
        opened.append(leading_log(tmp_path, real_runtime(ManualClock())))
        return opened[-1]

    yield open_log
    opened[-1].log.release()
