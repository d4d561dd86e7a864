"""UpdateFeatures, and what clients see of the levels then."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2
OFF = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
ON = FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=UPGRADE)
NONSENSE = FeatureUpdateKey(feature="nonsense", max_version_level=1, upgrade_type=UPGRADE)


async def update(wire, *updates, version=2, validate_only=False):
    return await wire.ask(UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only), version)


async def features(wire):
    """The finalized levels, and the epoch that tells clients which of two answers is the newer."""
    response = await wire.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    levels = {item.name: item.max_version_level for item in response.finalized_features}
    return levels, response.finalized_features_epoch


async def test_clients_see_the_new_level_under_a_later_epoch(wire):
    levels, before = await features(wire)
    assert levels == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}
    assert (await update(wire, OFF)).error_code == ErrorCode.NONE
    levels, switched_off = await features(wire)
    assert (levels, switched_off > before) == ({"metadata.version": 25, "transaction.version": 2}, True)
    await update(wire, ON)
    levels, switched_on = await features(wire)
    assert (levels, switched_on > switched_off) == (
        {"metadata.version": 25, "group.version": 1, "transaction.version": 2},
        True,
    )


async def test_validation_alone_changes_nothing(wire):
    before = await features(wire)
    assert (await update(wire, OFF, validate_only=True)).error_code == ErrorCode.NONE
    assert await features(wire) == before


async def test_one_update_that_cannot_be_refuses_all(wire):
    before = await features(wire)
    response = await update(wire, OFF, NONSENSE)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "for feature nonsense. Local controller 1 does not support this feature." in response.error_message
    assert await features(wire) == before


async def test_version_1_tells_of_each_feature_unless_all_are_refused(wire):
    response = await update(wire, OFF, version=1)
    assert [(item.feature, item.error_code) for item in response.results] == [("group.version", ErrorCode.NONE)]
    response = await update(wire, NONSENSE, version=1)
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])


@pytest.mark.parametrize(("allowed", "code"), [(True, ErrorCode.NONE), (False, ErrorCode.INVALID_UPDATE_VERSION)])
async def test_version_0_has_a_flag_for_downgrades(wire, allowed, code):
    off = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=allowed)
    assert (await update(wire, off, version=0)).error_code == code


async def test_without_its_feature_the_consumer_protocol_is_refused(wire):
    await update(wire, OFF)
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    describe = ConsumerGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=False)
    assert (await wire.ask(heartbeat, 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = await wire.ask(describe, 1)
    assert [group.error_code for group in described.groups] == [ErrorCode.UNSUPPORTED_VERSION] * 2
