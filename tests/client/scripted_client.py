"""A client for scripted brokers, and a deadline that passes only while the client pauses."""

from __future__ import annotations

import socket
from typing import Any

import attrs

from kafka_wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.fakes.scripted_kafka import HOST, ScriptedKafka
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.kafka_client import KafkaClient

CLIENT_ID = "test"

WAIT_SECONDS = 20.0
"""More than any answer on loopback takes; what is retried until the end sleeps through it in no time."""


@attrs.define
class Pauses:
    """The pauses that a client made, in seconds; nothing waits for them."""

    made: list[float] = attrs.field(factory=list)

    def deadline(self, seconds: float = WAIT_SECONDS) -> Deadline:
        return Deadline(seconds, now=lambda: sum(self.made), sleep=self.made.append)


def client_of(*servers: ScriptedKafka, pauses: Pauses | None = None) -> KafkaClient:
    """A client that has the addresses of these servers."""
    bootstrap = parse_addresses(",".join(server.address for server in servers))
    return KafkaClient(ConnectionSettings(bootstrap, CLIENT_ID), (pauses or Pauses()).deadline())


def unused_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def coordinator_at(server: ScriptedKafka, error_code: int = 0) -> Any:
    """What FindCoordinator answers when this server is the one."""

    def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        place: dict[str, Any] = {"node_id": server.node_id, "host": HOST, "port": server.port, "error_code": error_code}
        if version < 4:
            return FindCoordinatorResponse(**place)
        [key] = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, error_message=None, **place)])

    return answer
