"""ConsumerGroupHeartbeat."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.consumer_group_heartbeat import consumer_group_heartbeat, error_response

VERSIONS = range(2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_coordinator_hears_who_asks_and_in_which_version(version):
    client = await make_admin_client()
    client.groups = ScriptedGroups(ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1))
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    response = await client.ask(consumer_group_heartbeat, request, version)
    assert (response.member_id, response.member_epoch, response.assignment) == ("m", 1, None)
    assert client.groups.asked == [(request, RequestContext("test", "/127.0.0.1", version))]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_without_a_name_is_an_invalid_request(version):
    client = await make_admin_client()
    client.groups = ScriptedGroups()
    request = ConsumerGroupHeartbeatRequest(group_id="", member_id="m", member_epoch=0)
    with pytest.raises(KafkaError) as raised:
        await client.ask(consumer_group_heartbeat, request, version)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    response = error_response(request, raised.value)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, "the group's id is empty")


async def test_in_version_0_the_broker_makes_the_id(groups):
    response = await groups.consume(0, "", 0)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id
    assert (await groups.consume(0, response.member_id, response.member_epoch)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("member_id", ["AAECAwQFBgcICQoLDA0ODw", "5b6f5f33-7c4e-4bd8-8f5c-2d8c2d1f0e4a"])
async def test_from_version_1_on_the_member_makes_it_as_it_likes(groups, member_id):
    assert (await groups.consume(1, member_id, 0)).member_id == member_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_assignment_names_topics_by_id_and_is_sent_when_it_changes(groups, version):
    joined = await groups.consume(version, "m", 0)
    [share] = joined.assignment.topic_partitions
    assert (share.topic_id, share.partitions) == (groups.topic_id("t"), [0, 1, 2])
    assert joined.heartbeat_interval_ms == 5_000
    beat = await groups.consume(version, "m", joined.member_epoch)
    assert (beat.error_code, beat.assignment) == (0, None)


async def test_a_member_learns_the_groups_own_heartbeat_interval_with_its_next_heartbeat(groups):
    """KIP-848: a setting of the group comes before the broker's, also while the group lives."""
    joined = await groups.consume(1, "m", 0)
    await groups.set_config("consumer.heartbeat.interval.ms", "6000")
    assert (await groups.consume(1, "m", joined.member_epoch)).heartbeat_interval_ms == 6_000
    await groups.set_config("consumer.heartbeat.interval.ms", None)
    assert (await groups.consume(1, "m", joined.member_epoch)).heartbeat_interval_ms == 5_000


async def test_a_group_follows_the_broker_s_assignment_interval_while_it_lives(groups):
    """KIP-1263: within the interval a new member has to wait for a target, with the epoch of the last one."""
    first = (await groups.consume(1, "m", 0)).member_epoch
    assert (await groups.consume(1, "n", 0)).member_epoch == first
    await groups.set_config("group.consumer.assignment.interval.ms", "0", CLUSTER_DEFAULT)
    assert (await groups.consume(1, "o", 0)).member_epoch == first + 2


async def test_a_setting_made_before_the_group_exists_counts_from_its_beginning(groups):
    await groups.set_config("consumer.heartbeat.interval.ms", "6000")
    assert (await groups.consume(1, "m", 0)).heartbeat_interval_ms == 6_000


async def test_the_consumer_protocol_can_be_left_out_of_the_rebalance_protocols(open_group_client):
    groups = await open_group_client(group_coordinator_rebalance_protocols="classic")
    refused = await groups.consume(1, "m", 0)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_epoch_of_the_one_who_leaves_is_minus_1(groups, version):
    await groups.consume(version, "m", 0)
    left = await groups.consume(version, "m", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)


@pytest.mark.parametrize("names", [["t"], []])
async def test_an_empty_pattern_beside_names_is_none(groups, names):
    response = await groups.consume(1, "m", 0, subscribed_topic_names=names, subscribed_topic_regex="")
    assert response.error_code == ErrorCode.NONE
