"""Applications in a JVM of their own that write in transactions and are killed, as are their brokers; and a reader of
what they have committed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.java_programs import QUICK_START
from tests.waits import TimeLeft, within

WAIT_SECONDS = 180.0
"""How long an application may take until a record comes out of it. A start takes some five to ten seconds; one that
does not know the transaction of the one before waits for its timeout."""

POLL_SECONDS = 0.2

BROKER_SETTINGS = {
    "log.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "1",
}
"""Of a broker that misses a dead member soon, and whose coordinator's log is in one partition."""

BROKER, APPLICATION = "broker", "application"
"""What can be killed."""


class KillableBroker(Protocol):
    """A broker, or several in its place. It runs when it is given away."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self) -> object:
        """Kill it, or some of them."""
        ...

    def start(self) -> object:
        """Start what does not run."""
        ...


@attrs.define
class KillableApplication:
    """The process of a Java program, which can be started again; ``directory`` gets its output."""

    class_path: str
    arguments: Sequence[str]
    directory: Path
    started: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        return self.directory / f"application-{self.started}.txt"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the application was not started"
        return self._process

    def start(self) -> None:
        self.started += 1
        command = ["java", *QUICK_START, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command += ["-cp", self.class_path, *self.arguments]
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def check_alive(self) -> None:
        assert self.process.poll() is None, self.output.read_text()[-4000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it cleanly: it commits what it has done."""
        self.process.terminate()
        within(self.process.wait, WAIT_SECONDS)


@attrs.frozen
class CommittedReader:
    """Reads what is committed in a topic, from its beginning on."""

    consumer: Consumer
    partitions: int

    @classmethod
    def of(cls, servers: str, topic: str, partitions: int) -> CommittedReader:
        consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        return cls(consumer, partitions)

    def wait_for(self, records: int, while_true: Callable[[], None]) -> None:
        """Read ``records`` more."""
        time_left = TimeLeft(WAIT_SECONDS)
        while records > 0:
            while_true()
            assert not time_left.is_over, f"{records} records never came"
            message = self.consumer.poll(POLL_SECONDS)
            records -= message is not None and message.error() is None

    def read_to_the_end(self) -> list[tuple[bytes, bytes]]:
        """Return keys and values up to the last stable offset, and close the reader."""
        found: list[tuple[bytes, bytes]] = []
        ended: set[int | None] = set()
        while len(ended) < self.partitions:
            message = within(self.consumer.poll, WAIT_SECONDS)
            assert message is not None
            key, value, error = message.key(), message.value(), message.error()
            if error is None:
                assert key is not None
                assert value is not None
                found.append((key, value))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        self.consumer.close()
        return found
