"""kcat against a real broker process. Debian's is built on librdkafka 2.0.2, an old one (KAFKA-18659)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.oracles import absent
from tests.waits import run_program, within
from trio_broker.testing.process import BrokerProcess

KCAT = shutil.which("kcat")

SECONDS = 60


@pytest.fixture(autouse=True, scope="module")
def _kcat_is_installed() -> None:
    if KCAT is None:
        absent("kcat", "kcat is not installed")


def kcat(broker: BrokerProcess, *arguments: str, text: str = "") -> str:
    assert KCAT is not None
    completed = run_program(
        # Or it waits half a second at the end of each partition.
        [KCAT, "-b", broker.bootstrap_servers, "-X", "fetch.wait.max.ms=10", *arguments],
        SECONDS,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_piped_in_comes_out(broker: BrokerProcess, topic: str, codec: str) -> None:
    text = "".join(f"line {number} of a text that repeats itself\n" for number in range(1000))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", codec, text=text)

    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == text


def test_an_old_librdkafka_compresses(broker: BrokerProcess, topic: str) -> None:
    text = "the same line again and again\n" * 5000
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", "gzip", text=text)

    [log] = broker.data_directory.glob(f"{topic}-0/*.log")
    assert log.stat().st_size < len(text) / 10


def test_the_cluster_is_listed(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, text="x\n")
    listed = json.loads(kcat(broker, "-L", "-J"))

    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap_servers]
    assert topic in [entry["topic"] for entry in listed["topics"]]


def test_an_offset_is_found_by_time(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", text="a\nb\n")

    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split()[-1] == "2"
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-2").split()[-1] == "0"


class GroupReader:
    """A ``kcat -G`` that reads and shares until it is stopped."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        assert KCAT is not None
        self.lines: list[str] = []
        self.owned: set[int] = set()
        self._moved = threading.Condition()
        self._process = subprocess.Popen(
            [KCAT, "-b", broker.bootstrap_servers, "-u", *group_arguments(topic)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [threading.Thread(target=read) for read in (self._read_records, self._read_rebalances)]
        for thread in self._threads:
            thread.start()

    def _read_records(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._moved:
                self.lines.append(line)
                self._moved.notify_all()

    def _read_rebalances(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"rebalanced .*: (assigned|revoked): (.*)", line):
                places = {int(index) for index in re.findall(r"\[(\d+)\]", found[2])}
                with self._moved:
                    self.owned = places if found[1] == "assigned" else self.owned - places
                    self._moved.notify_all()

    def wait(self, *, owned: int = 0, lines: int = 0) -> None:
        with self._moved:
            came = within(
                partial(self._moved.wait_for, lambda: len(self.owned) >= owned and len(self.lines) >= lines), SECONDS
            )
        assert came, f"{self.owned}, {len(self.lines)} lines"

    def leave(self) -> None:
        self._process.terminate()
        for thread in self._threads:
            thread.join()
        with self._process:
            pass


def group_arguments(topic: str) -> list[str]:
    """The mode comes last: whatever follows are topics."""
    settings = ("auto.offset.reset=earliest", "heartbeat.interval.ms=300", "session.timeout.ms=10000")
    options = [argument for setting in settings for argument in ("-X", setting)]
    return [*options, "-G", f"group-{topic}", topic]


@pytest.fixture
def quick_broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One that does not wait for more members before it lets the first work."""
    return start_broker(group_initial_rebalance_delay_ms="0", log_durability="page-cache")


@pytest.fixture
def two_partitions(quick_broker: BrokerProcess, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap_servers})
    within(admin.create_topics([NewTopic(topic, 2, 1)])[topic].result, SECONDS)
    return topic


def test_a_group_goes_on_where_it_was(quick_broker: BrokerProcess, two_partitions: str) -> None:
    kcat(quick_broker, "-P", "-t", two_partitions, "-p", "0", text="one\ntwo\nthree\n")
    group = group_arguments(two_partitions)
    first = kcat(quick_broker, "-c", "2", *group)
    rest = kcat(quick_broker, "-e", *group)

    assert (first, rest) == ("one\ntwo\n", "three\n")


@pytest.fixture
def readers(broker: BrokerProcess, two_partitions: str) -> Iterator[list[GroupReader]]:
    both: list[GroupReader] = []
    yield both
    for reader in both:
        reader.leave()


def test_a_group_shares_the_partitions(
    quick_broker: BrokerProcess, two_partitions: str, readers: list[GroupReader]
) -> None:
    readers.append(GroupReader(quick_broker, two_partitions))
    readers[0].wait(owned=2)
    readers.append(GroupReader(quick_broker, two_partitions))
    readers[1].wait(owned=1)
    for partition in ("0", "1"):
        kcat(quick_broker, "-P", "-t", two_partitions, "-p", partition, text="a\nb\nc\n")
    for reader in readers:
        reader.wait(lines=3)
    readers.pop().leave()
    readers[0].wait(owned=2)
