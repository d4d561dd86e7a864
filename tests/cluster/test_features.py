"""The features of the cluster."""

from __future__ import annotations

from kafka_wire.stored.metadata import FeatureLevelRecord
from tests.fakes.memory_metadata_log import MemoryMetadataLog
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.features import GROUP_VERSION, SUPPORTED, decide_features
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.replication_control import NewTopic


def finalised(records):
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


async def test_the_first_start_finalises_what_the_broker_knows(metadata_log, controller):
    assert controller.image.features == {GROUP_VERSION: 1}
    assert finalised(metadata_log.batches[0]) == {GROUP_VERSION: 1}


async def test_another_start_finalises_nothing_anew(metadata_log, controller, node):
    await controller.register_node(node)
    assert finalised(metadata_log.batches[-1]) == {}


async def test_the_first_start_on_older_data_finalises_what_is_missing(config, node, controller, metadata_log):
    await controller.create_topics([NewTopic(name="t")])
    older = [record for record in metadata_log.records if not isinstance(record, FeatureLevelRecord)]
    newer_log = MemoryMetadataLog()
    upgraded = Controller(newer_log, config, older)
    assert upgraded.image.features == {}
    await upgraded.register_node(node)
    assert upgraded.image.features == {GROUP_VERSION: 1}
    assert "t" in upgraded.image.topics


def test_a_level_that_is_there_stays():
    image = MetadataImage()
    image.apply(FeatureLevelRecord(name="metadata.version", feature_level=25))
    for name in SUPPORTED:
        image.apply(FeatureLevelRecord(name=name, feature_level=1))
    assert decide_features(image) == []
