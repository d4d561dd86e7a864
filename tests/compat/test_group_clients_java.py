"""Groups of the Java client: the classic protocol with two strategies, and the protocol of KIP-848."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.compat import group_claims
from tests.compat.group_claims import CRASH_SESSION_MS, SECONDS, SHORT_TIMES, Group, Kind, create, produce
from tests.compat.group_members import ConfluentConsumer, KafkaPythonMember, Member
from tests.compat.member_host import HostedCrowd, HostedMember, MemberHost
from tests.java_programs import Java
from tests.patience import patiently
from trio_broker.testing.process import BrokerProcess


class JavaRange(HostedMember):
    name = "java range"
    settings_of_kind = {"strategies": "org.apache.kafka.clients.consumer.RangeAssignor"}


class JavaCooperative(HostedMember):
    name = "java cooperative-sticky"
    settings_of_kind = {"strategies": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}


class JavaConsumer(HostedMember):
    """The protocol of KIP-848, with the broker's first assignor."""

    name = "java consumer"


class JavaConsumerRange(HostedMember):
    name = "java consumer range"
    settings_of_kind = {"assignor": "range"}


KINDS: list[Kind] = [JavaRange, JavaCooperative, JavaConsumer]


def named(kind: Kind) -> str:
    return kind.name.replace(" ", "-")


INCREMENTAL: list[Kind] = [JavaCooperative, JavaConsumer]
"""Where nobody gives up what it may keep."""

every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)


@pytest.fixture(scope="module")
def start_host(java: Java) -> Iterator[Callable[[], MemberHost]]:
    hosts: list[MemberHost] = []

    def start() -> MemberHost:
        hosts.append(MemberHost(["java", *java.quick_start, "-cp", java.class_path, "Members"]))
        return hosts[-1]

    yield start
    for host in hosts:
        if not host.ended.is_set():
            host.close()


@pytest.fixture(scope="module")
def host(start_host: Callable[[], MemberHost]) -> MemberHost:
    return start_host()


@pytest.fixture(scope="module")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("groups"), overrides=SHORT_TIMES, has_admin=False) as process:
        yield process


@pytest.fixture
def crowd(broker: BrokerProcess, host: MemberHost) -> Iterator[HostedCrowd]:
    made = HostedCrowd(broker.bootstrap_servers, host)
    yield made
    made.leave(*list(made.members))


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def group(broker: BrokerProcess, admin: AdminClient, crowd: HostedCrowd, kind: Kind, topic: str) -> Group:
    return Group(broker.bootstrap_servers, admin, crowd, kind, topic)


@every_kind
def test_java_members_share_as_they_come_and_go_and_as_the_topic_grows(group: Group) -> None:
    group_claims.members_share_as_they_come_and_go_and_as_the_topic_grows(group)


@every_kind
def test_a_new_java_member_goes_on_where_the_last_commit_was(group: Group) -> None:
    group_claims.a_new_member_goes_on_where_the_last_commit_was(group)


@every_kind
def test_a_commit_of_java_in_the_background_is_kept_and_lag_is_the_end_less_that(group: Group) -> None:
    group_claims.a_commit_in_the_background_is_kept_and_lag_is_the_end_less_that(group)


@every_kind
def test_java_commits_by_itself_while_reading_and_when_leaving(group: Group) -> None:
    group_claims.offsets_are_committed_by_themselves_while_reading_and_when_leaving(group)


@every_kind
def test_a_java_member_seeks_pauses_and_resumes(group: Group) -> None:
    group_claims.a_member_seeks_pauses_and_resumes(group)


@every_kind
def test_a_static_java_member_comes_back_to_what_it_had_and_nobody_else_notices(
    group: Group, crowd: HostedCrowd
) -> None:
    """A static member's ``close`` does not leave the group: CloseOptions.GroupMembershipOperation.DEFAULT."""
    group_claims.a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(group, crowd.leave)


@pytest.mark.parametrize("kind", INCREMENTAL, ids=named)
def test_a_java_member_keeps_what_it_may_keep_where_rebalances_are_incremental(group: Group) -> None:
    group_claims.a_member_keeps_what_it_may_keep(group)


def test_partitions_of_java_members_that_crash_go_to_the_others(
    start_broker: Callable[..., BrokerProcess], host: MemberHost, start_host: Callable[[], MemberHost]
) -> None:
    broker = group_claims.broker_with(
        start_broker, SHORT_TIMES | {"group.consumer.session.timeout.ms": str(CRASH_SESSION_MS)}
    )
    crowd = HostedCrowd(broker.bootstrap_servers, host)
    group_claims.partitions_of_members_that_crash_go_to_the_others(crowd, start_host(), KINDS)
    crowd.leave(*list(crowd.members))


def test_groups_of_java_and_their_offsets_survive_the_broker(
    start_broker: Callable[..., BrokerProcess], host: MemberHost
) -> None:
    broker = group_claims.broker_with(start_broker, SHORT_TIMES)
    crowd = HostedCrowd(broker.bootstrap_servers, host)
    group_claims.groups_and_their_offsets_survive_the_broker(broker, crowd, KINDS, BrokerProcess.kill)
    crowd.leave(*list(crowd.members))


# What only the Java client does


@pytest.mark.parametrize("kind", [JavaConsumer, JavaRange], ids=named)
def test_a_regular_expression_of_java_finds_topics(group: Group) -> None:
    """The broker matches a SubscriptionPattern, in the protocol of KIP-848; a Pattern is the client's own affair."""
    found = create(group.admin, f"{group.topic}-found", 2)
    create(group.admin, f"not-{group.topic}", 2)
    member = group.crowd.join(group.kind, group.group_id, f"^{group.topic}-.*")
    group.crowd.wait_until_shared(found, member)


@pytest.mark.parametrize("kind", [JavaConsumerRange])
def test_a_java_member_chooses_the_assignor_of_the_broker(group: Group) -> None:
    """The member that sorts first gets the first half; ``uniform`` would not promise that."""
    four = group.create(4)
    one, two = group.join(), group.join()
    group.crowd.wait_until_shared(four, one, two)
    assert {one.owned, two.owned} == {frozenset(four[:2]), frozenset(four[2:])}
    described = patiently(group.admin.describe_consumer_groups([group.group_id])[group.group_id].result, SECONDS)
    assert described.partition_assignor == "range"


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_second_java_member_with_the_same_instance_id_is_refused_or_fences_the_first(group: Group) -> None:
    """The classic protocol takes the new one for the old one come back; that of KIP-848 lets a living one be."""
    [place] = group.create(1)
    first = group.join(instance_id="same")
    group.crowd.wait_until_shared([place], first)
    second = group.join(instance_id="same")
    loser = first if "strategies" in group.kind.settings_of_kind else second
    failure = group.crowd.failure_of(loser)
    expected = "FencedInstanceIdException" if loser is first else "UnreleasedInstanceIdException"
    assert expected in str(failure)


@pytest.mark.parametrize(
    ("java_kind", "python_kind"), [(JavaRange, KafkaPythonMember), (JavaConsumer, ConfluentConsumer)]
)
def test_a_group_of_java_and_python_members_shares_as_well(
    broker: BrokerProcess,
    admin: AdminClient,
    crowd: HostedCrowd,
    topic: str,
    java_kind: Kind,
    python_kind: type[Member],
) -> None:
    four = create(admin, topic, 4)
    one = crowd.join(java_kind, f"mixed-{topic}", topic)
    two = crowd.join(python_kind, f"mixed-{topic}", topic)
    crowd.wait_until_shared(four, one, two)
    values = produce(broker.bootstrap_servers, four, 40)
    crowd.wait(lambda: sorted(one.values() + two.values()) == sorted(values))


def type_of(group: Group) -> ConsumerGroupType:
    listed = patiently(group.admin.list_consumer_groups().result, SECONDS).valid
    found: ConsumerGroupType
    [found] = [each.type for each in listed if each.group_id == group.group_id]
    return found


@pytest.mark.parametrize("kind", [JavaRange, JavaCooperative], ids=named)
def test_a_group_of_java_moves_to_kip_848_and_back_while_it_works(group: Group) -> None:
    """One member after the other is replaced, as an administrator would roll a new setting out, and then back."""
    crowd, classic, modern = group.crowd, group.kind, JavaConsumer
    four = group.create(4)
    seen: list[bytes] = []

    def work(*members: Member) -> None:
        """Each record comes once while nobody moves, and is committed, so that it never comes again."""
        seen_before = len(seen)
        starts = {member: len(member.received) for member in members}
        values = group.produce(four, 20, first=seen_before)
        crowd.wait(lambda: sum(len(member.received) - starts[member] for member in members) == len(values))
        for member in members:
            seen.extend(member.values()[starts[member] :])
            member.ask(member.commit)
        assert sorted(seen[seen_before:]) == sorted(values)

    def join(kind: Kind) -> Member:
        return crowd.join(kind, group.group_id, group.topic)

    one, two = join(classic), join(classic)
    crowd.wait_until_shared(four, one, two)
    work(one, two)
    assert type_of(group) == ConsumerGroupType.CLASSIC

    three = join(modern)
    crowd.wait_until_shared(four, one, two, three)
    work(one, two, three)
    assert type_of(group) == ConsumerGroupType.CONSUMER
    crowd.leave(one)
    crowd.wait_until_shared(four, two, three)
    crowd.leave(two)
    crowd.wait_until_shared(four, three)
    work(three)

    four_again = join(classic)
    crowd.wait_until_shared(four, three, four_again)
    work(three, four_again)
    assert type_of(group) == ConsumerGroupType.CONSUMER
    crowd.leave(three)
    crowd.wait_until_shared(four, four_again)
    work(four_again)
    assert type_of(group) == ConsumerGroupType.CLASSIC
    assert {place: commit.offset for place, commit in group.commits().items()} == dict.fromkeys(four, 25)
