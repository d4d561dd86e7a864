"""Decide, append, publish."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.fakes.controllers import make_controller
from tests.fakes.memory_metadata_log import MemoryMetadataLog
from tests.fakes.metadata_subscriber import RecordingSubscriber
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeChannel, ChangedResource, ChangeOrigin
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from trio_broker.cluster.replication_control import NewPartitions, NewTopic, TopicTarget
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ValueChange
from trio_broker.runtime.real import real_runtime

BROKER = ConfigResource(ConfigResourceType.BROKER, "1")


def setting(resource, name, value):
    return ResourceAlterations(resource, (ConfigAlteration(name, ConfigOperation.SET, value),))


@pytest.fixture
def deltas(controller):
    subscriber = RecordingSubscriber()
    controller.loader.publisher.subscribers = (subscriber,)
    return subscriber.deltas


async def test_a_topic_is_in_log_and_image_and_published_when_the_request_is_answered(controller, metadata_log, deltas):
    [created] = await controller.create_topics([NewTopic(name="t")])
    assert controller.image.topics["t"].topic_id == created.topic_id
    assert metadata_log.batches[-1][0].name == "t"
    assert [delta.changed_topics for delta in deltas] == [("t",)]


async def test_one_request_is_one_batch_and_refusals_keep_their_place(controller, metadata_log):
    outcomes = await controller.create_topics([NewTopic(name="a"), NewTopic(name="/"), NewTopic(name="b")])
    assert [getattr(item, "name", None) for item in outcomes] == ["a", None, "b"]
    assert isinstance(outcomes[1], KafkaError)
    assert [record.name for record in metadata_log.batches[-1] if hasattr(record, "name")] == ["a", "b"]


async def test_validate_only_answers_alike_and_changes_nothing(controller, metadata_log, deltas):
    before = len(metadata_log.batches)
    outcomes = await controller.create_topics([NewTopic(name="t"), NewTopic(name="/")], validate_only=True)
    assert outcomes[0].num_partitions == 1
    assert outcomes[1].code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (controller.image.topics, len(metadata_log.batches), deltas) == ({}, before, [])


async def test_a_topic_of_which_a_broker_reports_no_log_is_deleted_again(controller, metadata_log):
    class Reports:
        def reason_not_held(self, name: str) -> KafkaError | None:
            return KafkaError("no space", code=ErrorCode.KAFKA_STORAGE_ERROR) if name == "a" else None

    config = BrokerConfig({"node.id": "1"})
    reported = Controller(metadata_log, controller.loader, config, real_runtime(), Reports())
    reported.writer.activate(metadata_log.held())
    refused, created = await reported.create_topics([NewTopic(name="a"), NewTopic(name="b")])
    assert isinstance(refused, KafkaError)
    assert not isinstance(created, KafkaError)
    assert list(controller.loader.image.topics) == ["b"]


async def test_two_requests_for_one_name_at_once_make_one_topic(controller):
    outcomes = []

    async def create():
        outcomes.extend(await controller.create_topics([NewTopic(name="t")]))

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(create)
    refused = [item for item in outcomes if isinstance(item, KafkaError)]
    assert [item.code for item in refused] == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_growth_and_deletion_go_the_same_way(controller, deltas):
    await controller.create_topics([NewTopic(name="t")])
    await controller.create_partitions([NewPartitions(name="t", count=3)])
    assert len(controller.image.topics["t"].partitions) == 3
    [gone] = await controller.delete_topics([TopicTarget("t")])
    assert controller.image.topics == {}
    assert [item.name for delta in deltas for item in delta.deleted_topics] == [gone.name] == ["t"]


async def test_a_deletion_that_is_only_validated_deletes_nothing(controller):
    await controller.create_topics([NewTopic(name="t")])
    wanted = [TopicTarget("t"), TopicTarget("missing")]
    [found, missing] = await controller.delete_topics(wanted, validate_only=True)
    assert (found.name, missing.code) == ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert "t" in controller.image.topics


async def test_a_disk_that_refuses_changes_nothing(controller, metadata_log, deltas):
    metadata_log.failure = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await controller.create_topics([NewTopic(name="t")])
    assert (controller.image.topics, deltas) == ({}, [])


async def test_cancellation_between_log_and_image_does_not_part_them(config, node):
    scope = trio.CancelScope()

    class CancellingLog(MemoryMetadataLog):
        async def append(self, batch, *, claim, expected_end):
            scope.cancel()
            return await super().append(batch, claim=claim, expected_end=expected_end)

    controller = make_controller(CancellingLog(), config)
    with scope:
        await controller.register_node(node)
    assert 1 in controller.image.brokers
    await trio.testing.wait_all_tasks_blocked()
    assert 1 in controller.loader.image.brokers


async def test_settings_of_this_broker_take_effect_and_are_recorded_with_their_caller(controller, config):
    CALLER.set(ChangeOrigin(ChangeChannel.PAGE, "admin page", "127.0.0.1"))
    outcome = await controller.change_configs([setting(BROKER, "num.io.threads", "9")])
    assert config.socket_server.num_io_threads == 9
    [change] = outcome.changes
    assert change.values == (ValueChange("num.io.threads", "8", "9"),)
    assert (change.resource_type, change.resource, change.origin) == (ChangedResource.BROKER, "1", CALLER.get())
    assert controller.loader.publisher.changes.changes == (change,)


async def test_settings_without_an_effect_are_recorded_as_such_and_those_only_validated_are_not(controller, config):
    await controller.change_configs([setting(BROKER, "num.io.threads", "9")])
    CALLER.set(ChangeOrigin(ChangeChannel.KAFKA))
    outcome = await controller.change_configs([setting(CLUSTER_DEFAULT, "num.io.threads", "10")])
    [change] = outcome.changes
    assert (outcome.results, change.resource_type, change.values) == ([CLUSTER_DEFAULT], ChangedResource.CLUSTER, ())
    assert change.shadowed_values == (ValueChange("num.io.threads", None, "10"),)
    assert not change.is_of_settings
    outcome = await controller.change_configs([setting(BROKER, "num.io.threads", "10")], validate_only=True)
    assert (outcome.results, outcome.changes) == ([BROKER], ())
    assert config.socket_server.num_io_threads == 9


async def test_what_happens_to_topics_is_recorded(controller):
    await controller.create_topics([NewTopic(name="t", num_partitions=2, configs={"retention.ms": "5"})])
    await controller.create_topics([NewTopic(name="t"), NewTopic(name="u")], validate_only=True)
    await controller.create_partitions([NewPartitions(name="t", count=3)])
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    await controller.change_configs([setting(topic, "retention.ms", "7"), setting(BROKER, "log.retention.ms", "99")])
    remove = ConfigAlteration("retention.ms", ConfigOperation.DELETE, None)
    await controller.change_configs([ResourceAlterations(topic, (remove,))])
    await controller.delete_topics([TopicTarget("t")])
    group = ConfigResource(ConfigResourceType.GROUP, "g")
    await controller.change_configs([setting(group, "consumer.session.timeout.ms", "50000")])
    assert [
        (change.action.value, change.resource, *((each.name, each.old, each.new) for each in change.values))
        for change in controller.loader.publisher.changes.changes
    ] == [
        ("created", "t", ("partitions", None, "2"), ("retention.ms", None, "5")),
        ("partitions-added", "t", ("partitions", "2", "3")),
        ("config", "t", ("retention.ms", "5", "7")),
        ("config", "1", ("log.retention.ms", "604800000", "99")),
        ("config", "t", ("retention.ms", "7", "99")),
        ("deleted", "t", ("partitions", "3", None)),
        ("config", "g", ("consumer.session.timeout.ms", "45000", "50000")),
    ]
    assert [change.number for change in controller.loader.publisher.changes.changes] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_replay_gives_back_the_image_and_the_dynamic_settings(controller, metadata_log):
    await controller.create_topics([NewTopic(name="t", num_partitions=2, configs={"retention.ms": "5"})])
    await controller.create_partitions([NewPartitions(name="t", count=3)])
    await controller.change_configs([setting(BROKER, "num.io.threads", "9")])
    await controller.allocate_producer_ids()
    config = BrokerConfig({"node.id": "1"})
    again = make_controller(metadata_log, config, metadata_log.records)
    assert again.image.topics == controller.image.topics
    assert again.image.brokers == controller.image.brokers
    assert again.image.next_producer_id == 1000
    assert again.image.partition_count == 3
    assert config.socket_server.num_io_threads == 9


async def test_decisions_about_topics_read_the_settings_of_the_image(controller, metadata_log):
    """Whatever this process has in effect: here none of the dynamic settings."""
    await controller.change_configs([setting(CLUSTER_DEFAULT, "log.cleaner.max.compaction.lag.ms", "5")])
    config = BrokerConfig({"node.id": "1"})
    elsewhere = Controller(metadata_log, controller.loader, config, real_runtime())
    elsewhere.writer.activate(metadata_log.held())
    topic = NewTopic(name="t", configs={"min.compaction.lag.ms": "6"})
    [refused] = await elsewhere.create_topics([topic], validate_only=True)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_CONFIG
    await controller.change_configs([setting(BROKER, "log.cleaner.max.compaction.lag.ms", "7")])
    elsewhere.writer.activate(metadata_log.held())
    [created] = await elsewhere.create_topics([topic], validate_only=True)
    assert not isinstance(created, KafkaError), created
