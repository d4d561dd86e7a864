"""What members of any client must be able to do in a group, for those who live in a host (``member_host``).

The same claims as ``test_group_clients_python``, which says them of clients that live in the test's own process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

import attrs
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import CoordinatorLoadInProgressError

from tests.compat.group_members import SESSION_MS, Commit, Member, Place
from tests.compat.member_host import HostedCrowd, HostedMember, MemberHost
from tests.waits import TimeLeft, flushed, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 30

SHORT_TIMES = {
    "log.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
}
"""So that nobody waits for a session of 45 seconds to end; what the defaults are is tested elsewhere."""

CRASH_SESSION_MS = 2000

MANY_POLLS = 200
"""Ten seconds of polling, where nobody tells when something has happened."""

Kind = type[HostedMember]


@attrs.frozen
class Group:
    """One group of one test: its broker, its crowd, its name and the topic that it reads, of one kind of client."""

    servers: str
    admin: AdminClient
    crowd: HostedCrowd
    kind: Kind
    topic: str

    @property
    def group_id(self) -> str:
        return f"{self.kind.name.replace(' ', '-')}-{self.topic}"

    def join(self, **settings: object) -> Member:
        return self.crowd.join(self.kind, self.group_id, self.topic, **settings)

    def create(self, partitions: int) -> list[Place]:
        return create(self.admin, self.topic, partitions)

    def produce(self, places: list[Place], count: int, *, first: int = 0) -> list[bytes]:
        return produce(self.servers, places, count, first=first)

    def commit_of(self, offset: int, metadata: str) -> Commit:
        return Commit(offset, metadata if self.kind.commits_metadata else "")

    def commits(self) -> dict[Place, Commit]:
        return commits(self.servers, self.group_id)


def places(topic: str, count: int) -> list[Place]:
    return [Place(topic, index) for index in range(count)]


def has_received(member: Member | HostedMember, count: int) -> Callable[[], bool]:
    """Whether the member has received the first ``count`` records of a partition."""
    return lambda: {record.offset for record in member.received} == set(range(count))


def has_values(member: Member | HostedMember, *values: bytes) -> Callable[[], bool]:
    """Whether these values, and no others, are what the member has received."""
    return lambda: member.values() == [*values]


def create(admin: AdminClient, topic: str, partitions: int) -> list[Place]:
    within(admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result, SECONDS)
    return places(topic, partitions)


def produce(servers: str, places: list[Place], count: int, *, first: int = 0) -> list[bytes]:
    """Send numbered values, one partition after the other; return them."""
    producer = Producer({"bootstrap.servers": servers, "reconnect.backoff.max.ms": 200, "log_level": 0})
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        place = places[number % len(places)]
        producer.produce(place.topic, value, partition=place.partition)
    assert flushed(producer, SECONDS)
    return values


def commits(servers: str, group_id: str) -> dict[Place, Commit]:
    """What an administrator sees of a group's offsets.

    Through kafka-python, because confluent-kafka reads metadata on until some zero byte comes. It does not ask again by
    itself where a broker that has just started is still loading the group.
    """
    admin, time_left = KafkaAdminClient(bootstrap_servers=servers), TimeLeft(SECONDS)
    try:
        while True:
            try:
                found = admin.list_group_offsets(group_id)[group_id]
                break
            except CoordinatorLoadInProgressError:
                if time_left.is_over:
                    raise
    finally:
        admin.close()
    return {Place(*place): Commit(each.offset, each.metadata) for place, each in found.items()}


def grown(group: Group, partitions: int) -> list[Place]:
    within(group.admin.create_partitions([NewPartitions(group.topic, partitions)])[group.topic].result, SECONDS)
    return places(group.topic, partitions)


def members_share_as_they_come_and_go_and_as_the_topic_grows(group: Group) -> None:
    crowd = group.crowd
    four = group.create(4)
    values = group.produce(four, 40)
    one = group.join()
    crowd.wait_until_shared(four, one)
    crowd.wait(lambda: set(one.values()) == set(values))
    one.ask(one.commit)

    two = group.join()
    crowd.wait_until_shared(four, one, two)
    three = group.join()
    crowd.wait_until_shared(four, one, two, three)

    every = grown(group, 6) if group.kind.reads_what_is_new else four
    crowd.wait_until_shared(every, one, two, three)
    crowd.leave(one)
    crowd.wait_until_shared(every, two, three)
    later = group.produce(every, 60, first=100)
    crowd.wait(lambda: {*two.values(), *three.values()} >= set(later))
    crowd.leave(two)
    crowd.wait_until_shared(every, three)


def two_members_share(group: Group) -> None:
    crowd = group.crowd
    four = group.create(4)
    one, two = group.join(), group.join()
    crowd.wait_until_shared(four, one, two)
    values = group.produce(four, 40)
    crowd.wait(lambda: {*one.values(), *two.values()} >= set(values))
    crowd.leave(one)
    crowd.wait_until_shared(four, two)


def members_of_another_protocol_are_refused(group: Group, kind: type[Member]) -> None:
    """And those who are there go on."""
    [place] = group.create(1)
    member = group.join()
    group.crowd.wait_until_shared([place], member)
    other = group.crowd.join(kind, group.group_id, group.topic)
    assert "InconsistentGroupProtocol" in str(group.crowd.failure_of(other))
    values = group.produce([place], 10)
    group.crowd.wait(lambda: member.values() == values)


def a_member_keeps_what_it_may_keep(group: Group) -> None:
    """With eager strategies each member loses all it has for a moment; here nobody is ever without."""
    crowd = group.crowd
    four = group.create(4)
    one = group.join()
    crowd.wait_until_shared(four, one)
    two = group.join()
    crowd.wait_until_shared(four, one, two)

    had_all = next(index for index, owned in enumerate(one.assignments) if len(owned) == 4)
    assert all(owned >= one.owned for owned in one.assignments[had_all:])


def a_new_member_goes_on_where_the_last_commit_was(group: Group) -> None:
    crowd = group.crowd
    [place] = group.create(1)
    values = group.produce([place], 20)
    first = group.join()
    crowd.wait(lambda: first.values() == values)
    assert first.ask(lambda: first.committed(place)) is None
    twelve = group.commit_of(12, "after twelve")
    first.ask(lambda: first.commit({place: twelve}))
    assert first.ask(lambda: first.committed(place)) == 12
    assert group.commits() == {place: twelve}
    crowd.leave(first)

    second = group.join()
    crowd.wait(lambda: second.values() == values[12:])
    second.ask(second.commit)
    assert second.ask(lambda: second.committed(place)) == 20
    assert second.ask(lambda: second.end_offset(place)) == 20


def a_commit_in_the_background_is_kept_and_lag_is_the_end_less_that(group: Group) -> None:
    crowd = group.crowd
    three = group.create(3)
    values = group.produce(three, 30)
    member = group.join()
    crowd.wait(lambda: len(member.values()) == len(values))
    done = threading.Event()
    wanted = {place: group.commit_of(4 + place.partition, "soon") for place in three}
    member.ask(lambda: member.commit_soon(wanted, done.set))
    assert within(done.wait, SECONDS)
    assert group.commits() == wanted

    def lags() -> list[int]:
        return [member.end_offset(place) - (member.committed(place) or 0) for place in three]

    assert member.ask(lags) == [6, 5, 4]


def offsets_are_committed_by_themselves_while_reading_and_when_leaving(group: Group) -> None:
    crowd = group.crowd
    [place] = group.create(1)
    values = group.produce([place], 10)
    member = group.join(auto_commit_ms=100)
    crowd.wait(lambda: member.values() == values)
    for _ in range(MANY_POLLS):
        if group.commits() == {place: Commit(10, "")}:
            break
        member.ask(lambda: None)
    values += group.produce([place], 5, first=10)
    crowd.wait(lambda: member.values() == values)
    crowd.leave(member)
    assert group.commits() == {place: Commit(15, "")}


def a_member_seeks_pauses_and_resumes(group: Group) -> None:
    crowd = group.crowd
    still, moving = group.create(2)
    group.produce([still, moving], 20)
    member = group.join()
    crowd.wait(lambda: len(member.received) == 20)

    member.ask(lambda: member.seek(moving, 3))
    crowd.wait(lambda: len(member.received) == 27)
    assert [(record.place, record.offset) for record in member.received[20:]] == [(moving, at) for at in range(3, 10)]

    member.ask(lambda: member.pause(still))
    group.produce([still], 5, first=100)
    group.produce([moving], 5, first=200)
    crowd.wait(lambda: len(member.received) == 32)
    assert {record.place for record in member.received[27:]} == {moving}
    member.ask(lambda: member.resume(still))
    crowd.wait(lambda: len(member.received) == 37)
    assert [record.offset for record in member.received[32:]] == list(range(10, 15))


def a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(
    group: Group, end: Callable[[Member], None], host: MemberHost | None = None
) -> None:
    """``end`` makes the member, which lives in ``host`` until then, go without leaving the group."""
    crowd = group.crowd
    all_places = group.create(4)
    stays = group.join(instance_id="stays")
    crowd.wait_until_shared(all_places, stays)
    returns = group.join(instance_id="returns", **({} if host is None else {"host": host}))
    crowd.wait_until_shared(all_places, stays, returns)
    had, noticed = returns.owned, len(stays.assignments)

    end(returns)
    again = group.join(instance_id="returns")
    crowd.wait(lambda: again.owned)

    assert again.owned == had
    assert len(stays.assignments) == noticed


def broker_with(start_broker: Callable[..., BrokerProcess], settings: Mapping[str, str]) -> BrokerProcess:
    return start_broker(**{key.replace(".", "_"): value for key, value in settings.items()})


def partitions_of_members_that_crash_go_to_the_others(
    crowd: HostedCrowd, killed_host: MemberHost, kinds: list[Kind]
) -> None:
    """A pair of each kind, all at once, because it takes a session until the broker can know."""
    admin = AdminClient({"bootstrap.servers": crowd.servers, "log_level": 0})
    pairs = []
    for number, kind in enumerate(kinds):
        all_places = create(admin, f"crash-{number}", 2)
        arguments = (f"group-{number}", f"crash-{number}")
        survivor = crowd.join(kind, *arguments, session_ms=CRASH_SESSION_MS)
        killed = crowd.join(kind, *arguments, session_ms=CRASH_SESSION_MS, host=killed_host)
        pairs.append((survivor, killed, all_places))
    for survivor, killed, all_places in pairs:
        crowd.wait_until_shared(all_places, survivor, killed)
    killed_host.kill()
    for survivor, killed, all_places in pairs:
        crowd.leave(killed)
        crowd.wait_until_shared(all_places, survivor)


def groups_and_their_offsets_survive_the_broker(
    broker: BrokerProcess, crowd: HostedCrowd, kinds: list[Kind], end: Callable[[BrokerProcess], int]
) -> None:
    """A member of each kind polls throughout; what it committed stays, and it goes on."""
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    pairs: list[tuple[Member, Place, Commit]] = []
    for number, kind in enumerate(kinds):
        [place] = create(admin, f"durable-{number}", 1)
        produce(servers, [place], 10)
        kept = Commit(8, "kept" if kind.commits_metadata else "")
        pairs.append((crowd.join(kind, f"group-{number}", place.topic), place, kept))
    for member, place, kept in pairs:
        crowd.wait(has_received(member, 10))
        member.ask(partial(member.commit, {place: kept}))

    end(broker)
    broker.start()

    for number, (_, place, kept) in enumerate(pairs):
        assert commits(servers, f"group-{number}") == {place: kept}
        produce(servers, [place], 10, first=10)
    for member, _, _ in pairs:
        crowd.wait(has_received(member, 20))
        member.ask(member.commit)
    crowd.leave(*[member for member, _, _ in pairs])

    for number, (kind, (_, place, _)) in enumerate(zip(kinds, pairs, strict=True)):
        heir = crowd.join(kind, f"group-{number}", place.topic)
        produce(servers, [place], 1, first=20)
        crowd.wait(has_values(heir, b"20"))
