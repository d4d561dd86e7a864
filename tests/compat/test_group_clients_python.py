"""Groups of confluent-kafka, kafka-python and aiokafka: they share, lose nobody's partition, and go on where they were.

The broker's times are short here, so that nobody waits for a session of 45 seconds to end; what the defaults are is
tested elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.compat import group_claims
from tests.compat.group_claims import (
    CRASH_SESSION_MS,
    MANY_POLLS,
    SECONDS,
    SHORT_TIMES,
    create,
    has_received,
    has_values,
    places,
    produce,
)
from tests.compat.group_members import (
    ONE_OF_EACH,
    OTHER_STRATEGIES,
    Commit,
    ConfluentConsumer,
    ConfluentCooperative,
    ConfluentRange,
    Crowd,
    KafkaPythonCooperative,
    KafkaPythonMember,
    Member,
    Place,
)
from tests.compat.killable_member import KillableMember
from tests.waits import within
from trio_broker.testing.process import BrokerProcess


def named(kind: type[Member]) -> str:
    return kind.name.replace(" ", "-")


one_of_each = pytest.mark.parametrize("kind", ONE_OF_EACH, ids=named)
other_strategies = pytest.mark.parametrize("kind", OTHER_STRATEGIES, ids=named)
incremental = pytest.mark.parametrize(
    "kind", [ConfluentCooperative, ConfluentConsumer, KafkaPythonCooperative], ids=named
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("groups"), overrides=SHORT_TIMES, has_admin=False) as process:
        yield process


def commits(servers: str, group_id: str) -> dict[Place, Commit]:
    """What an administrator sees of a group's offsets, without the zero byte that confluent-kafka adds to metadata."""
    found = group_claims.commits(servers, group_id)
    return {place: Commit(each.offset, each.metadata.rstrip("\0")) for place, each in found.items()}


# --- coming and going ---


@one_of_each
def test_members_share_the_partitions_as_they_come_go_and_as_the_topic_grows(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    group_id = f"sharing-{topic}"
    four = create(admin, topic, 4)
    values = produce(broker.bootstrap_servers, four, 40)
    one = crowd.join(kind, group_id, topic)
    crowd.wait_until_shared(four, one)
    crowd.wait(lambda: set(one.values()) == set(values))
    one.ask(one.commit)

    two = crowd.join(kind, group_id, topic)
    crowd.wait_until_shared(four, one, two)
    three = crowd.join(kind, group_id, topic)
    crowd.wait_until_shared(four, one, two, three)

    within(admin.create_partitions([NewPartitions(topic, 6)])[topic].result, SECONDS)
    six = places(topic, 6)
    crowd.wait_until_shared(six, one, two, three)

    crowd.leave(one)
    crowd.wait_until_shared(six, two, three)
    later = produce(broker.bootstrap_servers, six, 60, first=100)
    crowd.wait(lambda: {*two.values(), *three.values()} >= set(later))
    crowd.leave(two)
    crowd.wait_until_shared(six, three)


@other_strategies
def test_members_share_with_every_strategy_of_their_library(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    four = create(admin, topic, 4)
    one, two = (crowd.join(kind, f"strategy-{topic}", topic) for _ in range(2))
    crowd.wait_until_shared(four, one, two)
    values = produce(broker.bootstrap_servers, four, 40)
    crowd.wait(lambda: {*one.values(), *two.values()} >= set(values))
    crowd.leave(one)
    crowd.wait_until_shared(four, two)


@pytest.mark.parametrize("kind", [ConfluentCooperative, ConfluentConsumer, KafkaPythonCooperative], ids=named)
def test_a_member_keeps_what_it_may_keep_where_rebalances_are_incremental(
    admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    """With eager strategies each member loses all it has for a moment; here nobody is ever without."""
    four = create(admin, topic, 4)
    one = crowd.join(kind, f"keeping-{topic}", topic)
    crowd.wait_until_shared(four, one)
    two = crowd.join(kind, f"keeping-{topic}", topic)
    crowd.wait_until_shared(four, one, two)

    had_all = next(index for index, owned in enumerate(one.assignments) if len(owned) == 4)
    assert all(owned >= one.owned for owned in one.assignments[had_all:])


def test_a_group_of_two_libraries_shares_as_well(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str
) -> None:
    """They agree on ``range``, the one strategy that both list."""
    all_places = create(admin, topic, 4)
    one = crowd.join(ConfluentRange, f"mixed-{topic}", topic)
    two = crowd.join(KafkaPythonMember, f"mixed-{topic}", topic)
    crowd.wait_until_shared(all_places, one, two)
    values = produce(broker.bootstrap_servers, all_places, 40)
    crowd.wait(lambda: sorted(one.values() + two.values()) == sorted(values))


def test_partitions_of_members_that_crash_go_to_the_others(tmp_path: Path) -> None:
    """A pair of each, all at once, because it takes a session until the broker can know."""
    times = SHORT_TIMES | {"group.consumer.session.timeout.ms": str(CRASH_SESSION_MS)}
    with BrokerProcess(tmp_path / "crashes", overrides=times, has_admin=False) as broker:
        crowd = Crowd(broker.bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        pairs = []
        for number, kind in enumerate(ONE_OF_EACH):
            all_places = create(admin, f"crash-{number}", 2)
            arguments = (f"group-{number}", f"crash-{number}")
            settings: dict[str, Any] = {"session_ms": CRASH_SESSION_MS}
            survivor = crowd.join(kind, *arguments, **settings)
            pairs.append((survivor, KillableMember(kind, broker.bootstrap_servers, *arguments, **settings), all_places))
        for survivor, killed, all_places in pairs:
            crowd.wait_until_shared(all_places, survivor, killed)
        for _, killed, _ in pairs:
            killed.kill()
        for survivor, _, all_places in pairs:
            crowd.wait_until_shared(all_places, survivor)
        crowd.leave(*list(crowd.members))


@pytest.mark.parametrize("kind", [ConfluentConsumer, ConfluentRange], ids=named)
def test_a_regular_expression_finds_topics(admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]) -> None:
    """The broker matches it where KIP-848 is spoken; librdkafka does it itself with the classic protocol."""
    found = create(admin, f"{topic}-found", 2)
    create(admin, f"not-{topic}", 2)
    member = crowd.join(kind, f"regex-{topic}", f"^{topic}-.*")
    crowd.wait_until_shared(found, member)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [ConfluentConsumer, ConfluentRange], ids=named)
def test_a_regular_expression_finds_topics_that_come_later(
    admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    """Slow, since a broker matches the same expression once in ten seconds at most, as Kafka does."""
    found = create(admin, f"{topic}-found", 2)
    member = crowd.join(kind, f"regex-{topic}", f"^{topic}-.*")
    crowd.wait_until_shared(found, member)
    found += create(admin, f"{topic}-later", 1)
    crowd.wait_until_shared(found, member)


@one_of_each
def test_a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(
    admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    group_id = f"static-{topic}"
    all_places = create(admin, topic, 4)
    stays = crowd.join(kind, group_id, topic, instance_id="stays")
    crowd.wait_until_shared(all_places, stays)
    returns = crowd.join(kind, group_id, topic, instance_id="returns")
    crowd.wait_until_shared(all_places, stays, returns)
    had, noticed = returns.owned, len(stays.assignments)

    crowd.leave(returns)
    again = crowd.join(kind, group_id, topic, instance_id="returns")
    crowd.wait(lambda: again.owned)

    assert again.owned == had
    assert len(stays.assignments) == noticed


# --- committing ---


@one_of_each
def test_a_new_member_goes_on_where_the_last_commit_was(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    [place] = create(admin, topic, 1)
    values = produce(broker.bootstrap_servers, [place], 20)
    first = crowd.join(kind, f"resuming-{topic}", topic)
    crowd.wait(lambda: first.values() == values)
    assert first.ask(lambda: first.committed(place)) is None
    first.ask(lambda: first.commit({place: Commit(12, "after twelve")}))
    assert first.ask(lambda: first.committed(place)) == 12
    assert commits(broker.bootstrap_servers, f"resuming-{topic}") == {place: Commit(12, "after twelve")}
    crowd.leave(first)

    second = crowd.join(kind, f"resuming-{topic}", topic)
    crowd.wait(lambda: second.values() == values[12:])
    second.ask(second.commit)
    assert second.ask(lambda: second.committed(place)) == 20
    assert second.ask(lambda: second.end_offset(place)) == 20


@one_of_each
def test_a_commit_in_the_background_is_reported_and_kept(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    [place] = create(admin, topic, 1)
    values = produce(broker.bootstrap_servers, [place], 10)
    member = crowd.join(kind, f"async-{topic}", topic)
    crowd.wait(lambda: member.values() == values)
    done = threading.Event()
    member.ask(lambda: member.commit_soon({place: Commit(7, "soon")}, done.set))
    assert within(done.wait, SECONDS)
    assert commits(broker.bootstrap_servers, f"async-{topic}") == {place: Commit(7, "soon")}


@one_of_each
def test_lag_is_the_end_less_what_is_committed(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    three = create(admin, topic, 3)
    values = produce(broker.bootstrap_servers, three, 30)
    member = crowd.join(kind, f"lagging-{topic}", topic)
    crowd.wait(lambda: len(member.values()) == len(values))
    member.ask(lambda: member.commit({place: Commit(4 + place.partition, "") for place in three}))

    def lags() -> list[int]:
        return [member.end_offset(place) - (member.committed(place) or 0) for place in three]

    assert member.ask(lags) == [6, 5, 4]


@one_of_each
def test_offsets_are_committed_by_themselves_while_reading_and_when_leaving(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    [place] = create(admin, topic, 1)
    values = produce(broker.bootstrap_servers, [place], 10)
    member = crowd.join(kind, f"auto-{topic}", topic, auto_commit_ms=100)
    crowd.wait(lambda: member.values() == values)
    for _ in range(MANY_POLLS):
        if commits(broker.bootstrap_servers, f"auto-{topic}") == {place: Commit(10, "")}:
            break
        member.ask(lambda: None)
    values += produce(broker.bootstrap_servers, [place], 5, first=10)
    crowd.wait(lambda: member.values() == values)
    crowd.leave(member)
    assert commits(broker.bootstrap_servers, f"auto-{topic}") == {place: Commit(15, "")}


# --- moving about ---


@one_of_each
def test_a_member_seeks_pauses_and_resumes(
    broker: BrokerProcess, admin: AdminClient, crowd: Crowd, topic: str, kind: type[Member]
) -> None:
    still, moving = create(admin, topic, 2)
    produce(broker.bootstrap_servers, [still, moving], 20)
    member = crowd.join(kind, f"seeking-{topic}", topic)
    crowd.wait(lambda: len(member.received) == 20)

    member.ask(lambda: member.seek(moving, 3))
    crowd.wait(lambda: len(member.received) == 27)
    assert [(record.place, record.offset) for record in member.received[20:]] == [(moving, at) for at in range(3, 10)]

    member.ask(lambda: member.pause(still))
    produce(broker.bootstrap_servers, [still], 5, first=100)
    produce(broker.bootstrap_servers, [moving], 5, first=200)
    crowd.wait(lambda: len(member.received) == 32)
    assert {record.place for record in member.received[27:]} == {moving}
    member.ask(lambda: member.resume(still))
    crowd.wait(lambda: len(member.received) == 37)
    assert [record.offset for record in member.received[32:]] == list(range(10, 15))


# --- restarts of the broker ---


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill"])
def test_groups_and_their_offsets_survive_the_broker(
    start_broker: Callable[..., BrokerProcess], end: Callable[[BrokerProcess], int]
) -> None:
    """A member of every kind of client polls throughout; what it committed stays, and it goes on."""
    broker = start_broker(**{key.replace(".", "_"): value for key, value in SHORT_TIMES.items()})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    crowd = Crowd(broker.bootstrap_servers)
    pairs: list[tuple[Member, Place]] = []
    for number, kind in enumerate(ONE_OF_EACH):
        [place] = create(admin, f"durable-{number}", 1)
        produce(broker.bootstrap_servers, [place], 10)
        pairs.append((crowd.join(kind, f"group-{number}", place.topic), place))
    for member, place in pairs:
        crowd.wait(has_received(member, 10))
        member.ask(partial(member.commit, {place: Commit(8, "kept")}))

    end(broker)
    broker.start()

    for number, (_, place) in enumerate(pairs):
        assert commits(broker.bootstrap_servers, f"group-{number}") == {place: Commit(8, "kept")}
        produce(broker.bootstrap_servers, [place], 10, first=10)
    for member, _ in pairs:
        crowd.wait(has_received(member, 20))
        member.ask(member.commit)
    crowd.leave(*[member for member, _ in pairs])

    for number, (member, place) in enumerate(pairs):
        heir = crowd.join(type(member), f"group-{number}", place.topic)
        produce(broker.bootstrap_servers, [place], 1, first=20)
        crowd.wait(has_values(heir, b"20"))
    crowd.leave(*list(crowd.members))
