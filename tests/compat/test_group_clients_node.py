"""Groups of kafkajs and @platformatic/kafka, the latter with the classic protocol and with that of KIP-848.

``npm install --prefix tests/compat/node`` brings the packages.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from tests.compat import group_claims
from tests.compat.group_claims import CRASH_SESSION_MS, SECONDS, SHORT_TIMES, Group, Kind, create
from tests.compat.group_members import AiokafkaMember, ConfluentConsumer, KafkaPythonMember, Member, Place
from tests.compat.member_host import HostedCrowd, HostedMember, MemberHost
from tests.oracles import absent
from tests.patience import flushed, run_program
from trio_broker.testing.process import BrokerProcess

NODE = shutil.which("node")
SCRIPTS = Path(__file__).parent / "node"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_OF_A_CODEC = 200


class KafkajsMember(HostedMember):
    """It assigns round robin."""

    name = "kafkajs"


class PlatformaticMember(HostedMember):
    """The classic protocol; it assigns round robin.

    Its commits carry no metadata (consumer.js, #commit). Nobody looks for new partitions before the next rebalance
    (#performSyncGroup), and then they are not read by a member that just waits for metadata in order to fetch: it asks
    for the offset "undefined", again and again (messages-stream.js, #fetch).
    """

    name = "platformatic"
    commits_metadata = False
    reads_what_is_new = False


class PlatformaticCooperative(PlatformaticMember):
    name = "platformatic cooperative-sticky"
    settings_of_kind: ClassVar[dict[str, Any]] = {"strategy": "cooperative-sticky"}


class PlatformaticConsumer(PlatformaticMember):
    """The protocol of KIP-848, where it is the broker that notices new partitions. They are not read any better."""

    name = "platformatic consumer"
    settings_of_kind: ClassVar[dict[str, Any]] = {"protocol": "consumer"}


KINDS: list[Kind] = [KafkajsMember, PlatformaticMember, PlatformaticConsumer]
LIBRARIES: dict[str, list[Kind]] = {
    "kafkajs": [KafkajsMember],
    "platformatic": [PlatformaticMember, PlatformaticConsumer],
}
PACKAGES = {"kafkajs": "kafkajs", "platformatic": "@platformatic/kafka"}


def named(kind: Kind) -> str:
    return kind.name.replace(" ", "-")


every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)
every_library = pytest.mark.parametrize("library", LIBRARIES)

StartHost = Callable[[str], MemberHost]


def script_command(library: str, script: str) -> list[str]:
    if NODE is None or not (SCRIPTS / "node_modules" / PACKAGES[library]).exists():
        absent("node", f"{PACKAGES[library]} is not installed")
    return [NODE, str(SCRIPTS / f"{library}_{script}.mjs")]


@pytest.fixture(scope="module")
def start_host() -> Iterator[StartHost]:
    hosts: list[MemberHost] = []

    def start(library: str) -> MemberHost:
        hosts.append(MemberHost(script_command(library, "members")))
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


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


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
def test_node_members_share_as_they_come_and_go_and_as_the_topic_grows(group: Group) -> None:
    """It grows for kafkajs alone, see ``PlatformaticMember``."""
    group_claims.members_share_as_they_come_and_go_and_as_the_topic_grows(group)


@pytest.mark.parametrize("kind", [PlatformaticConsumer], ids=named)
def test_platformatic_members_are_given_new_partitions(group: Group) -> None:
    four = group.create(4)
    one, two = (group.join(metadata_age_ms=0) for _ in range(2))
    group.crowd.wait_until_shared(four, one, two)
    group.crowd.wait_until_shared(group_claims.grown(group, 6), one, two)


@pytest.mark.parametrize("kind", [PlatformaticCooperative], ids=named)
def test_platformatic_members_share_with_their_other_strategy(group: Group) -> None:
    """Two of them: a third gets nothing when there are four partitions, from Kafka 4.3.1 neither."""
    group_claims.two_members_share(group)


@pytest.mark.parametrize("kind", [PlatformaticCooperative, PlatformaticConsumer], ids=named)
def test_a_platformatic_member_keeps_what_it_may_keep_where_rebalances_are_incremental(group: Group) -> None:
    group_claims.a_member_keeps_what_it_may_keep(group)


@every_library
def test_partitions_of_node_members_that_crash_go_to_the_others(
    start_broker: Callable[..., BrokerProcess], hosts: StartHost, start_host: StartHost, library: str
) -> None:
    settings = SHORT_TIMES | {"group.consumer.session.timeout.ms": str(CRASH_SESSION_MS)}
    crowd = HostedCrowd(group_claims.broker_with(start_broker, settings).bootstrap_servers, hosts(library))
    group_claims.partitions_of_members_that_crash_go_to_the_others(crowd, start_host(library), LIBRARIES[library])
    crowd.leave(*list(crowd.members))


@pytest.mark.parametrize("kind", [PlatformaticMember], ids=named)
def test_a_static_platformatic_member_comes_back_to_what_it_had_and_nobody_else_notices(
    group: Group, start_host: StartHost
) -> None:
    """It is killed, because one that closes leaves by its member id, and so gives its place up (#performLeaveGroup)."""

    def end(member: Member) -> None:
        doomed.kill()
        group.crowd.leave(member)

    doomed = start_host("platformatic")
    group_claims.a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(group, end, doomed)


@pytest.mark.parametrize("kind", [KafkajsMember], ids=named)
def test_a_regular_expression_of_kafkajs_finds_topics(group: Group) -> None:
    found = create(group.admin, f"{group.topic}-found", 2)
    create(group.admin, f"not-{group.topic}", 2)
    member = group.crowd.join(group.kind, group.group_id, f"^{group.topic}-.*")
    group.crowd.wait_until_shared(found, member)


@pytest.mark.parametrize(
    ("kind", "python_kind"),
    [(KafkajsMember, None), (PlatformaticMember, AiokafkaMember), (PlatformaticConsumer, ConfluentConsumer)],
)
def test_a_group_of_node_and_python_members_shares_as_well(group: Group, python_kind: type[Member] | None) -> None:
    """kafkajs calls its strategy "RoundRobinAssigner", which no other client knows, and so keeps to itself."""
    if python_kind is None:
        group_claims.members_of_another_protocol_are_refused(group, KafkaPythonMember)
        return
    four = group.create(4)
    one = group.join()
    two = group.crowd.join(python_kind, group.group_id, group.topic)
    group.crowd.wait_until_shared(four, one, two)
    values = group.produce(four, 40)
    group.crowd.wait(lambda: {*one.values(), *two.values()} >= set(values))


# Committing, moving about, surviving


@every_kind
def test_a_new_node_member_goes_on_where_the_last_commit_was(group: Group) -> None:
    group_claims.a_new_member_goes_on_where_the_last_commit_was(group)


@every_kind
def test_a_commit_of_node_in_the_background_is_kept_and_lag_is_the_end_less_that(group: Group) -> None:
    group_claims.a_commit_in_the_background_is_kept_and_lag_is_the_end_less_that(group)


@every_kind
def test_node_commits_by_itself_while_reading_and_when_leaving(group: Group) -> None:
    group_claims.offsets_are_committed_by_themselves_while_reading_and_when_leaving(group)


@pytest.mark.parametrize("kind", [KafkajsMember], ids=named)
def test_a_kafkajs_member_seeks_pauses_and_resumes(group: Group) -> None:
    group_claims.a_member_seeks_pauses_and_resumes(group)


@pytest.mark.parametrize("kind", [PlatformaticMember, PlatformaticConsumer], ids=named)
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
def test_groups_of_node_and_their_offsets_survive_the_broker(
    start_broker: Callable[..., BrokerProcess], hosts: StartHost, library: str
) -> None:
    broker = group_claims.broker_with(start_broker, SHORT_TIMES)
    crowd = HostedCrowd(broker.bootstrap_servers, hosts(library))
    group_claims.groups_and_their_offsets_survive_the_broker(broker, crowd, LIBRARIES[library], BrokerProcess.kill)
    crowd.leave(*list(crowd.members))


# What others wrote


@every_kind
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
