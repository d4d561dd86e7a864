"""ElectLeaders."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.metadata_image import NO_LEADER, UNASSIGNED_DIRECTORY
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.elect_leaders import elect_leaders, error_response

PREFERRED, UNCLEAN = 0, 1


def request(*topics, election_type=PREFERRED):
    wanted = [TopicPartitions(topic=name, partitions=list(partitions)) for name, partitions in topics]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)


def everything(election_type=PREFERRED):
    return ElectLeadersRequest(election_type=election_type, topic_partitions=None)


def outcomes(response):
    return [
        (item.topic, [(one.partition_id, one.error_code) for one in item.partition_result])
        for item in response.replica_election_results
    ]


@pytest.fixture
async def admin():
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", num_partitions=2), NewTopic(name="u")])
    return client


def lose_leader(admin, partition):
    """Leave a partition of ``t`` as it is when the only replica in sync was another broker's."""
    partitions = admin.controller.image.topics["t"].partitions
    partitions[partition] = attrs.evolve(
        partitions[partition], leader=NO_LEADER, replicas=(2, 1), isr=(2,), directories=(UNASSIGNED_DIRECTORY,) * 2
    )


@pytest.mark.parametrize("version", range(3))
async def test_each_partition_is_answered_in_the_order_asked(admin, version):
    response = await admin.ask(elect_leaders, request(("t", [1, 7, 1]), ("x", [0]), ("t", [0])), version)
    not_needed, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.error_code == ErrorCode.NONE
    assert outcomes(response) == [
        ("t", [(1, not_needed), (7, unknown), (1, not_needed)]),
        ("x", [(0, unknown)]),
        ("t", [(0, not_needed)]),
    ]


async def test_an_unclean_election_gives_a_lost_partition_a_leader(admin):
    lose_leader(admin, 1)
    response = await admin.ask(elect_leaders, request(("t", [0, 1]), election_type=UNCLEAN), 2)
    assert outcomes(response) == [("t", [(0, ErrorCode.ELECTION_NOT_NEEDED), (1, ErrorCode.NONE)])]
    [_, won] = response.replica_election_results[0].partition_result
    assert won.error_message is None
    assert admin.controller.image.topics["t"].partitions[1].leader == 1


async def test_asked_for_all_only_elections_that_were_needed_are_reported(admin):
    assert outcomes(await admin.ask(elect_leaders, everything(), 0)) == [("t", []), ("u", [])]
    lose_leader(admin, 1)
    preferred = await admin.ask(elect_leaders, everything(), 2)
    assert outcomes(preferred) == [("t", [(1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]), ("u", [])]
    assert outcomes(await admin.ask(elect_leaders, everything(UNCLEAN), 2)) == [("t", [(1, ErrorCode.NONE)]), ("u", [])]


async def test_nothing_asked_for_is_nothing_answered(admin):
    assert outcomes(await admin.ask(elect_leaders, request(), 2)) == []


async def test_an_unknown_type_of_election_is_refused_as_a_whole(admin):
    asked = request(("t", [0]), election_type=5)
    with pytest.raises(KafkaError, match="Unknown election type 5") as raised:
        await admin.ask(elect_leaders, asked, 2)
    response = error_response(asked, raised.value)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert outcomes(response) == [("t", [(0, ErrorCode.INVALID_REQUEST)])]
