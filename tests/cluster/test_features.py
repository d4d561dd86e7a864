"""The features of the cluster."""

from __future__ import annotations

import logging

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import BrokerFeature, ClearElrRecord, FeatureLevelRecord
from tests.fakes.clusters import cluster_image
from tests.fakes.controllers import make_controller
from tests.fakes.images import image_of
from tests.fakes.memory_metadata_log import MemoryMetadataLog
from trio_broker.cluster.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION as ELR,
)
from trio_broker.cluster.features import (
    GROUP_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    FeatureUpdate,
    UpgradeType,
    decide_feature_updates,
    decide_features,
    require_consumer_protocol,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_snapshot import image_records
from trio_broker.cluster.replication_control import NewTopic


def finalised(records):
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


async def test_the_first_start_finalises_what_the_broker_knows(metadata_log, controller):
    assert controller.image.features == {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert finalised(metadata_log.batches[0]) == {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}


async def test_another_start_finalises_nothing_anew(metadata_log, controller, node):
    await controller.register_node(node)
    assert finalised(metadata_log.batches[-1]) == {}


async def test_the_first_start_on_older_data_finalises_what_is_missing(config, node, controller, metadata_log):
    await controller.create_topics([NewTopic(name="t")])
    older = [record for record in metadata_log.records if not isinstance(record, FeatureLevelRecord)]
    newer_log = MemoryMetadataLog()
    upgraded = make_controller(newer_log, config, older)
    assert upgraded.image.features == {}
    await upgraded.register_node(node)
    assert upgraded.image.features == {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert "t" in upgraded.image.topics


def test_a_level_that_is_there_stays():
    levels = {"metadata.version": 25, **dict.fromkeys(SUPPORTED, 1)}
    records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    assert decide_features(image_of(*records)) == []


# --- updates ---

UPGRADE, SAFE, UNSAFE = UpgradeType


def image_at(level):
    return image_of(FeatureLevelRecord(name=GROUP_VERSION, feature_level=level))


def levels_after(image, *updates):
    """The levels that the records of the decision set, by feature."""
    return finalised(decide_feature_updates(image, 7, [FeatureUpdate(*update) for update in updates]).records)


@pytest.mark.parametrize("upgrade_type", [SAFE, UNSAFE])
def test_a_downgrade_is_asked_for_as_such(upgrade_type):
    assert levels_after(image_at(1), (GROUP_VERSION, 0, upgrade_type)) == {GROUP_VERSION: 0}


def test_an_upgrade_needs_no_further_word():
    assert levels_after(image_at(0), (GROUP_VERSION, 1, UPGRADE)) == {GROUP_VERSION: 1}


@pytest.mark.parametrize("upgrade_type", UpgradeType)
def test_the_level_that_is_there_already_is_not_written_again(upgrade_type):
    assert levels_after(image_at(1), (GROUP_VERSION, 1, upgrade_type)) == {}


NEEDS_TYPE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


@pytest.mark.parametrize(
    ("level_now", "update", "reason"),
    [
        (1, (GROUP_VERSION, 0, UPGRADE), NEEDS_TYPE),
        (0, (GROUP_VERSION, 1, SAFE), "Can't downgrade to a newer version."),
        (1, (GROUP_VERSION, 2, UPGRADE), "Local controller 7 only supports versions 0-1"),
        (1, (GROUP_VERSION, -1, SAFE), "A feature version cannot be less than 0."),
        (1, (GROUP_VERSION, 0, 0), "The controller does not support the given upgrade type."),
        (1, (GROUP_VERSION, 0, 4), "The controller does not support the given upgrade type."),
        (1, ("share.version", 1, UPGRADE), "Local controller 7 does not support this feature."),
        (1, ("share.version", 0, UNSAFE), "Feature share.version not found."),
        (1, ("metadata.version", 26, UPGRADE), "Local controller 7 only supports versions 25-25"),
        (1, ("metadata.version", 7, UNSAFE), "Local controller 7 only supports versions 25-25"),
        (1, ("kraft.version", 1, UPGRADE), "Local controller 7 only supports versions 0-0"),
    ],
)
def test_what_cannot_be_finalised_is_refused_in_kafkas_words(level_now, update, reason):
    feature, level, _ = update
    with pytest.raises(KafkaError) as raised:
        levels_after(image_at(level_now), update)
    assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert str(raised.value) == (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {feature}. {reason}"
    )


def test_a_feature_of_one_level_is_there_already():
    assert levels_after(image_at(1), ("metadata.version", 25, UPGRADE), ("kraft.version", 0, UPGRADE)) == {}


def test_one_update_that_cannot_be_refuses_those_beside_it():
    with pytest.raises(KafkaError, match="feature nope"):
        levels_after(image_at(1), (GROUP_VERSION, 0, SAFE), ("nope", 1, UPGRADE))


def test_of_a_feature_named_twice_the_last_level_counts():
    assert levels_after(image_at(1), (GROUP_VERSION, 0, SAFE), (GROUP_VERSION, 1, UPGRADE)) == {}


async def test_a_feature_that_was_switched_off_stays_off_over_restarts_and_snapshots(
    controller, metadata_log, config, node
):
    await controller.update_features([FeatureUpdate(GROUP_VERSION, 0, SAFE)], validate_only=False)
    for records in (metadata_log.records, list(image_records(controller.image))):
        restarted = make_controller(MemoryMetadataLog(), config, records)
        await restarted.register_node(node)
        assert restarted.image.features == {GROUP_VERSION: 0, TRANSACTION_VERSION: 2}


async def test_validation_alone_changes_nothing(controller, metadata_log, caplog):
    caplog.set_level(logging.INFO)
    batches = len(metadata_log.batches)
    await controller.update_features([FeatureUpdate(GROUP_VERSION, 0, SAFE)], validate_only=True)
    assert (controller.image.features, len(metadata_log.batches)) == (
        {GROUP_VERSION: 1, TRANSACTION_VERSION: 2},
        batches,
    )
    assert caplog.messages == []


async def test_a_change_for_the_whole_cluster_is_logged(controller, caplog):
    caplog.set_level(logging.INFO)
    await controller.update_features([FeatureUpdate(GROUP_VERSION, 0, SAFE)], validate_only=False)
    assert caplog.messages == ["feature group.version: finalized at level 0"]


@pytest.mark.parametrize("image", [MetadataImage(), image_at(0)])
def test_the_consumer_protocol_needs_its_feature(image):
    with pytest.raises(KafkaError) as raised:
        require_consumer_protocol(image, ["classic", "consumer"])
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
    require_consumer_protocol(image_at(1), ["classic", "consumer"])
    with pytest.raises(KafkaError, match=r"rebalance\.protocols"):
        require_consumer_protocol(image_at(1), ["classic"])


def test_without_eligible_leaders_their_lists_are_void():
    image = cluster_image([1, 2], features=[BrokerFeature(name=ELR, min_supported_version=0, max_supported_version=1)])
    update = FeatureUpdate(ELR, 0, UpgradeType.SAFE_DOWNGRADE)
    assert list(decide_feature_updates(image, 1, [update]).records) == [
        FeatureLevelRecord(name=ELR, feature_level=0),
        ClearElrRecord(topic_name=""),
    ]


def test_a_level_that_another_broker_does_not_know_cannot_be_finalised():
    older = [BrokerFeature(name=TRANSACTION_VERSION, min_supported_version=0, max_supported_version=1)]
    with pytest.raises(KafkaError, match="Broker 1 only supports versions 0-1"):
        decide_feature_updates(
            cluster_image([1, 2], features=older), 2, [FeatureUpdate(TRANSACTION_VERSION, 2, UpgradeType.UPGRADE)]
        )
