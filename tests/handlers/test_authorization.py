"""A broker that asks for rights, as clients that have some see it."""

from __future__ import annotations

import logging

import pytest

from kafka_wire.acl import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.messages.describe_cluster import DescribeClusterRequest
from kafka_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.primitives import NO_UUID
from tests.handlers.acls import ADMIN, SECURE, allow, entry, revoke
from tests.partition.real_logs import batch
from trio_broker.handlers import describe_topic_partitions
from trio_broker.handlers.support.metadata_answers import MetadataAnswers
from trio_broker.network.errors import CloseConnection
from trio_broker.security.standard_authorizer import StandardAuthorizer

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CLUSTER = ResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def broker(open_wire_client):
    """With the topics ``orders`` and ``secrets``; everybody has no right but the administrator."""
    broker = await open_wire_client(offsets_topic_num_partitions="1", **SECURE)
    for topic in ("orders", "secrets"):
        await broker.as_user(ADMIN).create_topic(topic)
    return broker


@pytest.fixture
def alice(broker):
    return broker.as_user("alice")


def topic_id(broker, name):
    return broker.services.metadata_cache.image.topics[name].topic_id


# --- Metadata ---


async def metadata(client, *topics, version=12, **fields):
    asked = None if not topics else [MetadataRequestTopic(**each) for each in topics]
    response = await client.ask(MetadataRequest(topics=asked, **fields), version)
    return [(topic.name, topic.error_code) for topic in response.topics]


async def test_all_topics_are_those_that_the_client_may_see(broker, alice):
    assert await metadata(alice) == []
    await allow(broker, entry())
    assert await metadata(alice) == [("orders", 0)]
    assert await metadata(broker.as_user(ADMIN)) == [("orders", 0), ("secrets", 0)]
    pages = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=9)
    assert [topic.name for topic in (await alice.ask(pages, 0)).topics] == ["orders"]


async def test_a_page_of_all_topics_asks_once_for_each_and_its_cursor_names_none_that_is_not_seen(
    broker, alice, monkeypatch
):
    await broker.as_user(ADMIN).create_topic("zebras")
    await allow(broker, entry(), entry("zebras"))
    asked, authorizer = [], broker.services.authorizer

    def may(principal, host, operation, resource_type, name):
        asked.append(name)
        return StandardAuthorizer.authorize(authorizer, principal, host, operation, resource_type, name)

    monkeypatch.setattr(authorizer, "authorize", may)
    monkeypatch.setattr(describe_topic_partitions, "topic_operations", lambda *_, **__: 0)
    page = await alice.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1), 0)
    assert ([topic.name for topic in page.topics], page.next_cursor.topic_name) == (["orders"], "zebras")
    assert asked == ["orders", "secrets", "zebras"]


async def test_a_topic_that_may_not_be_seen_is_denied_whether_it_is_there_or_not(broker, alice):
    await allow(broker, entry())
    asked = [{"name": name} for name in ("orders", "secrets", "nothing", "no//name")]
    assert await metadata(alice, *asked) == [("orders", 0)] + [(each["name"], DENIED) for each in asked[1:]]
    named = DescribeTopicPartitionsRequest(topics=[TopicRequest(**each) for each in asked], response_partition_limit=9)
    answered = {topic.name: topic.error_code for topic in (await alice.ask(named, 0)).topics}
    assert answered == {"orders": 0} | {each["name"]: DENIED for each in asked[1:]}
    assert "nothing" not in broker.services.metadata_cache.image.topics


async def test_the_id_of_a_topic_that_may_not_be_seen_is_unknown(broker, alice):
    await allow(broker, entry())
    asked = [{"name": None, "topic_id": each} for each in (topic_id(broker, "orders"), topic_id(broker, "secrets"))]
    asked.append({"name": None, "topic_id": bytes(15) + b"\7"})
    codes = [code for _, code in await metadata(alice, *asked)]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize(("name", "type_"), [("new", ResourceType.TOPIC), (CLUSTER_NAME, CLUSTER)])
async def test_a_topic_is_created_by_its_mention_with_the_right_to_create(broker, alice, name, type_):
    await allow(broker, entry("new", DESCRIBE))
    assert await metadata(alice, {"name": "new"}, allow_auto_topic_creation=False) == [
        ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert await metadata(alice, {"name": "new"}) == [("new", DENIED)]
    await allow(broker, entry(name, AclOperation.CREATE, type_=type_))
    assert await metadata(alice, {"name": "new"}) == [("new", 0)]


async def test_a_large_answer_that_is_kept_is_for_who_has_asked_and_while_the_rights_stand(broker, alice, monkeypatch):
    kept = []
    keep = MetadataAnswers.keep

    def noted(self, part, key, body):
        kept.append(key)
        keep(self, part, key, body)

    monkeypatch.setattr(MetadataAnswers, "keep", noted)
    await broker.as_user(ADMIN).create_topic("wide", 300)
    await allow(broker, entry("wide"), entry("wide", principal="User:bob"))
    for client in (broker.as_user(ADMIN), alice, alice, broker.as_user("bob")):
        assert ("wide", 0) in await metadata(client)
    assert len(kept) == len({*kept}) == 3
    assert await metadata(broker) == []
    await revoke(broker, principal_filter="User:alice")
    assert await metadata(alice) == []


async def test_operations_are_those_that_the_client_has(broker, alice):
    await allow(broker, entry(operation=WRITE), entry(CLUSTER_NAME, DESCRIBE, type_=CLUSTER))
    response = await alice.ask(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
    assert [topic.topic_authorized_operations for topic in response.topics] == [1 << WRITE | 1 << DESCRIBE]
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    assert (await alice.ask(asked, 1)).cluster_authorized_operations == 1 << DESCRIBE
    assert (await broker.ask(asked, 1)).cluster_authorized_operations == 0


# --- Produce ---


async def produced(client, *topics, acks=1, version=9, **fields):
    """The error of each topic, by its name."""
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch())]) for name in topics
    ]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data, **fields)
    response = await client.ask(request, version)
    return {topic.name: topic.partition_responses[0].error_code for topic in response.responses}


async def test_of_a_produce_what_is_allowed_is_appended(broker, alice):
    await allow(broker, entry(operation=WRITE))
    codes = await produced(alice, "secrets", "orders", "nothing")
    assert codes == {"orders": 0, "secrets": DENIED, "nothing": DENIED}
    ends = [broker.services.replicas.topic(name).partition(0).log_end_offset for name in ("orders", "secrets")]
    assert ends == [1, 0]
    assert await produced(broker, "orders") == {"orders": DENIED}


async def test_a_produce_without_an_answer_ends_the_connection_where_it_is_denied(broker, alice):
    await allow(broker, entry(operation=WRITE))
    with pytest.raises(CloseConnection, match="WRITE on TOPIC"):
        await produced(alice, "orders", "secrets", acks=0)
    assert broker.services.replicas.topic("orders").partition(0).log_end_offset == 1


async def test_a_transactional_id_is_asked_for_as_a_whole(broker, alice):
    await allow(broker, entry(operation=WRITE))
    assert await produced(alice, "orders", transactional_id="t") == {
        "orders": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    }


async def test_by_id_a_topic_is_looked_for_before_its_right_is(broker, alice):
    data = [
        TopicProduceData(topic_id=each, partition_data=[PartitionProduceData(index=0, records=batch())])
        for each in (topic_id(broker, "orders"), bytes(15) + b"\7")
    ]
    response = await alice.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 13)
    codes = {topic.topic_id: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {data[0].topic_id: DENIED, data[1].topic_id: ErrorCode.UNKNOWN_TOPIC_ID}


async def test_internal_topics_take_a_right_and_not_a_name(broker, alice, monkeypatch):
    await broker.as_user(ADMIN).create_topic("__consumer_offsets")
    await allow(broker, entry("__consumer_offsets", WRITE))
    monkeypatch.setattr("tests.handlers.wire_client.CLIENT_ID", "__admin_client")
    assert await produced(alice, "__consumer_offsets") == {"__consumer_offsets": ErrorCode.INVALID_TOPIC_EXCEPTION}
    await allow(broker, entry(CLUSTER_NAME, AclOperation.CLUSTER_ACTION, type_=CLUSTER))
    assert await produced(alice, "__consumer_offsets") == {"__consumer_offsets": 0}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (entry("anything", WRITE), 0),
        (entry(CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE, type_=CLUSTER), 0),
    ],
)
async def test_a_producer_id_is_for_who_may_write_to_anything(broker, alice, given, code):
    if given is not None:
        await allow(broker, given)
    response = await alice.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    assert response.error_code == code


# --- Fetch ---


def wanted(topic, *, max_wait_ms=0, session_id=0, session_epoch=-1, replica_id=-1):
    topics = [FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=99)])]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=topics if topic else [],
        session_id=session_id,
        session_epoch=session_epoch,
        replica_id=replica_id,
    )


async def fetched(client, request, version=12):
    response = await client.ask(request, version)
    return response, [each.partitions[0].error_code for each in response.responses]


async def test_a_fetch_session_ends_with_the_right_and_goes_on_with_it(broker, alice):
    await allow(broker, entry(), entry(operation=WRITE))
    await produced(alice, "orders")
    response, codes = await fetched(alice, wanted("orders", session_epoch=0))
    assert (codes, bool(response.responses[0].partitions[0].records)) == ([0], True)
    session = response.session_id
    assert session
    await revoke(broker, operation=READ)
    response, codes = await fetched(alice, wanted(None, session_id=session, session_epoch=1))
    assert (codes, response.responses[0].partitions[0].records) == ([DENIED], b"")
    await allow(broker, entry())
    _, codes = await fetched(alice, wanted(None, session_id=session, session_epoch=2))
    assert codes == [0]


async def test_a_fetch_session_is_not_there_for_another_principal(broker, alice):
    """Who guesses its id would learn from it which topics somebody else reads, and might end it."""
    await allow(broker, entry(operation=WRITE), entry(principal="User:*"))
    await produced(alice, "orders")
    session = (await fetched(alice, wanted("orders", session_epoch=0)))[0].session_id
    for epoch in (1, 7):
        response, _ = await fetched(broker, wanted(None, session_id=session, session_epoch=epoch))
        assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    for ends in (-1, 0):
        await fetched(broker, wanted("orders", session_id=session, session_epoch=ends))
    response, _ = await fetched(alice, wanted(None, session_id=session, session_epoch=1))
    assert (response.error_code, response.session_id) == (ErrorCode.NONE, session)


async def test_who_poses_as_a_replica_reads_nothing(broker, alice, monkeypatch):
    await allow(broker, entry())
    monkeypatch.setattr(broker.services.replicas, "is_other_broker", lambda broker_id: broker_id == 2)
    _, codes = await fetched(alice, wanted("orders", replica_id=2))
    assert codes == [DENIED]
    by_id = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        topics=[FetchTopic(topic_id=topic_id(broker, "orders"), partitions=wanted("x").topics[0].partitions)],
        session_epoch=-1,
        replica_state=ReplicaState(replica_id=2, replica_epoch=1),
    )
    _, codes = await fetched(alice, by_id, 17)
    assert codes == [DENIED]
    offsets = ListOffsetsRequest(
        replica_id=2,
        isolation_level=0,
        topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    response = await alice.ask(offsets, 6)
    assert response.topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- topics ---


async def test_a_topic_is_denied_before_it_exists_and_made_with_the_right(broker, alice):
    wanted_topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("orders", "mine-1", "new")
    ]
    await allow(broker, entry("mine-", AclOperation.CREATE, resource_pattern_type=PatternType.PREFIXED))
    response = await alice.ask(CreateTopicsRequest(topics=wanted_topics), 7)
    assert {each.name: each.error_code for each in response.topics} == {"mine-1": 0, "orders": DENIED, "new": DENIED}
    [made] = [each for each in response.topics if each.name == "mine-1"]
    assert (made.topic_config_error_code, made.configs, made.num_partitions) == (DENIED, None, -1)


@pytest.mark.parametrize("version", [5, 6])
async def test_a_topic_is_deleted_with_the_right_alone(broker, alice, version):
    await allow(broker, entry("secrets", AclOperation.DELETE))
    names = ["orders", "secrets", "nothing"]
    request = (
        DeleteTopicsRequest(topic_names=names, timeout_ms=1)
        if version == 5
        else DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=NO_UUID) for name in names], timeout_ms=1)
    )
    response = await alice.ask(request, version)
    codes = {each.name: each.error_code for each in response.responses}
    assert codes == {"secrets": 0, "orders": DENIED, "nothing": DENIED}


# --- the log of it ---


async def test_what_is_denied_is_logged_and_at_debug_what_is_allowed_too(broker, alice, caplog):
    caplog.set_level(logging.INFO, "trio_broker.handlers.support.audit_log")
    await produced(alice, "orders")
    await produced(alice, "secrets")
    [line] = caplog.messages
    assert "'User:alice' at 127.0.0.1 is denied WRITE on TOPIC 'orders' for PRODUCE by 'no entry'" in line
    caplog.set_level(logging.DEBUG, "trio_broker.handlers.support.audit_log")
    await allow(broker, entry(operation=WRITE))
    await produced(alice, "orders")
    assert "is allowed WRITE on TOPIC 'orders' for PRODUCE by 'ALLOW User:alice" in caplog.messages[-1]


async def test_what_denies_wins_over_what_allows(broker, alice):
    await allow(
        broker,
        entry(operation=WRITE),
        entry("*", AclOperation.ALL, principal="User:*", permission=AclPermissionType.DENY, host="127.0.0.0/8"),
    )
    assert await produced(alice, "orders") == {"orders": DENIED}
