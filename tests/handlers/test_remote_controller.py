"""The controller as a broker asks it that is not the controller: the same results, from another broker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from unittest.mock import ANY

import attrs
import pytest

from kafka_wire.acl import AclOperation, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.sasl.scram import ScramMechanism
from tests.handlers.second_broker import LOG_DIR, NODE_ID
from tests.handlers.two_brokers import HERE, NOWHERE, TwoBrokers, two_brokers
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.cluster.acl_control import acl_of, acl_records
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.client_quota_control import QuotaAlteration, quotas_of
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigOperation,
    ResourceAlterations,
    ResourceReplacement,
)
from trio_broker.cluster.controller_channel import CALL_SECONDS, ControllerChannels
from trio_broker.cluster.features import own_features
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.cluster.remote_controller import RemoteController
from trio_broker.cluster.replication_control import NewPartitions, NewTopic, TopicTarget
from trio_broker.cluster.scram_control import ScramDeletion, ScramUpsertion, find_credential
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import Endpoint
from trio_broker.declaration.rights_text import GrantedRight
from trio_broker.security.new_acls import entry_of
from trio_broker.security.standard_authorizer import StandardAuthorizer

SESSION_SECONDS = 9.0

NODE = NodeRegistration(
    node_id=NODE_ID,
    incarnation_id=b"\2" * 16,
    endpoints=(Endpoint("BROKERS", SecurityProtocol.PLAINTEXT, "b2", 9093),),
    rack="b",
    log_dirs=(LOG_DIR,),
    features=own_features(),
)


KEY_STORE = ConfigAlteration("listener.name.b.ssl.keystore.location", ConfigOperation.SET, "/keys.pem")


def refuse_key_stores(config: BrokerConfig, changed: Collection[str]) -> None:
    """As a broker does that cannot read the file."""
    raise ConfigError("/keys.pem: there is no such file")


@attrs.define(eq=False)
class Asking:
    """``remote`` is asked on one broker; ``brokers`` are both."""

    brokers: TwoBrokers
    remote: RemoteController

    @property
    def image(self) -> MetadataImage:
        """What the controller knows."""
        controller: Any = self.brokers.controller.services.controller
        image: MetadataImage = controller.image
        return image

    def read_metadata(self) -> None:
        """Have the asking broker read all that the controller has written."""
        self.remote.metadata_cache.set_image(self.image)


@pytest.fixture
async def asking(open_wire_client) -> Asking:
    brokers = two_brokers(
        await open_wire_client(directory="asked", node_id=str(NODE_ID)), await open_wire_client(directory="controller")
    )
    services = brokers.client.services
    clients: Any = brokers.peers
    channels = ControllerChannels.of(brokers.locator, clients, session_timeout_seconds=SESSION_SECONDS)
    cluster_id = brokers.controller.services.node.cluster_id
    remote = RemoteController(
        services.controller, channels, services.metadata_cache, services.config, cluster_id, services.runtime.workers
    )
    return Asking(brokers, remote)


async def test_topics_are_created_with_their_settings_and_their_own_errors(asking):
    wanted = [
        NewTopic(name="orders", num_partitions=2, configs={"retention.ms": "1000"}),
        NewTopic(name="assigned", assignments={0: (1,)}),
        NewTopic(name="bad name"),
    ]
    tried = await asking.remote.create_topics(wanted, validate_only=True)
    assert asking.image.topics == {}
    created = await asking.remote.create_topics(wanted)
    assert [each.num_partitions for each in tried[:2]] == [each.num_partitions for each in created[:2]] == [2, 1]
    assert created[0].configs == {"retention.ms": "1000"}
    assert created[0].topic_id == asking.image.topics["orders"].topic_id
    assert isinstance(created[2], KafkaError)
    assert created[2].code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_partitions_are_added_and_topics_deleted(asking):
    await asking.remote.create_topics([NewTopic(name="orders")])
    asking.read_metadata()
    grown = NewPartitions(name="orders", count=3)
    assert await asking.remote.create_partitions([grown]) == [grown]
    [refused] = await asking.remote.create_partitions([NewPartitions(name="orders", count=1)])
    assert refused.code == ErrorCode.INVALID_PARTITIONS
    [tried] = await asking.remote.delete_topics([TopicTarget("orders")], validate_only=True)
    [deleted, unknown] = await asking.remote.delete_topics([TopicTarget("orders"), TopicTarget("missing")])
    assert tried.name == deleted.name == "orders"
    assert unknown.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asking.image.topics == {}


async def test_passwords_are_set_and_taken_away(asking):
    bob = ScramUpsertion("bob", ScramMechanism.SHA_512.number, 4096, b"salt", b"salted")
    assert await asking.remote.alter_scram_credentials([bob, ScramDeletion("eve", 2)]) == {"bob": None, "eve": ANY}
    assert find_credential(asking.image, "bob", ScramMechanism.SHA_512) is not None
    assert await asking.remote.alter_scram_credentials([ScramDeletion("bob", 2)]) == {"bob": None}
    assert find_credential(asking.image, "bob", ScramMechanism.SHA_512) is None


async def test_rights_are_granted_and_quotas_set(asking):
    controller = asking.brokers.controller.services
    controller.authorizer = StandardAuthorizer(frozenset({"User:ANONYMOUS"}), allow_everyone_if_no_acl_found=False)
    right = GrantedRight(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    entry = entry_of(right, "bob")
    assert await asking.remote.create_acls([entry, attrs.evolve(entry, resource_name="")]) == [entry, ANY]
    assert list(map(acl_of, acl_records(asking.image).values())) == [entry]
    bob = (("user", "bob"),)
    wanted = [QuotaAlteration(bob, (("producer_byte_rate", 5.0),)), QuotaAlteration(bob, (("nonsense", 5.0),))]
    assert await asking.remote.alter_client_quotas(wanted[:1], validate_only=True) == [None]
    assert quotas_of(asking.image).of_entities == {}
    assert await asking.remote.alter_client_quotas(wanted, validate_only=False) == [None, ANY]
    assert quotas_of(asking.image).of_entities == {frozenset(bob): {"producer_byte_rate": 5.0}}


async def test_settings_are_altered_and_replaced(asking):
    await asking.remote.create_topics([NewTopic(name="one"), NewTopic(name="other")])
    one, other = (ConfigResource(ConfigResourceType.TOPIC, name) for name in ("one", "other"))
    missing = ConfigResource(ConfigResourceType.TOPIC, "missing")
    alteration = ConfigAlteration("retention.ms", ConfigOperation.SET, "1000")
    outcome = await asking.remote.change_configs(
        [
            ResourceReplacement(other, {"retention.ms": "2000"}),
            ResourceAlterations(missing, (alteration,)),
            ResourceAlterations(one, (alteration,)),
        ]
    )
    assert outcome.results[0] == other
    assert outcome.results[1].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome.results[2] == one
    assert [asking.image.topics[name].configs for name in ("one", "other")] == [
        {"retention.ms": "1000"},
        {"retention.ms": "2000"},
    ]


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        (ChangeOrigin(ChangeChannel.HTTP, "page", "10.0.0.5"), "10.0.0.5 by 10.0.0.9"),
        (ChangeOrigin(ChangeChannel.BROKER), "10.0.0.9"),
    ],
)
async def test_a_change_is_made_in_the_name_of_the_client_for_which_the_broker_works(asking, origin, address):
    token = CALLER.set(origin)
    try:
        await asking.remote.create_topics([NewTopic(name="orders")])
    finally:
        CALLER.reset(token)
    [change] = [each for each in asking.brokers.controller.services.changes.changes if each.resource == "orders"]
    assert (change.origin.client, change.origin.address) == (origin.client, address)


# What brokers ask


def heartbeat(broker_epoch: int, offset: int) -> BrokerHeartbeat:
    return BrokerHeartbeat(broker_id=NODE_ID, broker_epoch=broker_epoch, current_metadata_offset=offset)


async def registered(asking: Asking) -> int:
    """The epoch of the asking broker, which is registered and unfenced."""
    broker_epoch: int = await asking.remote.register_broker(NODE)
    reply = await asking.remote.heartbeat(heartbeat(broker_epoch, asking.image.offset))
    assert reply.is_caught_up
    assert not reply.is_fenced
    asking.read_metadata()
    return broker_epoch


async def test_a_broker_registers_beats_and_stops(asking):
    broker_epoch = await registered(asking)
    broker = asking.image.brokers[NODE_ID]
    assert (broker.broker_epoch, broker.rack, broker.fenced) == (broker_epoch, "b", False)
    with pytest.raises(KafkaError) as raised:
        await asking.remote.heartbeat(heartbeat(broker_epoch - 1, 0))
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH
    beat = attrs.evolve(heartbeat(broker_epoch, asking.image.offset), want_shut_down=True)
    assert (await asking.remote.heartbeat(beat)).should_shut_down


async def test_the_directories_of_a_broker_that_have_failed_are_reported(asking):
    first, second = bytes(14) + b"\x02\x01", bytes(14) + b"\x02\x02"
    broker_epoch = await asking.remote.register_broker(attrs.evolve(NODE, log_dirs=[first, second]))
    beat = attrs.evolve(heartbeat(broker_epoch, asking.image.offset), offline_log_dirs={first})
    await asking.remote.heartbeat(beat)
    await asking.remote.heartbeat(beat)
    assert asking.brokers.controller.services.controller.image.brokers[NODE_ID].log_dirs == (second,)


async def test_producer_ids_are_allocated_for_the_broker_that_asks(asking):
    await registered(asking)
    one, other = [await asking.remote.allocate_producer_ids() for _ in range(2)]
    assert other.first == one.end > one.first


async def test_an_isr_is_altered(asking):
    broker_epoch = await registered(asking)
    await asking.remote.create_topics([NewTopic(name="orders", assignments={0: (NODE_ID, 1)})])
    asking.read_metadata()
    topic = asking.image.topics["orders"]
    partition = topic.partitions[0]
    wanted = PartitionAlteration(
        topic_id=topic.topic_id,
        index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=[ReplicaState(NODE_ID, broker_epoch)],
        leader_recovery_state=0,
    )
    missing = attrs.evolve(wanted, topic_id=b"\x09" * 16)
    altered, refused = await asking.remote.alter_partitions(NODE_ID, broker_epoch, [wanted, missing])
    assert altered == asking.image.topics["orders"].partitions[0]
    assert tuple(altered.isr) == (NODE_ID,)
    assert isinstance(refused, KafkaError)


async def test_settings_of_a_broker_are_changed_by_way_of_that_broker(asking):
    await registered(asking)
    own = ConfigResource.of_broker(NODE_ID)
    alteration = ConfigAlteration("num.io.threads", ConfigOperation.SET, "9")
    assert (await asking.remote.change_configs([ResourceAlterations(own, (alteration,))])).results == [own]
    assert asking.image.configs(own) == {"num.io.threads": "9"}


async def test_the_own_controller_is_asked_while_this_broker_is_it(asking):
    asking.brokers.locator.controller_name = HERE
    await asking.remote.create_topics([NewTopic(name="orders")])
    assert set(asking.remote.metadata_cache.image.topics) == {"orders"}
    assert not asking.brokers.peers.sent


@pytest.mark.parametrize(("call", "seconds"), [("register_broker", SESSION_SECONDS), ("create_topics", CALL_SECONDS)])
async def test_without_a_controller_each_call_has_its_time(asking, autojump_clock, call, seconds):
    asking.brokers.locator.controller_name = NOWHERE
    arguments: dict[str, Any] = {"register_broker": NODE, "create_topics": [NewTopic(name="orders")]}
    with pytest.raises(KafkaError, match=f"within {seconds:g} s") as raised:
        await getattr(asking.remote, call)(arguments[call])
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT


async def test_settings_that_the_asking_broker_could_not_follow_are_not_sent(asking):
    services = asking.brokers.client.services
    services.config.validators.append(refuse_key_stores)
    key_store = ResourceAlterations(ConfigResource.of_broker(NODE_ID), (KEY_STORE,))
    [refusal] = (await asking.remote.change_configs([key_store])).results
    assert isinstance(refusal, KafkaError)
    assert "there is no such file" in str(refusal)
    assert asking.image.configs(key_store.resource) == {}
    assert asking.brokers.peers.sent == []
