"""Transactions of Go clients: franz-go, which has the second protocol (KIP-890), and Sarama, which has the first only.

The programs are those of ``tests/compat/go``. Of six transactions the third and the sixth are aborted; each writes a
value to both partitions, Sarama's commits an offset as well. Then a producer is fenced by another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_wire.error_codes import ErrorCode
from tests.compat.test_transactions_python import SECONDS, confluent_read
from tests.compat.transaction_log import protocols_of_commits
from tests.oracles import absent
from tests.waits import flushed, killed_after, run_program, within
from trio_broker.testing.process import BrokerProcess

PROGRAMS = Path(__file__).parent / "go"

BUILD_SECONDS = 600.0
"""Seconds with what `.ci/run` has built before; a minute or two without."""

WAIT_SECONDS = 90.0
"""How long a loop may live. It ends after some five seconds; one that never says what the test waits for is killed."""

PAUSE_SECONDS = 0.1
"""Between two questions about the group's offsets."""

RECORDS = 300

WRITTEN = [b"value %d" % number for number in (0, 1, 3, 4)] + [b"of its successor"]

StartLoop = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the programs, built from the modules that are here already: tests download nothing."""
    if shutil.which("go") is None:
        absent("go", "Go is not installed")
    target = PROGRAMS / "target"
    built = run_program(
        ["go", "build", "-C", str(PROGRAMS), "-o", f"{target}/", "./..."],
        BUILD_SECONDS,
        env={**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
    )
    if "GOPROXY=off" in built.stderr:
        absent("go", "the modules of tests/compat/go were not fetched")
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that misses a dead member soon, and whose coordinator's log is in one partition."""
    settings = {
        "log.durability": "page-cache",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.num.partitions": "1",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides=settings, has_admin=False) as process:
        yield process


@pytest.fixture
def protocol(request: pytest.FixtureRequest) -> str:
    """Of the group of the loops."""
    return str(request.param)


@pytest.fixture
def start_loop(programs: Path, broker: BrokerProcess, topic: str, protocol: str) -> Iterator[StartLoop]:
    """Starts a loop of franz-go under a transactional id, which ends with the test."""
    with ExitStack() as stack:

        def start(transactional_id: str) -> subprocess.Popen[str]:
            command = [str(programs / "franz"), "loop", broker.bootstrap_servers, f"{topic}-in", topic]
            command += [f"{topic}-group", transactional_id, protocol]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            stack.enter_context(killed_after(process, WAIT_SECONDS))
            return process

        yield start


def create_topics(broker: BrokerProcess, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(f"{topic}-in", 2, 1), NewTopic(topic, 2, 1)]).values():
        within(created.result, SECONDS)
    return admin


def committed(admin: AdminClient, group: str) -> int:
    """The sum of the group's offsets."""
    asked = [ConsumerGroupTopicPartitions(group)]
    found = within(admin.list_consumer_group_offsets(asked)[group].result, SECONDS).topic_partitions
    return sum(each.offset for each in found)


def run(program: Path, *arguments: str) -> str:
    completed = run_program([program, *arguments], SECONDS, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


def test_franz_go_commits_and_aborts_and_its_zombie_is_fenced(
    programs: Path, broker: BrokerProcess, topic: str
) -> None:
    create_topics(broker, topic)
    refused = run(programs / "franz", "transactions", broker.bootstrap_servers, topic, f"{topic}-id")
    assert refused in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    assert sorted(confluent_read(broker.bootstrap_servers, topic)) == sorted(WRITTEN * 2)
    assert protocols_of_commits(broker.port)[f"{topic}-id"] == {2}


def test_sarama_commits_values_and_offsets_together_and_its_zombie_is_fenced(
    programs: Path, broker: BrokerProcess, topic: str
) -> None:
    admin = create_topics(broker, topic)
    refused = run(programs / "sarama", broker.bootstrap_servers, topic, f"{topic}-in", f"{topic}-group")
    assert int(refused) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert sorted(confluent_read(broker.bootstrap_servers, topic)) == sorted(WRITTEN * 2)
    assert committed(admin, f"{topic}-group") == 5
    assert protocols_of_commits(broker.port)[f"{topic}-group"] == {0}


@pytest.mark.parametrize("protocol", ["classic", "consumer"], indirect=True)
def test_what_a_killed_loop_of_franz_go_left_another_goes_on_with_and_nothing_is_doubled(
    broker: BrokerProcess, topic: str, start_loop: StartLoop
) -> None:
    admin = create_topics(broker, topic)
    address: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(address)
    for number in range(RECORDS):
        producer.produce(f"{topic}-in", b"%d" % number, partition=number % 2)
    assert flushed(producer, SECONDS)

    killed = start_loop(f"{topic}-1")
    assert killed.stdout is not None
    assert killed.stdout.readline().startswith("committed")
    # Not before: the successor might have moved all records, and the other would wait for some that never come.
    successor = start_loop(f"{topic}-2")
    killed.kill()
    # A loop says that it has committed before the markers are written, so offsets and values may follow its last line.
    values: list[bytes] = []
    while committed(admin, f"{topic}-group") < RECORDS or len(values) < RECORDS:
        assert successor.poll() is None, "it ended, or was killed after its time"
        time.sleep(PAUSE_SECONDS)
        values = confluent_read(broker.bootstrap_servers, topic)
    assert sorted(map(int, values)) == list(range(RECORDS))
