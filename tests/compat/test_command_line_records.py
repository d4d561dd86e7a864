"""``produce``, ``consume`` and ``topics purge`` beside kcat on the same topics, of our broker and of Kafka itself."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from tests.compat.kafka_process import KafkaProcess
from tests.oracles import absent
from tests.waits import communicate, flushed, run_program, within
from trio_broker.cli import main
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
KCAT = shutil.which("kcat")
EVERYTHING = r"%t %p %o %K %S %T [%h] %k=%s\n"

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(autouse=True, scope="module")
def _kcat_is_installed() -> None:
    if KCAT is None:
        absent("kcat", "kcat is not installed")


AnyBroker: TypeAlias = BrokerProcess | KafkaProcess


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka")) as process:
        yield process


@pytest.fixture(scope="module", params=["broker", pytest.param("kafka", marks=pytest.mark.soak)])
def cluster(request: pytest.FixtureRequest) -> AnyBroker:
    process: AnyBroker = request.getfixturevalue(request.param)
    return process


def kcat(broker: AnyBroker, *arguments: str, given: bytes = b"") -> bytes:
    assert KCAT is not None
    completed = run_program(
        # Or it waits half a second at the end of each partition.
        [KCAT, "-b", broker.bootstrap_servers, "-q", "-X", "fetch.wait.max.ms=10", *arguments],
        SECONDS,
        input=given,
        capture_output=True,
        check=True,
    )
    return completed.stdout


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trio_broker", *arguments]


def environment(broker: AnyBroker) -> dict[str, str]:
    return {**os.environ, "TRIO_BROKER_BOOTSTRAP_SERVER": broker.bootstrap_servers}


def ours(broker: AnyBroker, *arguments: str, given: bytes = b"") -> bytes:
    """What a command prints that must succeed, run in the process of the tests: a start takes longer than the rest."""
    completed = CliRunner().invoke(main, arguments, input=given, env=environment(broker))
    assert completed.exit_code == 0, completed.output
    return completed.stdout_bytes


def piped(broker: AnyBroker, *arguments: str, given: bytes = b"") -> bytes:
    """The same as a process of its own."""
    completed = run_program(
        command_line(*arguments), SECONDS, input=given, capture_output=True, env=environment(broker)
    )
    assert completed.returncode == 0, completed
    return completed.stdout


@contextmanager
def running(broker: AnyBroker, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on, and is ended with the block."""
    process = subprocess.Popen(
        command_line(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(broker),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def interrupted(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Type Ctrl-C; returns the exit code and what was printed meanwhile."""
    process.send_signal(signal.SIGINT)
    out, err = communicate(process, SECONDS)
    return process.returncode, out, err


# --- The same as kcat ---


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_kcat_reads_and_we_do_the_same(cluster: AnyBroker, topic: str, codec: str) -> None:
    lines = b"".join(
        b"key %d:value %d of a text that repeats itself\n" % (number % 50, number) for number in range(1000)
    )
    options = ("-z", codec, "-K", ":", "-H", "trace=7", "-H", "empty=", "-H", "null")
    run = piped if codec == CODECS[0] else ours
    run(cluster, "produce", topic, *options, given=lines + b"tombstone:\nno key\n")

    theirs = kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-f", EVERYTHING)
    assert theirs.count(b"\n") == 1002
    assert sorted(run(cluster, "consume", topic, "-f", EVERYTHING).splitlines()) == sorted(theirs.splitlines())


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_produces_is_read(cluster: AnyBroker, topic: str, codec: str) -> None:
    lines = b"".join(
        b"key %d:value %d of a text that repeats itself\n" % (number % 50, number) for number in range(1000)
    )
    kcat(cluster, "-P", "-t", topic, "-z", codec, "-K", ":", "-H", "a=1", "-Z", given=lines + b"tombstone:\n")

    theirs = kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-Z", "-f", EVERYTHING)
    assert theirs.count(b"\n") == 1001
    assert sorted(ours(cluster, "consume", topic, "-Z", "-f", EVERYTHING).splitlines()) == sorted(theirs.splitlines())


def test_the_same_input_makes_the_same_records(cluster: AnyBroker, topic: str) -> None:
    """But for an empty line, which kcat leaves out, and librdkafka's own hash of keys: so there is one partition."""
    lines = b"k:v\nk:v:w\nk:\nplain\nlast without end"
    options = ("-K", ":", "-Z", "-H", "h=1")
    first, second = f"{topic}-ours", f"{topic}-theirs"
    ours(cluster, "produce", first, *options, given=lines)
    kcat(cluster, "-P", "-t", second, *options, given=lines)
    form = r"%p %o %K %S [%h] %k|%s\n"
    expected = kcat(cluster, "-C", "-t", second, "-o", "beginning", "-e", "-Z", "-f", form)
    assert kcat(cluster, "-C", "-t", first, "-o", "beginning", "-e", "-Z", "-f", form) == expected
    assert expected.count(b"\n") == 5


@pytest.fixture(scope="module")
def ten_records(cluster: AnyBroker) -> str:
    """A topic with a record for every second."""
    topic = "ten-records"
    ours(cluster, "topics", "create", topic, "--config", "retention.ms=-1")  # The timestamps are old.
    line = b'{"value": "%d", "timestamp": %d, "partition": 0}\n'
    lines = b"".join(line % (number, 1_700_000_000_000 + number * 1000) for number in range(10))
    ours(cluster, "produce", topic, "--json", given=lines)
    return topic


@pytest.mark.parametrize("place", ["beginning", "end", "7", "-3", "-1000", "s@1700000005000", "s@1700000005001"])
def test_places_mean_what_they_mean_to_kcat(cluster: AnyBroker, ten_records: str, place: str) -> None:
    topic = ten_records
    theirs = kcat(cluster, "-C", "-t", topic, "-p", "0", "-o", place, "-e")
    assert ours(cluster, "consume", f"{topic}:0", "-o", place) == theirs


# --- Nothing is lost ---


def test_a_topic_copied_as_lines_of_json_is_the_same_to_the_byte(cluster: AnyBroker, topic: str) -> None:
    chance = random.Random(7)
    names = [f"{topic}-{suffix}" for suffix in ("from", "to")]
    for name in names:
        ours(cluster, "topics", "create", name, "--partitions", "3")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(300):
        key, value, header = (chance.randbytes(chance.randrange(200)) for _ in range(3))
        headers: list[tuple[str, str | bytes | None]] = [("h", header), ("null", None), ("größe", b"")]
        producer.produce(names[0], value, key, partition=number % 3, headers=headers)
    producer.produce(names[0], None, None, partition=0)
    assert flushed(producer, SECONDS)
    lines = ours(cluster, "consume", names[0], "--json")
    ours(cluster, "produce", names[1], "--json", given=lines)

    def everything(name: str) -> list[bytes]:
        form = "%p %o %T [%h] %K %S %s"
        return [kcat(cluster, "-C", "-t", name, "-p", each, "-o", "beginning", "-e", "-f", form) for each in "012"]

    assert everything(names[0]) == everything(names[1])
    assert lines.count(b"\n") == 301


def test_a_record_larger_than_a_batch_arrives(cluster: AnyBroker, topic: str) -> None:
    value = b"x" * 900_000
    piped(cluster, "produce", topic, given=value + b"\nsmall\n" + value)
    assert sorted(map(len, piped(cluster, "consume", topic).splitlines())) == [5, 900_000, 900_000]


def test_a_record_that_is_too_large_is_reported_in_one_line(cluster: AnyBroker, topic: str) -> None:
    completed = run_program(
        command_line("produce", topic), SECONDS, input=bytes(2_000_000), capture_output=True, env=environment(cluster)
    )
    assert completed.returncode == 1
    last = completed.stderr.decode().splitlines()[-1]
    assert "a record of 2000" in last
    assert "is too large: the limit is 1048588 bytes (max.message.bytes of the topic)" in last


# --- Going on and ending ---


def test_a_line_is_sent_when_the_input_pauses_and_followers_see_it(cluster: AnyBroker, topic: str) -> None:
    ours(cluster, "produce", topic, given=b"before\n")
    with (
        running(cluster, "produce", topic) as producer,
        running(cluster, "consume", topic, "--follow", "-o", "-1") as reader,
    ):
        assert producer.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"before\n"
        for line in (b"one\n", b"two\n"):
            producer.stdin.write(line)
            producer.stdin.flush()
            assert reader.stdout.readline() == line
        producer.stdin.write(b"unfinished")
        producer.stdin.flush()
        assert interrupted(reader) == (0, b"", b"")
        assert interrupted(producer) == (0, b"", f"{topic}: 2 records written to 1 partition\n".encode())


def test_a_reader_that_has_enough_ends_the_command_quietly(cluster: AnyBroker, topic: str) -> None:
    ours(cluster, "produce", topic, given=b"a line of some length, again and again\n" * 50_000)
    with running(cluster, "consume", topic) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert within(process.wait, SECONDS) == 1


def test_a_broker_that_restarts_is_waited_for(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    ours(broker, "produce", "t", given=b"before\n")
    with running(broker, "produce", "t") as producer, running(broker, "consume", "t", "--follow", "-o", "-1") as reader:
        assert producer.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"before\n"
        broker.kill()
        producer.stdin.write(b"while it was away\n")
        producer.stdin.flush()
        broker.start()
        assert reader.stdout.readline() == b"while it was away\n"
        assert interrupted(reader)[0] == 0
        assert interrupted(producer)[0] == 0


def test_a_purged_topic_has_what_came_afterwards(cluster: AnyBroker, topic: str) -> None:
    ours(cluster, "produce", topic, "-p", "0", given=b"a\nb\nc\n")
    ours(cluster, "topics", "purge", f"{topic}:0", "--to", "-1", "--execute")
    ours(cluster, "produce", topic, "-p", "0", given=b"d\n")
    assert ours(cluster, "consume", topic) == b"c\nd\n"
    assert kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e") == b"c\nd\n"


@pytest.mark.soak
def test_aborted_transactions_are_left_out_unless_they_are_asked_for(kafka: KafkaProcess, topic: str) -> None:
    """Of Kafka alone: our broker serves no transactions."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for number in range(6):
        producer.begin_transaction()
        for letter in b"ab":
            producer.produce(topic, b"%d%c" % (number, letter))
        assert flushed(producer, SECONDS)  # An abort drops what was not sent yet.
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    committed = b"0a\n0b\n2a\n2b\n4a\n4b\n"
    assert ours(kafka, "consume", topic) == committed
    assert kcat(kafka, "-C", "-t", topic, "-o", "beginning", "-e") == committed
    everything = ours(kafka, "consume", topic, "--isolation-level", "read_uncommitted")
    assert everything.split() == [b"%d%c" % (number, letter) for number in range(6) for letter in b"ab"]


@pytest.mark.soak
def test_the_cluster_of_another_kafka_is_shown(kafka: KafkaProcess) -> None:
    printed = ours(kafka, "cluster", "info", "--apis").decode()
    assert f"     1  {kafka.bootstrap_servers}" in printed
    assert "metadata.version" in printed
    assert "ApiVersions" in printed
