"""Conversations of an administrator: listing, describing and deleting groups."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.list_groups import ListGroupsRequest
from tests.compat.group_requests import (
    commit,
    fetch_offsets,
    first_beat,
    heartbeat,
    join,
    leave,
    pending,
    settled,
    topic_for_consumers,
)
from tests.compat.scenario_client import ScenarioClient


def groups_of_every_kind(client: ScenarioClient) -> None:
    """Make a group in each state that stays: stable, completing, empty, offsets alone, an id alone, and KIP-848."""
    topic = f"{client.name}-t"
    topic_for_consumers(client, topic)
    settled(client, f"{client.name}-stable")
    client.quietly(join(f"{client.name}-completing", protocol_type="connect"), 3)
    member, _ = settled(client, f"{client.name}-empty")
    client.quietly(leave(f"{client.name}-empty", (member, None)), 5)
    client.quietly(commit(f"{client.name}-simple", topic, {0: 1}), 9)
    pending(client, f"{client.name}-pending")
    client.quietly(heartbeat(f"{client.name}-asked-after", 1, "member"), 4)
    client.quietly(first_beat(f"{client.name}-consumer", "m1", [topic]), 1)


def listing_groups(client: ScenarioClient) -> None:
    groups_of_every_kind(client)
    for version in range(6):
        client.ask(ListGroupsRequest(), version)
    client.note("by state, which is matched without regard to case")
    for states in (["Stable"], ["stable", "EMPTY"], ["PreparingRebalance", "CompletingRebalance"], ["Dead"], ["nope"]):
        client.ask(ListGroupsRequest(states_filter=states), 4)
    client.ask(ListGroupsRequest(states_filter=["Assigning", "Reconciling"]), 4)
    client.note("by type, and by both")
    for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"], ["share"], ["streams"], ["nope"], [""]):
        client.ask(ListGroupsRequest(types_filter=types), 5)
    client.ask(ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"]), 5)
    client.ask(ListGroupsRequest(states_filter=["Stable"], types_filter=["consumer"]), 5)


def describing_groups(client: ScenarioClient) -> None:
    groups_of_every_kind(client)
    client.note("a group that nobody knows, and the empty name")
    for version in range(7):
        client.ask(DescribeGroupsRequest(groups=[f"{client.name}-unknown"]), version)
    for version in (0, 5, 6):
        client.ask(DescribeGroupsRequest(groups=[""]), version)
    client.note("a stable group")
    for version in range(7):
        client.ask(DescribeGroupsRequest(groups=[f"{client.name}-stable"]), version)
    client.note("groups in other states, and of the other kind")
    for name in ("completing", "empty", "simple", "pending", "asked-after", "consumer"):
        client.ask(DescribeGroupsRequest(groups=[f"{client.name}-{name}"]), 6)
    client.ask(DescribeGroupsRequest(groups=[f"{client.name}-consumer"]), 5)
    client.note("several at once, one of them twice, and none")
    both = [f"{client.name}-empty", f"{client.name}-unknown", f"{client.name}-empty"]
    client.ask(DescribeGroupsRequest(groups=both), 6)
    client.ask(DescribeGroupsRequest(groups=[]), 6)
    client.note("with what one may do to it")
    client.ask(DescribeGroupsRequest(groups=[f"{client.name}-empty"], include_authorized_operations=True), 6)
    client.ask(DescribeGroupsRequest(groups=[f"{client.name}-unknown"], include_authorized_operations=True), 6)
    client.ask(DescribeGroupsRequest(groups=[f"{client.name}-unknown"], include_authorized_operations=True), 5)


def describing_consumer_groups(client: ScenarioClient) -> None:
    groups_of_every_kind(client)
    for version in (0, 1):
        for name in (
            f"{client.name}-unknown",
            "",
            f"{client.name}-stable",
            f"{client.name}-simple",
            f"{client.name}-consumer",
        ):
            client.ask(ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False), version)
    both = [f"{client.name}-consumer", f"{client.name}-unknown", f"{client.name}-consumer"]
    client.ask(ConsumerGroupDescribeRequest(group_ids=both, include_authorized_operations=True), 1)
    client.ask(ConsumerGroupDescribeRequest(group_ids=[], include_authorized_operations=True), 1)


def deleting_groups(client: ScenarioClient) -> None:
    groups_of_every_kind(client)
    for version in range(3):
        client.ask(DeleteGroupsRequest(groups_names=[f"{client.name}-unknown"]), version)
        client.ask(DeleteGroupsRequest(groups_names=[""]), version)
    client.note("groups with members")
    for name in ("stable", "completing", "consumer"):
        client.ask(DeleteGroupsRequest(groups_names=[f"{client.name}-{name}"]), 2)
    client.note("groups without")
    for name in ("pending", "asked-after"):
        client.ask(DeleteGroupsRequest(groups_names=[f"{client.name}-{name}"]), 2)
    names = [f"{client.name}-simple", f"{client.name}-empty", f"{client.name}-stable", f"{client.name}-simple"]
    client.ask(DeleteGroupsRequest(groups_names=names), 2)
    client.ask(DeleteGroupsRequest(groups_names=[]), 2)
    client.note("what is left")
    client.ask(ListGroupsRequest(), 5)
    client.ask(fetch_offsets(f"{client.name}-simple", None, 9), 9)
    answer = client.ask(join(f"{client.name}-empty"), 3)
    assert answer.error_code == ErrorCode.NONE


ADMIN_SCENARIOS = (listing_groups, describing_groups, describing_consumer_groups, deleting_groups)
