"""A short, repeatable slice of ``fuzz.groups``, a long one behind ``soak``, and proof that it finds what is wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.good_group import GoodGroup, Unwell, beside
from fuzz.group_requests import GROUPS, MONSTROUS_GROUPS, TOPIC, Known, Memory, Sent, StormMaker, monsters
from fuzz.groups import BROKER_SETTINGS, BURST, Statistics, StormClient, fuzz, settled_state
from fuzz.raw_client import RawConnection, create_topic, request_bytes
from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.compat.group_requests import beat
from trio_broker.testing.process import BrokerProcess

SEED = 20270301
ROUNDS = 15
LONG_ROUNDS = 600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Shared by the tests that break something on purpose."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS, has_admin=False) as broker:
        create_topic(broker.port, TOPIC)
        yield broker


@pytest.fixture
def stormy_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", BROKER_SETTINGS, has_admin=False) as broker:
        yield broker


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.soak)])
def test_a_storm_of_group_requests_harms_no_other_group_and_nothing_is_lost_by_a_kill(
    stormy_broker: BrokerProcess, rounds: int
) -> None:
    statistics = Statistics()
    findings = list(fuzz(stormy_broker, SEED, range(rounds), statistics))
    assert not findings, "\n".join(map(str, findings))
    assert statistics.sent > rounds * BURST / 10, "most clients wait for others now and then"
    assert statistics.answered > statistics.sent / 10
    assert statistics.closed > rounds, "some requests are broken beyond an answer"
    assert statistics.good_rounds > 1
    assert statistics.groups > 5


# --- The storm itself ---


def test_the_same_seed_makes_the_same_requests() -> None:
    one, other = (StormMaker(random.Random(SEED), bytes(16)).requests() for _ in range(2))
    assert [next(one)[0] for _ in range(500)] == [next(other)[0] for _ in range(500)]


def test_every_monster_can_be_sent() -> None:
    for name, make in monsters(bytes(16)).items():
        request, version = make(MONSTROUS_GROUPS[0])
        assert request_bytes(request, version), name


def test_what_answers_tell_is_used_in_later_requests() -> None:
    maker = StormMaker(random.Random(SEED), bytes(16), Memory())
    for group_id in GROUPS:
        maker.memory.keep(Known(group_id, "known-by-answer", 12345))
    requests = maker.requests()
    frames = b"".join(next(requests)[0] for _ in range(300))
    assert frames.count(b"known-by-answer") > 50
    assert frames.count((12345).to_bytes(4, "big")) > 50


# --- What it finds ---


@pytest.mark.parametrize(("is_excused", "problems"), [(False, 1), (True, 0)])
def test_a_server_error_is_found_where_it_is_not_kafkas_own(is_excused: bool, problems: int) -> None:
    client = StormClient(0, Memory(), Statistics())
    answer = bytes(4) + encode_bytes(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), 0)
    sent = Sent(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, is_excused)
    assert len(list(client.problems_of(sent, answer))) == problems


def test_a_lost_membership_is_found(broker: BrokerProcess) -> None:
    good = GoodGroup(broker.port, "finding", TOPIC)
    good.check()
    with RawConnection.open(broker.port) as connection:
        connection.ask(
            LeaveGroupRequest(group_id="finding-classic", members=[MemberIdentity(member_id=good.member_id)]), 3
        )
    with pytest.raises(Unwell, match="classic heartbeat: UNKNOWN_MEMBER_ID"):
        good.check()
    good.close()


def test_a_lost_commit_is_found(broker: BrokerProcess) -> None:
    good = GoodGroup(broker.port, "losing", TOPIC)
    good.check()
    good.committed += 1
    with pytest.raises(Unwell, match="losing-classic had committed 2, after the restart it is 1"):
        good.reconnect()
    good.close()


def test_a_good_group_that_is_well_raises_nothing(broker: BrokerProcess) -> None:
    good = GoodGroup(broker.port, "well", TOPIC)
    with beside(good):
        before = good.rounds
        while good.rounds < before + 3:
            time.sleep(0.01)
    good.close()


def test_groups_with_members_are_waited_for(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.groups.SETTLE_SECONDS", 0.0)
    request = beat("restless", "m", 0, topics=[TOPIC], owned={}, rebalance_ms=1_000)
    with RawConnection.open(broker.port) as connection:
        assert connection.ask(request, 1).error_code == ErrorCode.NONE
    others = tuple(f"{name}-{kind}" for name in ("finding", "losing", "well") for kind in ("classic", "consumer"))
    with pytest.raises(AssertionError, match="do not come to rest"):
        settled_state(broker.port, others)
