"""Kafka Connect with a source whose records and offsets are one transaction, killed again and again.

The source is ``NumbersConnector`` of ``tests/compat/java``, which counts: a number that is missing or comes twice is
one that a killed worker lost or wrote again.
"""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.checking.cluster_processes import lossy_cluster
from tests.compat.kafka_process import free_ports
from tests.compat.killable_application import (
    APPLICATION,
    BROKER,
    BROKER_SETTINGS,
    WAIT_SECONDS,
    CommittedReader,
    KillableApplication,
    KillableBroker,
)
from tests.compat.transaction_log import protocols_of_commits
from tests.java_programs import Java
from tests.waits import TimeLeft, scaled, within
from trio_broker.testing.process import BrokerProcess

pytestmark = pytest.mark.soak

WORKER = {
    "group.id": "workers",
    "exactly.once.source.support": "enabled",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "-1",
    "offset.storage.replication.factor": "-1",
    "status.storage.replication.factor": "-1",
    "offset.storage.partitions": "1",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    # A killed worker is missed after this, and its tasks are given away at once.
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
}

CONNECTOR = {"connector.class": "NumbersConnector", "tasks.max": "2", "topic": "numbers"}

TASKS_PREFIX = "workers-counting-"
"""What the transactional ids of the connector's tasks begin with: the names of the group and of the connector."""

PARTITIONS = 2

WORKERS_DEATHS, BROKERS_DEATHS, LOSSES = 7, 3, 6

PAUSE_SECONDS = 0.2
"""Before a worker that does not answer yet is asked again."""


@attrs.frozen
class NumbersOutcome:
    """The numbers of each task, sorted, and where its offset says that it goes on."""

    numbers: dict[str, list[int]]
    next_numbers: dict[str, int]


def live_through(java: Java, directory: Path, broker: KillableBroker, victims: Sequence[str]) -> NumbersOutcome:
    """Kill the ``victims`` one after the other while the connector counts."""
    chance = random.Random(len(victims))
    with ExitStack() as stack:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic("numbers", PARTITIONS)]).values():
            within(created.result, WAIT_SECONDS)
        [port] = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        worker = worker_in(java, directory, {**WORKER, "bootstrap.servers": servers, "listeners": url})
        worker.start()
        stack.callback(worker.kill)
        configure(worker, f"{url}/connectors/counting/config")
        reader = CommittedReader.of(servers, "numbers", PARTITIONS)
        stack.callback(reader.consumer.close)
        for victim in victims:
            reader.wait_for(chance.randint(1, 600), worker.check_alive)
            if victim == BROKER:
                broker.kill()
                broker.start()
            else:
                worker.kill()
                worker.start()
        reader.wait_for(1, worker.check_alive)
        worker.kill()
        end_open_transactions(servers)
        numbers: dict[str, list[int]] = defaultdict(list)
        for key, value in CommittedReader.of(servers, "numbers", PARTITIONS).read_to_the_end():
            numbers[key.decode()].append(int(value))
        next_numbers: dict[str, int] = {}
        for key, value in CommittedReader.of(servers, WORKER["offset.storage.topic"], 1).read_to_the_end():
            _, partition = json.loads(key)
            next_numbers[partition["task"]] = json.loads(value)["next"]
        return NumbersOutcome({task: sorted(found) for task, found in numbers.items()}, next_numbers)


def worker_in(java: Java, directory: Path, settings: Mapping[str, str]) -> KillableApplication:
    """A distributed worker with these settings, for which ``NumbersConnector`` is a plugin."""
    properties = directory / "worker.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    services = directory / "plugins" / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text("NumbersConnector\n")
    class_path = f"{java.class_path}:{directory / 'plugins'}"
    arguments = ["org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
    return KillableApplication(class_path, arguments, directory)


def configure(worker: KillableApplication, url: str) -> None:
    """Create the connector, as soon as the worker takes it."""
    request = urllib.request.Request(
        url, data=json.dumps(CONNECTOR).encode(), headers={"Content-Type": "application/json"}, method="PUT"
    )
    time_left = TimeLeft(WAIT_SECONDS)
    while True:
        worker.check_alive()
        try:
            with urllib.request.urlopen(request, timeout=scaled(WAIT_SECONDS)):
                return
        except OSError:
            assert not time_left.is_over, worker.output.read_text()[-4000:]
            time.sleep(PAUSE_SECONDS)


def end_open_transactions(servers: str) -> None:
    """Fence the tasks' producers: what the killed worker left open is aborted, and readers get past it."""
    for task in range(int(CONNECTOR["tasks.max"])):
        settings: dict[str, Any] = {"bootstrap.servers": servers, "transactional.id": f"{TASKS_PREFIX}{task}"}
        Producer(settings).init_transactions(WAIT_SECONDS)


def check_each_number_once(outcome: NumbersOutcome) -> None:
    assert set(outcome.numbers) == {"0", "1"}
    assert outcome.numbers == {task: list(range(count)) for task, count in outcome.next_numbers.items()}


def test_a_source_whose_worker_was_killed_seven_times_has_written_each_number_once(java: Java, tmp_path: Path) -> None:
    """And its broker three times."""
    victims = [APPLICATION] * WORKERS_DEATHS + [BROKER] * BROKERS_DEATHS
    random.Random(1).shuffle(victims)
    with BrokerProcess(tmp_path / "broker", overrides=BROKER_SETTINGS, has_admin=False) as broker:
        check_each_number_once(live_through(java, tmp_path, broker, victims))
        protocols = protocols_of_commits(broker.port)
    assert set().union(*(found for name, found in protocols.items() if name.startswith(TASKS_PREFIX))) == {2}


def test_a_source_over_a_cluster_that_loses_brokers_has_written_each_number_once(java: Java, tmp_path: Path) -> None:
    """Its worker dies in between. ``CHAOS_SEED`` repeats which brokers are lost and when."""
    victims = [BROKER, BROKER, APPLICATION] * (LOSSES // 2)
    with lossy_cluster(tmp_path / "cluster", BROKER_SETTINGS) as cluster:
        check_each_number_once(live_through(java, tmp_path, cluster, victims))
