"""A loop that reads, processes and writes, and is paused for longer than its session while another one takes over.

Each has a transactional id of its own, as KIP-447 has it: what fences the first one is its group's generation.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.test_transactions_python import SECONDS, confluent_read
from tests.waits import flushed, killed_after, within
from trio_broker.testing.process import BrokerProcess

pytestmark = pytest.mark.soak

RECORDS = 300
WAIT_SECONDS = 90.0
"""How long a loop may live. It ends after some 20 s; one that never says what the test waits for is killed."""

PAUSE_SECONDS = 0.1
"""Between two questions about the group's offsets."""

StartLoop = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start_loop(broker: BrokerProcess) -> Iterator[StartLoop]:
    with ExitStack() as stack:

        def start(transactional_id: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "tests.compat.transactional_loop", broker.bootstrap_servers]
            command += ["zombie-in", "zombie-out", "zombie-group", transactional_id]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            stack.enter_context(killed_after(process, WAIT_SECONDS))
            return process

        yield start


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_loop_that_was_paused_beyond_its_session_is_fenced_and_nothing_is_doubled(
    broker: BrokerProcess, start_loop: StartLoop
) -> None:
    address: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(address)
    topics = [NewTopic("zombie-in", 1, 1), NewTopic("zombie-out", 2, 1)]
    for created in admin.create_topics(topics).values():
        within(created.result, SECONDS)
    producer = Producer(address)
    for number in range(RECORDS):
        producer.produce("zombie-in", b"%d" % number)
    assert flushed(producer, SECONDS)

    paused = start_loop("zombie-1")
    assert next_line(paused).startswith("committed")
    paused.send_signal(signal.SIGSTOP)
    successor = start_loop("zombie-2")
    first = next_line(successor)
    assert first.startswith("committed"), first
    paused.send_signal(signal.SIGCONT)

    def committed() -> int:
        asked = [ConsumerGroupTopicPartitions("zombie-group")]
        [offset] = within(admin.list_consumer_group_offsets(asked)["zombie-group"].result, SECONDS).topic_partitions
        return int(offset.offset)

    # The successor says that it has committed before the markers are written: the offsets may follow its last line.
    while committed() < RECORDS:
        assert successor.poll() is None, "it ended, or was killed after its time"
        time.sleep(PAUSE_SECONDS)
    values = confluent_read(broker.bootstrap_servers, "zombie-out")
    assert sorted(map(int, values)) == list(range(RECORDS))
    # Lines it had printed before it was stopped come first.
    lines = iter(lambda: next_line(paused), "")
    assert next(line for line in lines if not line.startswith("committed")).startswith("refused")
