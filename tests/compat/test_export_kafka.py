"""``trio-broker export-kafka``: a real Kafka starts on what it makes and serves everything that our broker held."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.compat.kafka_process import HOST, KafkaProcess, free_ports
from tests.fork_server import run_command
from tests.waits import flushed, scaled, within
from trio_broker.cli import main
from trio_broker.cluster.delegation_token_control import NewToken, token_hmac
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal
from trio_broker.testing.broker_thread import BrokerThread
from trio_broker.testing.process import BrokerProcess

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 60
GROUP = "readers"
COMMITTED = 42
SECONDS = 30.0
VALUE_BYTES = 5000
"""Incompressible, so that each partition has more than one segment of ``SEGMENT_BYTES``."""

SEGMENT_BYTES = 200_000

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECRET_KEY = "of the cluster"
OWNER = KafkaPrincipal(USER_TYPE, "alice")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@attrs.define
class KafkaWithTokens(KafkaProcess):
    """Clients log in by delegation tokens at ``token_port``."""

    token_port: int = attrs.field(factory=lambda: free_ports(1)[0])

    def settings(self, port: int, controller_port: int) -> dict[str, str]:
        settings = super().settings(port, controller_port)
        return {
            **settings,
            "listeners": f"{settings['listeners']},TOKENS://{HOST}:{self.token_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.tokens.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE};",
            "delegation.token.secret.key": SECRET_KEY,
        }


@attrs.frozen
class Held:
    """What a client sees of a broker."""

    cluster_id: str | None
    topic_id: str
    retention_ms: str | None
    records: frozenset[Any]
    committed: int


def fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(
        TOPIC, PARTITIONS, 1, config={"retention.ms": "123456789000", "internal.segment.bytes": str(SEGMENT_BYTES)}
    )
    within(admin.create_topics([topic])[TOPIC].result, SECONDS)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": codec})
        for number in range(RECORDS):
            producer.produce(
                TOPIC,
                key=f"{codec}-{number}",
                value=Random(number).randbytes(VALUE_BYTES),
                partition=number % PARTITIONS,
            )
        assert flushed(producer, SECONDS)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 1, COMMITTED)], asynchronous=False)
    consumer.close()


def held_by(servers: str) -> Held:
    admin = AdminClient({"bootstrap.servers": servers})
    metadata = admin.list_topics(timeout=scaled(SECONDS))
    described = within(admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result, SECONDS)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    configs = within(admin.describe_configs([resource])[resource].result, SECONDS)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False})
    try:
        committed = committed_offset(consumer)
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        records: set[Any] = set()
        while len(records) < RECORDS * len(CODECS):
            message = within(consumer.poll, SECONDS)
            assert message is not None, f"only {len(records)} records"
            if message.error():
                continue
            records.add((message.partition(), message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    retention = configs["retention.ms"].value
    return Held(metadata.cluster_id, str(described.topic_id), retention, frozenset(records), committed)


def committed_offset(consumer: Consumer) -> int:
    """The committed offset; a Kafka that has just started needs a moment until its coordinator has loaded the group."""
    while True:
        try:
            return int(consumer.committed([TopicPartition(TOPIC, 1)], timeout=scaled(SECONDS))[0].offset)
        except KafkaException as error:
            if "coordinator" not in error.args[0].str().lower():
                raise


def export(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return run_command(["export-kafka", source, target], 60)


@attrs.frozen
class Source:
    """A directory that was stopped cleanly, what its broker had served, and a delegation token there."""

    directory: Path
    held: Held
    token_id: str


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    directory = tmp_path_factory.mktemp("ours") / "data"
    with BrokerProcess(directory, has_admin=False) as process:
        fill(process.bootstrap_servers)
        held = held_by(process.bootstrap_servers)
    with BrokerThread(directory, delegation_token_secret_key=SECRET_KEY) as thread:
        create = thread.broker.services.controller.create_delegation_token
        token = thread.call(create, NewToken(OWNER, OWNER, (), max_lifetime_ms=-1))
    return Source(directory, held, token.token_id)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_kafka_serves_all_that_was_exported(source: Source, tmp_path: Path):
    directory, held = source.directory, source.held
    before = contents(directory)
    assert len([name for name in before if name.startswith(TOPIC) and name.endswith(".log")]) > PARTITIONS
    assert export(directory, tmp_path / "kafka/data").returncode == 0
    assert contents(directory) == before
    kafka = KafkaWithTokens(tmp_path / "kafka")
    with kafka:
        assert held_by(kafka.bootstrap_servers) == held
        assert not list(kafka.data_directory.glob("*-stray"))
        # It goes on where ours ended.
        offsets: list[int | None] = []
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(TOPIC, b"one more", partition=0, on_delivery=lambda _, sent: offsets.append(sent.offset()))
        assert flushed(producer, SECONDS)
        assert offsets == [RECORDS * len(CODECS) // PARTITIONS]
        # Our command has Kafka as its judge, too.
        by_token = tmp_path / "token.properties"
        password = b64encode(token_hmac(SECRET_KEY, source.token_id)).decode()
        by_token.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM_MODULE} username="{source.token_id}" password="{password}" tokenauth="true";\n'
        )
        words = ["topics", "list", "-b", f"{HOST}:{kafka.token_port}", "--command-config", str(by_token)]
        listed = CliRunner().invoke(main, words)
        assert (listed.exit_code, TOPIC in listed.stdout) == (0, True), listed.output


def test_what_cannot_be_exported_is_refused_in_one_line(source: Source, tmp_path: Path):
    refused = export(source.directory, tmp_path / "here")
    assert refused.returncode == 0, refused.stderr
    again = export(source.directory, tmp_path / "here")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "is not empty" in again.stderr
    (tmp_path / "here/.kafka_cleanshutdown").unlink()
    unclean = export(tmp_path / "here", tmp_path / "there")
    assert "clean stop" in unclean.stderr
    assert "meta.properties" in export(tmp_path, tmp_path / "there").stderr
    with BrokerProcess(tmp_path / "running", has_admin=False) as process:
        running = export(process.data_directory, tmp_path / "there")
    assert "in use by another broker" in running.stderr
    assert not (tmp_path / "there").exists()
