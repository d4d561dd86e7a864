"""Groups of the Java client, of kafkajs and of @platformatic/kafka, with the protocols and strategies that each has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from tests.compat import group_claims
from tests.compat.group_claims import CRASH_SESSION_MS, SECONDS, SHORT_TIMES, Group, Kind, create
from tests.compat.group_members import AiokafkaMember, ConfluentConsumer, KafkaPythonMember, Member, Place
from tests.compat.hosted_kinds import (
    JAVA_KINDS,
    LIBRARIES,
    NODE_KINDS,
    JavaConsumer,
    JavaConsumerRange,
    JavaCooperative,
    JavaRange,
    KafkajsMember,
    PlatformaticConsumer,
    PlatformaticCooperative,
    PlatformaticMember,
    host_command,
    script_command,
)
from tests.compat.member_host import HostedCrowd, MemberHost
from tests.waits import flushed, run_program, within
from trio_broker.testing.process import BrokerProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_OF_A_CODEC = 200


def of_kinds(*kinds: Kind) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name.replace(" ", "-"))


every_kind = of_kinds(*JAVA_KINDS, *NODE_KINDS)
every_library = pytest.mark.parametrize(
    "library", [pytest.param(each, marks=[] if each == "java" else [pytest.mark.soak]) for each in LIBRARIES]
)
"""By default Java's: what is left of members that die, or of a broker, is the broker's to put right. All by night."""

StartHost = Callable[[str], MemberHost]


@pytest.fixture(scope="module")
def start_host(request: pytest.FixtureRequest) -> Iterator[StartHost]:
    hosts: list[MemberHost] = []

    def start(library: str) -> MemberHost:
        hosts.append(MemberHost(host_command(library, request)))
        return hosts[-1]

    yield start
    for host in hosts:
        if not host.ended.is_set():
            host.close()


@pytest.fixture(scope="module")
def hosts(start_host: StartHost) -> Callable[[str], MemberHost]:
    """One host of each library, where most members of all tests live."""
    started: dict[str, MemberHost] = {}

    def host_of(library: str) -> MemberHost:
        if library not in started:
            started[library] = start_host(library)
        return started[library]

    return host_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("groups"), overrides=SHORT_TIMES, has_admin=False) as process:
        yield process


@pytest.fixture
def crowd(broker: BrokerProcess, hosts: StartHost, kind: Kind) -> Iterator[HostedCrowd]:
    made = HostedCrowd(broker.bootstrap_servers, hosts(kind.name.split()[0]))
    yield made
    made.leave(*list(made.members))


@pytest.fixture
def group(broker: BrokerProcess, admin: AdminClient, crowd: HostedCrowd, kind: Kind, topic: str) -> Group:
    return Group(broker.bootstrap_servers, admin, crowd, kind, topic)


# Coming and going


@every_kind
def test_members_share_as_they_come_and_go_and_as_the_topic_grows(group: Group) -> None:
    """The topic of @platformatic/kafka does not grow, see ``PlatformaticMember``."""
    group_claims.members_share_as_they_come_and_go_and_as_the_topic_grows(group)


@of_kinds(PlatformaticConsumer)
def test_platformatic_members_are_given_new_partitions(group: Group) -> None:
    four = group.create(4)
    one, two = (group.join(metadata_age_ms=0) for _ in range(2))
    group.crowd.wait_until_shared(four, one, two)
    group.crowd.wait_until_shared(group_claims.grown(group, 6), one, two)


@of_kinds(PlatformaticCooperative)
def test_platformatic_members_share_with_their_other_strategy(group: Group) -> None:
    """Two of them: a third gets nothing when there are four partitions, from Kafka 4.3.1 neither."""
    group_claims.two_members_share(group)


@of_kinds(JavaCooperative, JavaConsumer, PlatformaticCooperative, PlatformaticConsumer)
def test_a_member_keeps_what_it_may_keep_where_rebalances_are_incremental(group: Group) -> None:
    group_claims.a_member_keeps_what_it_may_keep(group)


@every_library
def test_partitions_of_members_that_crash_go_to_the_others(
    start_broker: Callable[..., BrokerProcess], hosts: StartHost, start_host: StartHost, library: str
) -> None:
    settings = SHORT_TIMES | {"group.consumer.session.timeout.ms": str(CRASH_SESSION_MS)}
    crowd = HostedCrowd(group_claims.broker_with(start_broker, settings).bootstrap_servers, hosts(library))
    group_claims.partitions_of_members_that_crash_go_to_the_others(crowd, start_host(library), LIBRARIES[library])
    crowd.leave(*list(crowd.members))


@of_kinds(*JAVA_KINDS)
def test_a_static_java_member_comes_back_to_what_it_had_and_nobody_else_notices(
    group: Group, crowd: HostedCrowd
) -> None:
    """A static member's ``close`` does not leave the group: CloseOptions.GroupMembershipOperation.DEFAULT."""
    group_claims.a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(group, crowd.leave)


@of_kinds(PlatformaticMember)
def test_a_static_platformatic_member_comes_back_to_what_it_had_and_nobody_else_notices(
    group: Group, start_host: StartHost
) -> None:
    """It is killed, because one that closes leaves by its member id, and so gives its place up (#performLeaveGroup)."""

    def end(member: Member) -> None:
        killed.kill()
        group.crowd.leave(member)

    killed = start_host("platformatic")
    group_claims.a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(group, end, killed)


@of_kinds(*JAVA_KINDS)
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


@of_kinds(JavaConsumer, JavaRange, KafkajsMember)
def test_a_regular_expression_finds_topics(group: Group) -> None:
    """The broker matches Java's SubscriptionPattern, in the protocol of KIP-848; others are the client's own affair."""
    found = create(group.admin, f"{group.topic}-found", 2)
    create(group.admin, f"not-{group.topic}", 2)
    member = group.crowd.join(group.kind, group.group_id, f"^{group.topic}-.*")
    group.crowd.wait_until_shared(found, member)


@of_kinds(JavaConsumerRange)
def test_a_java_member_chooses_the_assignor_of_the_broker(group: Group) -> None:
    """The member that sorts first gets the first half; ``uniform`` would not promise that."""
    four = group.create(4)
    one, two = group.join(), group.join()
    group.crowd.wait_until_shared(four, one, two)
    assert {one.owned, two.owned} == {frozenset(four[:2]), frozenset(four[2:])}
    described = within(group.admin.describe_consumer_groups([group.group_id])[group.group_id].result, SECONDS)
    assert described.partition_assignor == "range"


@pytest.mark.parametrize(
    ("kind", "python_kind"),
    [
        (JavaRange, KafkaPythonMember),
        (JavaConsumer, ConfluentConsumer),
        (PlatformaticMember, AiokafkaMember),
        (PlatformaticConsumer, ConfluentConsumer),
    ],
)
def test_a_group_with_python_members_shares_as_well(group: Group, python_kind: type[Member]) -> None:
    """Those of Java and Python get each record once; @platformatic/kafka may get some again."""
    four = group.create(4)
    one = group.join()
    two = group.crowd.join(python_kind, group.group_id, group.topic)
    group.crowd.wait_until_shared(four, one, two)
    values = group.produce(four, 40)
    may_repeat = isinstance(one, PlatformaticMember)

    def received() -> list[bytes]:
        found = one.values() + two.values()
        return sorted(set(found) if may_repeat else found)

    group.crowd.wait(lambda: received() == sorted(values))


@of_kinds(KafkajsMember)
def test_a_member_of_kafkajs_and_one_of_python_refuse_each_other(group: Group) -> None:
    """kafkajs calls its strategy "RoundRobinAssigner", which no other client knows, and so keeps to itself."""
    group_claims.members_of_another_protocol_are_refused(group, KafkaPythonMember)


def type_of(group: Group) -> ConsumerGroupType:
    listed = within(group.admin.list_consumer_groups().result, SECONDS).valid
    found: ConsumerGroupType
    [found] = [each.type for each in listed if each.group_id == group.group_id]
    return found


@of_kinds(JavaRange, JavaCooperative)
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
        crowd.wait(lambda: sum(len(member.received) - starts[member] for member in members) >= len(values))
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


# Committing, moving about, surviving


@every_kind
def test_a_new_member_goes_on_where_the_last_commit_was(group: Group) -> None:
    group_claims.a_new_member_goes_on_where_the_last_commit_was(group)


@every_kind
def test_a_commit_in_the_background_is_kept_and_lag_is_the_end_less_that(group: Group) -> None:
    group_claims.a_commit_in_the_background_is_kept_and_lag_is_the_end_less_that(group)


@every_kind
def test_offsets_are_committed_by_themselves_while_reading_and_when_leaving(group: Group) -> None:
    group_claims.offsets_are_committed_by_themselves_while_reading_and_when_leaving(group)


@of_kinds(*JAVA_KINDS, KafkajsMember)
def test_a_member_seeks_pauses_and_resumes(group: Group) -> None:
    group_claims.a_member_seeks_pauses_and_resumes(group)


@of_kinds(PlatformaticMember, PlatformaticConsumer)
def test_a_platformatic_member_pauses_and_resumes(group: Group) -> None:
    """The stream as a whole; it seeks by starting another, in mode "manual"."""
    [place] = group.create(1)
    values = group.produce([place], 10)
    member = group.join()
    group.crowd.wait(lambda: member.values() == values)
    member.ask(lambda: member.pause(place))
    more = group.produce([place], 5, first=10)
    assert member.ask(lambda: member.end_offset(place)) == 15
    assert member.values() == values
    member.ask(lambda: member.resume(place))
    group.crowd.wait(lambda: member.values() == values + more)


@every_library
def test_groups_and_their_offsets_survive_the_broker(
    start_broker: Callable[..., BrokerProcess], hosts: StartHost, library: str
) -> None:
    broker = group_claims.broker_with(start_broker, SHORT_TIMES)
    crowd = HostedCrowd(broker.bootstrap_servers, hosts(library))
    group_claims.groups_and_their_offsets_survive_the_broker(broker, crowd, LIBRARIES[library], BrokerProcess.kill)
    crowd.leave(*list(crowd.members))


# What others wrote


@of_kinds(*NODE_KINDS)
def test_node_reads_what_others_wrote_in_every_codec(group: Group) -> None:
    wanted = {place: set[bytes]() for place in group.create(len(CODECS))}
    for place, codec in zip(wanted, CODECS, strict=True):
        wanted[place] = {*_written_by_librdkafka(group, place, codec), *_written_by_kafka_python(group, place, codec)}
    member = group.join()
    group.crowd.wait(lambda: len(member.received) == 2 * RECORDS_OF_A_CODEC * len(CODECS))
    assert {place: {record.value for record in member.received if record.place == place} for place in wanted} == wanted


def _written_by_librdkafka(group: Group, place: Place, codec: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": group.servers, "compression.type": codec, "linger.ms": 50})
    values = [b"librdkafka %d" % number for number in range(RECORDS_OF_A_CODEC)]
    for value in values:
        producer.produce(place.topic, value, partition=place.partition)
    assert flushed(producer, SECONDS)
    return values


def _written_by_kafka_python(group: Group, place: Place, codec: str) -> list[bytes]:
    """With the framing of Java's snappy library, which librdkafka does without."""
    compression = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=group.servers, compression_type=compression, linger_ms=50)
    values = [b"kafka-python %d" % number for number in range(RECORDS_OF_A_CODEC)]
    for value in values:
        producer.send(place.topic, value, partition=place.partition)
    producer.flush()
    producer.close()
    return values


# Administration


def administered(broker: BrokerProcess, library: str, topic: str) -> Any:
    command = [*script_command(library, "group_admin"), broker.bootstrap_servers, f"group-{topic}", topic]
    completed = run_program(command, SECONDS, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def test_kafkajs_administers_a_group(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic, 2)
    assert administered(broker, "kafkajs", topic) == {
        "listed": {"groupId": f"group-{topic}", "protocolType": "consumer"},
        "state": "Stable",
        "protocolType": "consumer",
        "protocol": "RoundRobinAssigner",
        "assigned": [0, 1],
        "tooEarly": "NON_EMPTY_GROUP",
        "committed": [
            {"partition": 0, "offset": "3", "metadata": "by hand"},
            {"partition": 1, "offset": "-1", "metadata": None},
        ],
        "gone": True,
        "again": "GROUP_ID_NOT_FOUND",
    }


def test_platformatic_administers_a_group(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic, 2)
    assert administered(broker, "platformatic", topic) == {
        "listed": {"state": "Stable", "type": "classic", "protocol": "consumer"},
        "state": "Stable",
        "assigned": [0, 1],
        "tooEarly": "NON_EMPTY_GROUP",
        "altered": [[0, 3]],
        "left": [],
        "gone": True,
        "again": "GROUP_ID_NOT_FOUND",
    }
