"""MirrorMaker 2 between two of our brokers: it copies what it should and has nothing to complain of.

It runs with its defaults, but for what two clusters of one node need (internal topics with one replica) and for periods
of seconds in the place of minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.java_programs import MIRROR_MAKER_JARS, QUICK_START, jar_path
from tests.oracles import absent
from tests.waits import flushed, killed_after, scaled, within
from trio_broker.testing.process import BrokerProcess

pytestmark = pytest.mark.soak

SECONDS = 120.0
"""How long MirrorMaker may take until it has done everything once; about twenty on an idle machine."""

RECORDS = 100
COMMITTED = 40
RETENTION_MS = "123456789"

INTERNAL_TOPICS = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)
PERIODS = (
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "sync.topic.configs.interval.seconds",
    "sync.topic.acls.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "sync.group.offsets.interval.seconds",
)

EXPECTED_WARNING = "All plugins have ServiceLoader manifests"
"""About Connect's own jars."""

TROUBLE = re.compile(r" (?:ERROR|WARN) |^\tat |Exception")

NO_AUTHORIZER = "No ACL authorizer is configured on the source Kafka cluster"

EACH_ONCE = (
    "syncing topic ACLs took",
    "syncing topic configs took",
    "refreshing topics took",
    "refreshing consumer groups took",
    "sync idle consumer group offset from source to target took",
)
"""What its log says at the end of each round of a duty. A second round has found the results of the first."""


@attrs.define
class MirrorMaker:
    """The process, and the lines of its log so far."""

    process: subprocess.Popen[str]
    lines: list[str] = attrs.field(factory=list)

    def read_until(self, is_done: Callable[[Sequence[str]], bool]) -> None:
        """Read the log until it satisfies ``is_done``; fail when MirrorMaker ends before or takes too long."""
        assert self.process.stderr is not None
        with killed_after(self.process, SECONDS):
            while not is_done(self.lines):
                line = self.process.stderr.readline()
                assert line, "MirrorMaker ended, or was killed after its time:\n" + "".join(self.lines[-50:])
                self.lines.append(line)


@pytest.fixture
def jars() -> Path:
    """The folder of MirrorMaker's jars."""
    if shutil.which("java") is None:
        absent("java", "there is no JDK")
    if not list(MIRROR_MAKER_JARS.glob("connect-mirror-*.jar")):
        absent("java", "the jars of tests/compat/java_mirror were not fetched")
    return MIRROR_MAKER_JARS


@pytest.fixture
def clusters(jars: Path, start_broker: Callable[..., BrokerProcess]) -> tuple[BrokerProcess, BrokerProcess]:
    """Where records come from and where they go; the first has a topic and a group that read part of it."""
    source, target = start_broker(), start_broker()
    address: dict[str, Any] = {"bootstrap.servers": source.bootstrap_servers}
    topic = NewTopic("t", 1, 1, config={"retention.ms": RETENTION_MS})
    admin = AdminClient(address)
    within(admin.create_topics([topic])["t"].result, SECONDS)
    producer = Producer(address)
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, b"key")
    assert flushed(producer, SECONDS)
    consumer = Consumer({**address, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("t", 0, COMMITTED)], asynchronous=False)
    consumer.close()
    return source, target


@pytest.fixture
def mirror_maker(clusters: tuple[BrokerProcess, BrokerProcess], jars: Path, tmp_path: Path) -> Iterator[MirrorMaker]:
    """MirrorMaker from the first cluster to the second."""
    source, target = clusters
    settings = {
        "clusters": "A,B",
        "A.bootstrap.servers": source.bootstrap_servers,
        "B.bootstrap.servers": target.bootstrap_servers,
        "A->B.enabled": "true",
        "A->B.topics": ".*",
        "sync.group.offsets.enabled": "true",
        **dict.fromkeys(INTERNAL_TOPICS, "1"),
        **dict.fromkeys(PERIODS, "2"),
    }
    properties = tmp_path / "mm2.properties"
    properties.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    process = subprocess.Popen(
        [
            *("java", *QUICK_START, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"),
            *("-cp", jar_path(jars), "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield MirrorMaker(process)
    process.kill()
    process.communicate()


def test_mirror_maker_copies_topics_and_offsets_and_logs_no_trouble(
    clusters: tuple[BrokerProcess, BrokerProcess], mirror_maker: MirrorMaker
) -> None:
    _, target = clusters
    address: dict[str, Any] = {"bootstrap.servers": target.bootstrap_servers}
    mirror_maker.read_until(lambda lines: all(sum(duty in line for line in lines) >= 2 for duty in EACH_ONCE))
    consumer = Consumer({**address, "group.id": "checker", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("A.t", 0, 0)])
    values: list[bytes | None] = []
    while len(values) < RECORDS:
        message = within(consumer.poll, SECONDS)
        assert message is not None, f"only {len(values)} records came"
        assert message.error() is None, message.error()
        values.append(message.value())
    consumer.close()
    mirror_maker.read_until(lambda _: committed(address) is not None)

    assert values == [b"%d" % number for number in range(RECORDS)]
    offset = committed(address)
    # MirrorMaker translates only offsets of which it noted the pair, and errs on the side of repetition.
    assert offset is not None
    assert 0 < offset <= COMMITTED
    resource = ConfigResource(ResourceType.TOPIC, "A.t")
    admin = AdminClient(address)
    configs = within(admin.describe_configs([resource])[resource].result, SECONDS)
    assert configs["retention.ms"].value == RETENTION_MS
    assert any(NO_AUTHORIZER in line for line in mirror_maker.lines)
    trouble = [line for line in mirror_maker.lines if TROUBLE.search(line) and EXPECTED_WARNING not in line]
    assert trouble == []


def committed(address: dict[str, str]) -> int | None:
    """The offset that ``readers`` has on the target; None while MirrorMaker has not translated it."""
    consumer = Consumer({**address, "group.id": "readers"})
    [found] = consumer.committed([TopicPartition("A.t", 0)], scaled(SECONDS))
    consumer.close()
    return found.offset if found.offset >= 0 else None
