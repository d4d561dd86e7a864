"""A member that floods its group, or all groups, takes nothing from the others.

Several connections send joins as fast as the broker takes them. Meanwhile the members of two other groups send their
heartbeats, commit and read what they committed. Times are not asserted: they keep their memberships, in the generation
and at the epoch of before, and every commit is acknowledged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from fuzz.good_group import GoodGroup, beside
from fuzz.raw_client import RawConnection, create_topic, framed, request_bytes
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.compat.group_requests import beat
from trio_broker.testing.process import BrokerProcess

TOPIC = "flooded"
CONNECTIONS = 6
REQUESTS = 150
"""On each connection."""

WINDOW = 20
"""Requests sent before an answer is awaited; each connection is served in order, so more would only wait in buffers."""

PROTOCOLS = [JoinGroupRequestProtocol(name="range", metadata=bytes(1_000))]


def join(group_id: str, **fields: Any) -> JoinGroupRequest:
    given = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 0, "member_id": "", "protocol_type": "consumer"}
    return JoinGroupRequest(group_id=group_id, protocols=PROTOCOLS, **{**given, **fields})


def ids_without_end(name: str) -> tuple[Any, int]:
    """Asks for a member id, and never comes back with it."""
    return join("flood"), 9


def members_without_end(name: str) -> tuple[Any, int]:
    """Static members, each of which makes the group rebalance."""
    return join("flood", group_instance_id=name), 9


def the_same_member_again_and_again(name: str) -> tuple[Any, int]:
    """Fences itself each time."""
    return join("flood", group_instance_id=name.partition("-")[0]), 9


def groups_without_end(name: str) -> tuple[Any, int]:
    return join(f"flood-{name}"), 9


def leaving_members_without_end(name: str) -> tuple[Any, int]:
    return LeaveGroupRequest(group_id="flood", members=[MemberIdentity(member_id=name)] * 200), 5


def consumers_without_end(name: str) -> tuple[Any, int]:
    """Members of the consumer protocol, each of which makes the broker assign anew."""
    request = beat("flood-consumer", name, 0, topics=[TOPIC], owned={}, rebalance_ms=1_000)
    return request, 1


def patterns_without_end(name: str) -> tuple[Any, int]:
    """Regular expressions that are slow to match, another one from each member."""
    request, version = consumers_without_end(name)
    return attrs.evolve(request, subscribed_topic_regex=f"(?:[flod]?){{1000}}{name}"), version


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings, has_admin=False) as broker:
        create_topic(broker.port, TOPIC)
        yield broker


def flood(port: int, number: int, make: Callable[[str], tuple[Any, int]]) -> None:
    """Send requests, some ahead of their answers, and take the answers."""
    with RawConnection.open(port) as connection:
        for at in range(0, REQUESTS, WINDOW):
            frames = [framed(request_bytes(*make(f"{number}-{each}"))) for each in range(at, at + WINDOW)]
            connection.send(b"".join(frames))
            for _ in frames:
                assert connection.receive_frame() is not None


@pytest.mark.parametrize(
    "make",
    [
        ids_without_end,
        members_without_end,
        the_same_member_again_and_again,
        groups_without_end,
        leaving_members_without_end,
        consumers_without_end,
        patterns_without_end,
    ],
)
def test_a_flood_of_one_group_does_not_starve_the_others(
    broker: BrokerProcess, make: Callable[[str], tuple[Any, int]]
) -> None:
    good = GoodGroup(broker.port, make.__name__, TOPIC)
    member_before = (good.member_id, good.generation_id, good.member_epoch)
    floods = [threading.Thread(target=flood, args=(broker.port, number, make)) for number in range(CONNECTIONS)]
    with beside(good):
        for each in floods:
            each.start()
        for each in floods:
            each.join()
    good.check()
    assert (good.member_id, good.generation_id, good.member_epoch) == member_before
    assert good.committed == good.rounds > 1
    good.close()
