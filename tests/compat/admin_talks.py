"""Conversations of an administrator: listing, describing and deleting groups."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.list_groups import ListGroupsRequest
from tests.compat.broker_talk import Talk
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


def groups_of_every_kind(talk: Talk) -> None:
    """Make a group in each state that stays: stable, completing, empty, offsets alone, an id alone, and KIP-848."""
    topic = f"{talk.name}-t"
    topic_for_consumers(talk, topic)
    settled(talk, f"{talk.name}-stable")
    talk.quietly(join(f"{talk.name}-completing", protocol_type="connect"), 3)
    member, _ = settled(talk, f"{talk.name}-empty")
    talk.quietly(leave(f"{talk.name}-empty", (member, None)), 5)
    talk.quietly(commit(f"{talk.name}-simple", topic, {0: 1}), 9)
    pending(talk, f"{talk.name}-pending")
    talk.quietly(heartbeat(f"{talk.name}-asked-after", 1, "member"), 4)
    talk.quietly(first_beat(f"{talk.name}-consumer", "m1", [topic]), 1)


def listing_groups(talk: Talk) -> None:
    groups_of_every_kind(talk)
    for version in range(6):
        talk.ask(ListGroupsRequest(), version)
    talk.note("by state, which is matched without regard to case")
    for states in (["Stable"], ["stable", "EMPTY"], ["PreparingRebalance", "CompletingRebalance"], ["Dead"], ["nope"]):
        talk.ask(ListGroupsRequest(states_filter=states), 4)
    talk.ask(ListGroupsRequest(states_filter=["Assigning", "Reconciling"]), 4)
    talk.note("by type, and by both")
    for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"], ["share"], ["streams"], ["nope"], [""]):
        talk.ask(ListGroupsRequest(types_filter=types), 5)
    talk.ask(ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"]), 5)
    talk.ask(ListGroupsRequest(states_filter=["Stable"], types_filter=["consumer"]), 5)


def describing_groups(talk: Talk) -> None:
    groups_of_every_kind(talk)
    talk.note("a group that nobody knows, and the empty name")
    for version in range(7):
        talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-unknown"]), version)
    for version in (0, 5, 6):
        talk.ask(DescribeGroupsRequest(groups=[""]), version)
    talk.note("a stable group")
    for version in range(7):
        talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-stable"]), version)
    talk.note("groups in other states, and of the other kind")
    for name in ("completing", "empty", "simple", "pending", "asked-after", "consumer"):
        talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-{name}"]), 6)
    talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-consumer"]), 5)
    talk.note("several at once, one of them twice, and none")
    both = [f"{talk.name}-empty", f"{talk.name}-unknown", f"{talk.name}-empty"]
    talk.ask(DescribeGroupsRequest(groups=both), 6)
    talk.ask(DescribeGroupsRequest(groups=[]), 6)
    talk.note("with what one may do to it")
    talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-empty"], include_authorized_operations=True), 6)
    talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-unknown"], include_authorized_operations=True), 6)
    talk.ask(DescribeGroupsRequest(groups=[f"{talk.name}-unknown"], include_authorized_operations=True), 5)


def describing_consumer_groups(talk: Talk) -> None:
    groups_of_every_kind(talk)
    for version in (0, 1):
        for name in (f"{talk.name}-unknown", "", f"{talk.name}-stable", f"{talk.name}-simple", f"{talk.name}-consumer"):
            talk.ask(ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False), version)
    both = [f"{talk.name}-consumer", f"{talk.name}-unknown", f"{talk.name}-consumer"]
    talk.ask(ConsumerGroupDescribeRequest(group_ids=both, include_authorized_operations=True), 1)
    talk.ask(ConsumerGroupDescribeRequest(group_ids=[], include_authorized_operations=True), 1)


def deleting_groups(talk: Talk) -> None:
    groups_of_every_kind(talk)
    for version in range(3):
        talk.ask(DeleteGroupsRequest(groups_names=[f"{talk.name}-unknown"]), version)
        talk.ask(DeleteGroupsRequest(groups_names=[""]), version)
    talk.note("groups with members")
    for name in ("stable", "completing", "consumer"):
        talk.ask(DeleteGroupsRequest(groups_names=[f"{talk.name}-{name}"]), 2)
    talk.note("groups without")
    for name in ("pending", "asked-after"):
        talk.ask(DeleteGroupsRequest(groups_names=[f"{talk.name}-{name}"]), 2)
    names = [f"{talk.name}-simple", f"{talk.name}-empty", f"{talk.name}-stable", f"{talk.name}-simple"]
    talk.ask(DeleteGroupsRequest(groups_names=names), 2)
    talk.ask(DeleteGroupsRequest(groups_names=[]), 2)
    talk.note("what is left")
    talk.ask(ListGroupsRequest(), 5)
    talk.ask(fetch_offsets(f"{talk.name}-simple", None, 9), 9)
    answer = talk.ask(join(f"{talk.name}-empty"), 3)
    assert answer.error_code == ErrorCode.NONE


ADMIN_TALKS = (listing_groups, describing_groups, describing_consumer_groups, deleting_groups)
