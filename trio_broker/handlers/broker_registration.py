"""BrokerRegistration: take a starting broker into the cluster, as the controller.

Source: Kafka's ControllerApis.handleBrokerRegistration and ClusterControlManager.registerBroker.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.features import FeatureLevels
from trio_broker.config.listeners import Endpoint, SecurityProtocol
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.controller_requests import require_controller
from trio_broker.handlers.support.registry import handles


def error_response(request: BrokerRegistrationRequest, error: KafkaError) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=error.code)


@handles(BrokerRegistrationRequest, error_response=error_response, between_brokers=True)
async def broker_registration(request: BrokerRegistrationRequest, context: Context) -> BrokerRegistrationResponse:
    """Register the broker, fenced at first, and answer with its epoch."""
    require_controller(context)
    cluster_id = context.services.node.cluster_id
    if request.cluster_id != cluster_id:
        raise KafkaError(
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
            code=ErrorCode.INCONSISTENT_CLUSTER_ID,
        )
    if request.is_migrating_zk_broker:
        raise KafkaError("no broker comes from ZooKeeper any more", code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    node = registration(request)
    context.release_for_disk()
    return BrokerRegistrationResponse(broker_epoch=await context.services.controller.register_broker(node))


def registration(request: BrokerRegistrationRequest) -> NodeRegistration:
    """The broker that registers.

    Raises:
        KafkaError: INVALID_REGISTRATION: it cannot be reached as it says.
    """
    try:
        endpoints = [
            Endpoint(each.name, SecurityProtocol(each.security_protocol), each.host, each.port)
            for each in request.listeners
        ]
    except ValueError as error:
        raise KafkaError(str(error), code=ErrorCode.INVALID_REGISTRATION) from None
    if not endpoints or request.broker_id < 0:
        text = f"broker {request.broker_id} has no listener" if not endpoints else "a broker's id is not negative"
        raise KafkaError(text, code=ErrorCode.INVALID_REGISTRATION)
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
