"""A topic that a client names is created by the controller, for which the client is not kept waiting."""

from __future__ import annotations

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.simulation.cluster.cluster_clients import ClusterConnection
from tests.simulation.cluster.cluster_simulation import Begin, ClusterSimulation, run_prepared
from tests.simulation.simulated_clients import TOPIC
from trio_broker.handlers.metadata import CREATION_SECONDS

NAMES = (TOPIC, "one", "two")
ANSWER_SECONDS = 0.5
"""More than a request takes that waits for nothing."""


def test_a_client_hears_soon_that_a_topic_is_not_there_while_a_controller_is_elected():
    async def kill_controller(simulation: ClusterSimulation) -> list[list[int]]:
        cluster = simulation.cluster
        controller = cluster.controller
        assert controller is not None
        await controller.kill()
        connection, codes = ClusterConnection(simulation.world, "client", cluster), list[list[int]]()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in NAMES])
        with trio.fail_after(CREATION_SECONDS + ANSWER_SECONDS):
            codes.append(codes_in(await connection.ask(request, 12)))
        while codes[-1] != [ErrorCode.NONE] * 3:
            await trio.sleep(0.5)
            codes.append(codes_in(await connection.ask(request, 12)))
        return codes

    codes = run_prepared(Begin(3, "page-cache"), kill_controller)
    assert codes[0] == [ErrorCode.NONE, *2 * [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]


def codes_in(response: MetadataResponse) -> list[int]:
    return [topic.error_code for topic in response.topics]
