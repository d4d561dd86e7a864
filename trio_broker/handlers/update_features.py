"""UpdateFeatures: finalize features of the cluster at other levels, all that are named or none.

Source: Kafka's ControllerApis.handleUpdateFeatures, QuorumController and FeatureControlManager.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from trio_broker.cluster.features import FeatureUpdate, UpgradeType
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster


def error_response(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    """No feature gets a result of its own beside an error of the whole, in any version, as in Kafka."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))


@handles(
    UpdateFeaturesRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER)], by_controller=True
)
async def update_features(request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    """Finalize the levels asked for, or answer with the error of each that cannot be."""
    wanted = [wanted_update(update) async for update in InTurns(request.feature_updates)]
    context.release_for_disk()
    await context.services.controller.update_features(wanted, validate_only=request.validate_only)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=item.feature, error_message=None)
            async for item in InTurns(request.feature_updates)
        ],
    )


def wanted_update(update: FeatureUpdateKey) -> FeatureUpdate:
    """What the request asks for; version 0 knows one kind of downgrade and has a flag for it."""
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)
