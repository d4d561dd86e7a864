"""FindCoordinator: the broker that coordinates a group or a transactional id.

It leads the partition of the internal topic that the key lives on, and has its address on the listener of the client's
connection. The internal topic is created by the first request: Kafka answers that one with COORDINATOR_NOT_AVAILABLE
and creates the topic afterwards; here the topic is created first, which spares the client a retry.

Share groups have no coordinator here, so requests for one get a fatal error.

Source: Kafka's KafkaApis.getCoordinator and FindCoordinatorResponse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.find_coordinator import (
    BATCHED_SINCE_VERSION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    KeyType,
)
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, list_in_turns
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.handlers.support.broker_nodes import BrokerNode, broker_node
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, InHandler

NO_NODE = -1
NO_HOST = ""
NO_PORT = -1

NO_ERROR_MESSAGE = "NONE"
"""Kafka's message beside error code 0 up to version 3; later versions have none."""


def error_response(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    if request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[refused_key(key, error) for key in request.coordinator_keys])
    return FindCoordinatorResponse(
        error_code=error.code, error_message=str(error), node_id=NO_NODE, host=NO_HOST, port=NO_PORT
    )


def refused_key(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host=NO_HOST, port=NO_PORT, error_code=error.code, error_message=str(error)
    )


@handles(
    FindCoordinatorRequest,
    error_response=error_response,
    requires=[
        InHandler([DESCRIBE_GROUP], "the key of a group: GROUP_AUTHORIZATION_FAILED"),
        InHandler([DESCRIBE_TRANSACTIONAL_ID], "a transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        InHandler([CLUSTER_ACTION], "the key of a share group: CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def find_coordinator(request: FindCoordinatorRequest, context: Context) -> Steps[FindCoordinatorResponse]:
    """Answer with the coordinator of each group or transactional id."""
    is_batched = context.version >= BATCHED_SINCE_VERSION
    keys = request.coordinator_keys if is_batched else [request.key]
    nodes = yield from find_each(request.key_type, keys, context)
    if is_batched:
        coordinators = yield from list_in_turns(map(coordinator, keys, nodes))
        return FindCoordinatorResponse(coordinators=coordinators)
    [node] = nodes
    if isinstance(node, KafkaError):
        raise node
    return FindCoordinatorResponse(
        error_message=NO_ERROR_MESSAGE, node_id=node.broker_id, host=node.host, port=node.port
    )


def coordinator(key: str, node: BrokerNode | KafkaError) -> Coordinator:
    """The answer about one of many keys."""
    if isinstance(node, KafkaError):
        return refused_key(key, node)
    return Coordinator(key=key, node_id=node.broker_id, host=node.host, port=node.port, error_message="")


def find_each(key_type: int, keys: Sequence[str], context: Context) -> Steps[list[BrokerNode | KafkaError]]:
    """The broker that coordinates each of ``keys``, or what refuses it. They wait for the controller together."""
    nodes: list[BrokerNode | KafkaError] = []
    has_waited = False
    budget = YieldBudget()
    for key in keys:
        try:
            runtime = runtime_for(key_type, key, context)
            if not has_waited:
                has_waited = True
                yield from runtime.create_topic()
            nodes.append(reachable_node(key, runtime.find_nowait(key), context))
        except KafkaError as error:
            nodes.append(error)
        if budget.is_spent:
            yield budget.renewed
    return nodes


def runtime_for(key_type: int, key: str, context: Context) -> CoordinatorRuntime[Any]:
    """What knows the coordinators of keys of this type.

    Raises:
        KafkaError: the client may not know that of ``key``; ``INVALID_REQUEST``.
    """
    match key_type:
        case KeyType.GROUP:
            context.require(DESCRIBE_GROUP, key)
            return context.services.groups.runtime
        case KeyType.TRANSACTIONAL_ID:
            context.require(DESCRIBE_TRANSACTIONAL_ID, key)
            return context.services.transactions.runtime
        case KeyType.SHARE_PARTITION:
            context.require(CLUSTER_ACTION)
            raise KafkaError("share groups are not served", code=ErrorCode.INVALID_REQUEST)
        case _:
            raise KafkaError(f"{key_type} is no type of coordinator", code=ErrorCode.INVALID_REQUEST)


def reachable_node(key: str, broker_id: int, context: Context) -> BrokerNode:
    """The broker that coordinates ``key``, as the client reaches it.

    Raises:
        KafkaError: ``COORDINATOR_NOT_AVAILABLE``.
    """
    if (node := broker_node(context, broker_id)) is None:
        text = f"broker {broker_id}, which coordinates {key!r:.200}, is not there or lacks this listener"
        raise KafkaError(text, code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return node
