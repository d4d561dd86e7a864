"""What a change of settings comes to."""

from __future__ import annotations

from uuid import uuid4

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ConfigRecord, TopicRecord
from tests.fakes.clusters import cluster_image, summary
from tests.fakes.images import broker_record, image_after
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigOperation,
    ResourceAlterations,
    ResourceReplacement,
    decide_config_change,
)
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture
def config():
    return BrokerConfig()


def record(resource, name, value):
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


@pytest.fixture
def image():
    image = MetadataImage()
    image = image_after(image, TopicRecord(name="orders", topic_id=uuid4().bytes))
    for name, value in (("retention.ms", "5"), ("cleanup.policy", "delete")):
        image = image_after(
            image, ConfigRecord(resource_type=TOPIC.type, resource_name="orders", name=name, value=value)
        )
    return image


def altered(image, config, resource, *alterations):
    change = ResourceAlterations(resource, tuple(ConfigAlteration(*alteration) for alteration in alterations))
    return written(decide_config_change(image, config, change))


def replaced(image, config, resource, configs):
    return written(decide_config_change(image, config, ResourceReplacement(resource, configs)))


def written(decision):
    for record in decision.records:
        assert (record.resource_type, record.resource_name) == (decision.outcome.type, decision.outcome.name)
    return {record.name: record.value for record in decision.records}


def code_of(decide, *arguments):
    with pytest.raises(KafkaError) as refusal:
        decide(*arguments)
    return refusal.value.code


def test_set_and_delete_write_what_changes(image, config):
    assert altered(image, config, TOPIC, ("segment.ms", SET, "9"), ("retention.ms", DELETE, None)) == {
        "segment.ms": "9",
        "retention.ms": None,
    }


def test_what_keeps_its_value_is_not_written(image, config):
    assert altered(image, config, TOPIC, ("retention.ms", SET, "5"), ("segment.ms", DELETE, None)) == {}


def test_append_and_subtract_work_on_lists(image, config):
    assert altered(image, config, TOPIC, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert altered(image, config, TOPIC, ("cleanup.policy", APPEND, "delete")) == {}
    assert altered(image, config, TOPIC, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": ""}


def test_append_to_a_list_that_is_not_set_begins_with_the_effective_one(image):
    config = BrokerConfig({"log.cleanup.policy": "compact"})
    image = image_after(
        image, ConfigRecord(resource_type=TOPIC.type, resource_name="orders", name="cleanup.policy", value=None)
    )
    assert altered(image, config, TOPIC, ("cleanup.policy", APPEND, "delete")) == {"cleanup.policy": "compact,delete"}
    assert altered(image, config, BROKER, ("log.cleanup.policy", APPEND, "delete")) == {
        "log.cleanup.policy": "compact,delete"
    }


def test_append_to_what_is_no_list_is_refused(image, config):
    assert code_of(altered, image, config, TOPIC, ("retention.ms", APPEND, "1")) is ErrorCode.INVALID_CONFIG


def test_a_replacement_takes_away_what_it_does_not_name(image, config):
    assert replaced(image, config, TOPIC, {"segment.ms": "9", "retention.ms": "5"}) == {
        "segment.ms": "9",
        "cleanup.policy": None,
    }


@pytest.mark.parametrize(
    ("resource", "alteration", "code"),
    [
        (TOPIC, ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (BROKER, ("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, ("log.dirs", SET, "/"), ErrorCode.INVALID_REQUEST),
        (BROKER, ("num.io.threads", SET, "100"), ErrorCode.INVALID_REQUEST),
        (BROKER, ("num.io.threads", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (CLUSTER_DEFAULT, ("num.io.threads", SET, "0"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ConfigResourceType.BROKER, "2"), ("num.io.threads", SET, "9"), ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(ConfigResourceType.TOPIC, "x"),
            ("retention.ms", SET, "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (ConfigResource(ConfigResourceType.TOPIC, "/"), ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ConfigResource(ConfigResourceType.GROUP, "g"), ("a", SET, "1"), ErrorCode.INVALID_CONFIG),
        (ConfigResource(ConfigResourceType.GROUP, ""), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ConfigResourceType.CLIENT_METRICS, "m"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_may_not_be_is_refused_with_the_right_code(image, config, resource, alteration, code):
    assert code_of(altered, image, config, resource, alteration) is code


def test_one_key_may_change_once_in_a_request(image, config):
    alterations = (("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert code_of(altered, image, config, TOPIC, *alterations) is ErrorCode.INVALID_REQUEST


def test_settings_of_a_topic_are_checked_together_with_those_it_has(image, config):
    image = image_after(
        image, ConfigRecord(resource_type=TOPIC.type, resource_name="orders", name="max.compaction.lag.ms", value="5")
    )
    assert code_of(altered, image, config, TOPIC, ("min.compaction.lag.ms", SET, "6")) is ErrorCode.INVALID_CONFIG


def test_a_broker_replacement_follows_half_and_double_for_what_it_takes_away(image):
    config = BrokerConfig({"num.io.threads": "64"})
    image = image_after(
        image, ConfigRecord(resource_type=BROKER.type, resource_name="1", name="num.io.threads", value="16")
    )
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "16"})
    assert code_of(replaced, image, config, BROKER, {}) is ErrorCode.INVALID_REQUEST


def test_settings_of_another_broker_are_checked_each_by_itself(image, config):
    other = ConfigResource(ConfigResourceType.BROKER, "2")
    image = image_after(image, broker_record(2))
    # More than twice of what runs here; what runs there is not known here.
    assert altered(image, config, other, ("num.io.threads", SET, "100")) == {"num.io.threads": "100"}
    for name, value in (("no.such", "1"), ("log.dirs", "/"), ("num.io.threads", "0")):
        assert code_of(altered, image, config, other, (name, SET, value)) is ErrorCode.INVALID_REQUEST
    unknown = ConfigResource(ConfigResourceType.BROKER, "3")
    assert code_of(altered, image, config, unknown, ("num.io.threads", SET, "9")) is ErrorCode.INVALID_REQUEST


# --- min.insync.replicas, and who is eligible to lead ---


@pytest.fixture
def shrunken():
    """One partition whose ISR is the leader alone, and one without a leader."""
    gone = {"leader": -1, "isr": [], "eligible_leader_replicas": [2], "last_known_elr": [1]}
    return cluster_image(
        [1], [{"replicas": (1, 2, 3), "isr": [1], "eligible_leader_replicas": [2, 3]}, {"replicas": (1, 2), **gone}]
    )


@pytest.mark.parametrize("resource", [ConfigResource(ConfigResourceType.TOPIC, "t"), CLUSTER_DEFAULT])
def test_who_was_eligible_is_not_when_a_smaller_isr_may_commit(shrunken, resource):
    """Otherwise one would lead that lacks what is committed from now on."""
    config = BrokerConfig({"node.id": "1", "min.insync.replicas": "2"})
    change = ResourceAlterations(resource, (ConfigAlteration("min.insync.replicas", ConfigOperation.SET, "1"),))
    decision = decide_config_change(shrunken, config, change)
    image = image_after(shrunken, *decision.records)
    assert [summary(image, index) for index in range(2)] == [(1, (1,), ()), (-1, (), (2,))]


@pytest.mark.parametrize(("value", "name"), [("2", "min.insync.replicas"), ("9", "retention.ms")])
def test_they_stay_eligible_while_the_isr_is_too_small(shrunken, value, name):
    config = BrokerConfig({"node.id": "1", "min.insync.replicas": "3"})
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    change = ResourceAlterations(resource, (ConfigAlteration(name, ConfigOperation.SET, value),))
    assert len(decide_config_change(shrunken, config, change).records) == 1
