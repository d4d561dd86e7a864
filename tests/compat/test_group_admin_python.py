"""Groups as administrators see and change them, through three libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import MemberToRemove
from kafka.errors import GroupSubscribedToTopicError
from kafka.structs import OffsetAndMetadata

from tests.compat.group_members import (
    AiokafkaMember,
    Commit,
    ConfluentConsumer,
    ConfluentRange,
    Crowd,
    KafkaPythonMember,
    Member,
    Place,
)
from tests.waits import scaled, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 30

MANY_POLLS = 200
"""Ten seconds of polling, where nobody tells when something has happened."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("administered"), overrides=settings, has_admin=False) as process:
        yield process


@pytest.fixture(scope="module")
def other_admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def places(admin: AdminClient, topic: str) -> list[Place]:
    within(admin.create_topics([NewTopic(topic, 2, 1)])[topic].result, SECONDS)
    return [Place(topic, index) for index in range(2)]


def joined(crowd: Crowd, kind: type[Member], group_id: str, places: list[Place]) -> Member:
    """A member that owns everything and has committed 3 in each partition."""
    member = crowd.join(kind, group_id, places[0].topic)
    crowd.wait_until_shared(places, member)
    member.ask(lambda: member.commit({place: Commit(3, "") for place in places}))
    return member


def refusal(caught: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = caught.value.args[0].code()
    return code


@pytest.mark.parametrize(
    ("kind", "type_", "assignor"),
    [(ConfluentRange, ConsumerGroupType.CLASSIC, "range"), (ConfluentConsumer, ConsumerGroupType.CONSUMER, "uniform")],
)
def test_a_group_is_listed_described_and_deleted_when_it_is_empty(
    admin: AdminClient,
    crowd: Crowd,
    places: list[Place],
    kind: type[Member],
    type_: ConsumerGroupType,
    assignor: str,
) -> None:
    group_id = f"seen-{places[0].topic}"
    member = joined(crowd, kind, group_id, places)

    for _ in range(MANY_POLLS):
        everything = within(admin.list_consumer_groups().result, SECONDS)
        # The topic of groups may have been made for this one: its other partitions are loaded, too.
        if [error.code() for error in everything.errors] != [KafkaError.COORDINATOR_LOAD_IN_PROGRESS]:
            break
        member.ask(lambda: None)
    assert everything.errors == []
    [listed] = [group for group in everything.valid if group.group_id == group_id]
    assert (listed.state, listed.type, listed.is_simple_consumer_group) == (ConsumerGroupState.STABLE, type_, False)
    of_type = within(admin.list_consumer_groups(types={type_}, states={ConsumerGroupState.STABLE}).result, SECONDS)
    assert group_id in {group.group_id for group in of_type.valid}
    empty = within(admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result, SECONDS)
    assert group_id not in {group.group_id for group in empty.valid}

    described = within(admin.describe_consumer_groups([group_id])[group_id].result, SECONDS)
    assert (described.state, described.type, described.partition_assignor) == (
        ConsumerGroupState.STABLE,
        type_,
        assignor,
    )
    [only] = described.members
    assert only.client_id == "rdkafka"
    assert only.host in ("/127.0.0.1", "127.0.0.1")
    assert {Place(each.topic, each.partition) for each in only.assignment.topic_partitions} == set(places)

    with pytest.raises(KafkaException) as caught:
        within(admin.delete_consumer_groups([group_id])[group_id].result, SECONDS)
    assert refusal(caught) == KafkaError.NON_EMPTY_GROUP
    crowd.leave(member)
    described = within(admin.describe_consumer_groups([group_id])[group_id].result, SECONDS)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    within(admin.delete_consumer_groups([group_id])[group_id].result, SECONDS)
    assert group_id not in {group.group_id for group in within(admin.list_consumer_groups().result, SECONDS).valid}
    with pytest.raises(KafkaException) as caught:
        within(admin.delete_consumer_groups([group_id])[group_id].result, SECONDS)
    assert refusal(caught) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_are_listed_and_altered_with_confluent_kafka(
    admin: AdminClient, crowd: Crowd, places: list[Place]
) -> None:
    group_id = f"altered-{places[0].topic}"
    member = joined(crowd, ConfluentRange, group_id, places)
    wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(*places[0], 1), TopicPartition(*places[1], 2)])

    def alter() -> set[int | None]:
        """Alter; return the error codes of the partitions."""
        altered = within(admin.alter_consumer_group_offsets([wanted])[group_id].result, SECONDS).topic_partitions
        return {None if each.error is None else each.error.code() for each in altered}

    assert alter() == {KafkaError.UNKNOWN_MEMBER_ID}
    crowd.leave(member)
    assert alter() == {None}

    some = ConsumerGroupTopicPartitions(group_id, [TopicPartition(*places[1]), TopicPartition(places[1].topic, 7)])
    found = within(admin.list_consumer_group_offsets([some])[group_id].result, SECONDS)
    seen = [(each.partition, each.offset, each.error) for each in found.topic_partitions]
    assert seen == [(1, 2, None), (7, OFFSET_INVALID, None)]

    again = crowd.join(ConfluentRange, group_id, places[0].topic)
    crowd.wait_until_shared(places, again)
    assert [again.ask(partial(again.committed, place)) for place in places] == [1, 2]


def test_a_group_is_administered_with_kafka_python(
    other_admin: KafkaAdminClient, crowd: Crowd, places: list[Place]
) -> None:
    group_id = f"kp-{places[0].topic}"
    partitions = [KafkaPythonPartition(*place) for place in places]
    member = joined(crowd, KafkaPythonMember, group_id, places)

    assert group_id in {group["group_id"] for group in other_admin.list_groups()}
    described = other_admin.describe_groups([group_id])[group_id]
    assert described["group_state"] == "Stable"
    refused = other_admin.delete_group_offsets(group_id, partitions)
    assert refused == dict.fromkeys(partitions, GroupSubscribedToTopicError)
    assert other_admin.delete_groups([group_id]) == {group_id: "NonEmptyGroupError"}

    crowd.leave(member)
    other_admin.alter_group_offsets(group_id, {partitions[0]: OffsetAndMetadata(1, "by hand", -1)})
    offsets = other_admin.list_group_offsets(group_id)[group_id]
    assert {place: (each.offset, each.metadata) for place, each in offsets.items()} == {
        partitions[0]: (1, "by hand"),
        partitions[1]: (3, ""),
    }
    other_admin.delete_group_offsets(group_id, [partitions[1]])
    assert other_admin.list_group_offsets(group_id)[group_id].keys() == {partitions[0]}
    assert other_admin.delete_groups([group_id]) == {group_id: "OK"}
    assert other_admin.list_group_offsets(group_id)[group_id] == {}
    assert other_admin.delete_groups([group_id]) == {group_id: "GroupIdNotFoundError"}


def test_a_member_is_removed_by_an_administrator_and_comes_back(
    other_admin: KafkaAdminClient, crowd: Crowd, places: list[Place]
) -> None:
    group_id = f"removed-{places[0].topic}"
    member = joined(crowd, KafkaPythonMember, group_id, places)

    def member_ids() -> list[str]:
        return [each["member_id"] for each in other_admin.describe_groups([group_id])[group_id]["members"]]

    [removed] = member_ids()
    other_admin.remove_group_members(group_id, [MemberToRemove(member_id=removed)])
    for _ in range(MANY_POLLS):
        if member_ids() not in ([], [removed]):
            break
        member.ask(lambda: None)
    assert removed not in member_ids()
    crowd.wait_until_shared(places, member)


def test_a_group_is_looked_at_with_aiokafka(broker: BrokerProcess, crowd: Crowd, places: list[Place]) -> None:
    group_id = f"aio-{places[0].topic}"
    joined(crowd, AiokafkaMember, group_id, places)

    async def look() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await client.start()
        try:
            assert (group_id, "consumer") in {tuple(group) for group in await client.list_consumer_groups()}
            [described] = await client.describe_consumer_groups([group_id])
            assert "Stable" in str(described)
            offsets = await client.list_consumer_group_offsets(group_id)
            assert {Place(*place): each.offset for place, each in offsets.items()} == dict.fromkeys(places, 3)
            assert await client.find_coordinator(group_id) == 1
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(look(), scaled(SECONDS)))
