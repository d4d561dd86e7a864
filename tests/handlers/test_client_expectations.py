"""What clients expect of the table of APIs, of every response, and of the defaults, whatever they ask."""

from __future__ import annotations

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.schema import default_instance
from tests.cases import each
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.handlers.support.registry import advertised_apis, served_apis

ADVERTISED_BY_KAFKA_4_4 = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}


def test_the_old_minima_are_kept_for_clients_that_look_at_the_maximum_alone():
    advertised = {api.api_key: tuple(api.advertised) for api in advertised_apis(to_brokers=False)}
    assert advertised == ADVERTISED_BY_KAFKA_4_4


def test_telemetry_is_not_offered_so_that_no_client_sends_it():
    assert not {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} & set(served_apis())


def test_what_is_not_there_is_not_advertised_rather_than_answered_half_way():
    assert ApiKey.SHARE_GROUP_HEARTBEAT not in served_apis()


async def test_the_consumer_protocol_is_advertised_and_its_feature_finalised(wire):
    assert {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE} <= set(served_apis())
    assert wire.services.metadata_cache.image.features["group.version"] == 1


@pytest.mark.parametrize("api", advertised_apis(to_brokers=False), ids=lambda api: api.api_key.name)
async def test_an_empty_request_of_every_version_is_answered_to_the_last_byte_and_without_a_pause(wire, api):
    """No client is asked to wait, since there are no quotas."""
    request = default_instance(api.request)
    if api.api_key == ApiKey.PRODUCE:
        request.acks = 1  # 0 asks for silence
    for version in range(api.versions.low, api.versions.high + 1):
        response = await wire.ask(request, version)  # which asserts that nothing is left over
        assert type(response) is api.request.RESPONSE
        # Some have no room for it.
        assert getattr(response, "throttle_time_ms", 0) == 0


@each("version", [10, 12])
async def test_a_refused_produce_names_no_other_leader_because_there_is_none(wire, version):
    data = TopicProduceData(name="missing", partition_data=[PartitionProduceData(index=0, records=b"")])
    response = await wire.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), version)
    assert response.responses[0].partition_responses[0].current_leader.leader_id == -1
    assert response.node_endpoints == []


async def test_a_refused_fetch_names_no_other_leader_because_there_is_none(wire):
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    topic = FetchTopic(topic_id=bytes(15) + b"\x07", partitions=[asked])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], forgotten_topics_data=[])
    response = await wire.ask(request, 16)
    assert response.responses[0].partitions[0].current_leader.leader_id == -1
    assert response.node_endpoints == []


def test_the_defaults_that_people_rely_on():
    config = BrokerConfig()
    topic = topic_config({}, config)
    assert config.request.num_partitions == 1
    assert config.request.auto_create_topics_enable is True
    assert topic.retention_ms == 7 * 24 * 3600 * 1000
    assert topic.file_delete_delay_ms == 60_000
    assert config.socket_server.socket_request_max_bytes == 100 * 1024 * 1024
    assert config.request.fetch_max_bytes == 55 * 1024 * 1024
    assert config.socket_server.connections_max_idle_ms == 10 * 60 * 1000
