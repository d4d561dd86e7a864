"""The fixtures that anybody who has the broker installed can use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kafka import KafkaConsumer

from tests.waits import scaled
from trio_broker.cli import main

seen_directories: set[Path] = set()


@pytest.mark.parametrize("_round", range(2))
def test_each_test_gets_a_fresh_broker(kafka_broker, _round):
    assert kafka_broker.data_directory not in seen_directories
    seen_directories.add(kafka_broker.data_directory)
    kafka_broker.create_topic("orders")


@pytest.mark.kafka_broker(num_partitions=3)
class TestMarked:
    def test_a_marker_gives_the_settings(self, kafka_broker):
        assert kafka_broker.broker.config.request.num_partitions == 3

    @pytest.mark.kafka_broker(num_partitions=5)
    def test_the_nearest_marker_wins(self, kafka_broker):
        assert kafka_broker.broker.config.request.num_partitions == 5


def test_the_factory_starts_as_many_as_wanted(kafka_broker_factory):
    first, second = kafka_broker_factory(), kafka_broker_factory(num_partitions=2)
    assert first.bootstrap_servers != second.bootstrap_servers
    assert second.broker.config.request.num_partitions == 2


def test_the_session_broker_creates_a_topic(kafka_broker_session):
    kafka_broker_session.create_topic("of-the-session")


def test_the_session_broker_is_the_same_in_the_next_test(kafka_broker_session):
    assert "of-the-session" in kafka_broker_session.broker.services.metadata_cache.image.topics


def test_a_run_that_uses_no_fixture_pays_for_nothing_but_the_plugin():
    script = (
        "import sys, pytest; before = set(sys.modules); import trio_broker.testing.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["trio_broker", "trio_broker.testing", "trio_broker.testing.pytest_plugin"]


@pytest.mark.parametrize("security", [None, "tls", "mtls", "scram", "scram+tls"])
def test_a_broker_with_security_is_reached_by_the_settings_that_it_gives(kafka_broker_factory, security):
    broker = kafka_broker_factory(security=security)
    settings = broker.client_settings
    broker.create_topic("orders")
    producer = Producer({**settings.librdkafka, "log_level": 0})
    producer.produce("orders", b"one")
    assert producer.flush(scaled(30)) == 0
    consumer = KafkaConsumer(
        "orders", group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings.kafka_python
    )
    assert next(consumer).value == b"one"
    consumer.close()
    file = broker.data_directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.java.items()))
    command = ["topics", "list", "-b", broker.bootstrap_servers, "--command-config", str(file)]
    assert "orders" in CliRunner().invoke(main, command).output
    if security is not None:
        assert CliRunner().invoke(main, [*command[:-2], "--command-timeout", "2"]).exit_code == 1
