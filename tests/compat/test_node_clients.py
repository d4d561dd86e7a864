"""kafkajs and @platformatic/kafka against a real broker process, where Node and the packages are installed.

``npm install --prefix tests/compat/node`` brings the packages. What they produced is read back with kafka-python; what
others produced is read by them in ``test_group_clients_hosted``, as neither consumes without joining a group.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from tests.oracles import absent
from tests.waits import run_program, scaled
from trio_broker.testing.process import BrokerProcess

NODE = shutil.which("node")
SCRIPTS = Path(__file__).parent / "node"
SECONDS = 60


def run_script(name: str, package: str, *arguments: str) -> Any:
    """Run one of the scripts beside the packages and return what it printed."""
    if NODE is None or not (SCRIPTS / "node_modules" / package).exists():
        absent("node", f"{package} is not installed")
    completed = run_program([NODE, str(SCRIPTS / name), *arguments], SECONDS, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=int(scaled(SECONDS) * 1000)
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [record.value for record in itertools.islice(consumer, count)]
    consumer.close()
    return found


def test_kafkajs_creates_produces_describes_and_grows(broker: BrokerProcess, topic: str) -> None:
    printed = run_script("kafkajs_round_trip.js", "kafkajs", broker.bootstrap_servers, topic)

    assert printed == {
        "created": True,
        "baseOffset": "0",
        "high": {"0": "100", "1": "1"},
        "partitions": 2,
        "grown": 3,
        "retention": "604800000",
    }
    assert values(broker, topic, 100) == [b"value %d" % number for number in range(100)]


def test_platformatic_creates_produces_and_lists_offsets(broker: BrokerProcess, topic: str) -> None:
    printed = run_script("platformatic_round_trip.mjs", "@platformatic/kafka", broker.bootstrap_servers, topic)

    assert printed == {"first": "0", "second": "50", "end": "100"}
