"""BrokerRegistration: take a broker that starts into the cluster.

Source: Kafka's ControllerApis.handleBrokerRegistration and ClusterControlManager.registerBroker; KIP-631.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.features import FeatureLevels
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.listeners import Endpoint
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, for_cluster

MAX_ENTRIES: Final = 500
"""Listeners, features or data directories of one broker: many times what any has, and few enough to be registered in
one turn of the event loop."""


def error_response(request: BrokerRegistrationRequest, error: KafkaError) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=error.code)


@handles(
    BrokerRegistrationRequest,
    error_response=error_response,
    requires=[for_cluster(CLUSTER_ACTION)],
    by_controller=True,
    between_brokers=True,
)
async def broker_registration(request: BrokerRegistrationRequest, context: Context) -> BrokerRegistrationResponse:
    """Register a broker that starts, and answer with its epoch."""
    services = context.services
    if request.cluster_id != services.node.cluster_id:
        text = f"broker {request.broker_id} is of cluster {request.cluster_id!r:.100}, not {services.node.cluster_id!r}"
        raise KafkaError(text, code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    context.release_for_disk()
    return BrokerRegistrationResponse(broker_epoch=await services.controller.register_broker(registration(request)))


def registration(request: BrokerRegistrationRequest) -> NodeRegistration:
    """The broker that registers.

    Raises:
        KafkaError: INVALID_REQUEST: a listener has an unknown security protocol, or there is too much of something.
    """
    entries = max(len(request.listeners), len(request.features), len(request.log_dirs))
    if entries > MAX_ENTRIES:
        text = (
            f"broker {request.broker_id} has {entries} listeners, features or data directories, more than {MAX_ENTRIES}"
        )
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
    try:
        endpoints = [
            Endpoint(each.name, SecurityProtocol(each.security_protocol), each.host, each.port)
            for each in request.listeners
        ]
    except ValueError as error:
        raise KafkaError(str(error), code=ErrorCode.INVALID_REQUEST) from None
    return NodeRegistration(
        node_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=endpoints,
        rack=request.rack,
        log_dirs=request.log_dirs,
        features={
            each.name: FeatureLevels(each.min_supported_version, each.max_supported_version)
            for each in request.features
        },
        previous_broker_epoch=request.previous_broker_epoch,
    )
