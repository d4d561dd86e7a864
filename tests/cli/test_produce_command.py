"""``produce`` as it is typed: what becomes of lines and files, and how trouble is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import Record
from tests.cli.test_hints import usage_error
from tests.client.producer.scripted_logs import ScriptedLogs
from tests.client.scripted_client import unused_port
from tests.fakes.scripted_kafka import HOST, Cluster, ScriptedKafka
from trio_broker.cli import main


@attrs.define
class Scene:
    """One broker with the topic ``t`` of three partitions."""

    server: ScriptedKafka
    logs: ScriptedLogs

    def produce(self, *arguments: str, given: bytes = b"") -> Result:
        return CliRunner().invoke(main, ["produce", *arguments, "-b", self.server.address], input=given)

    @property
    def records(self) -> list[Record]:
        """All records, by partition."""
        return [record for _, log in sorted(self.logs.logs.items()) for record in log.records]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ScriptedKafka() as server:
        yield Scene(server, ScriptedLogs(Cluster([server], {"t": [1, 1, 1]})))


def test_each_line_of_the_input_is_a_record(scene: Scene):
    result = scene.produce("t", given=b"one\ntwo\n\nlast")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert result.stderr == "t: 4 records written to 1 partition\n"
    assert scene.values == [b"one", b"two", b"", b"last"]
    assert {record.key for record in scene.records} == {None}


def test_keys_headers_partition_and_tombstones_are_as_asked_for(scene: Scene):
    arguments = ("t", "-p", "2", "-K", ":", "-H", "trace=7=8", "-H", "empty=", "-H", "null", "-Z")
    assert scene.produce(*arguments, given=b"k:v\nk:\nno key\n").exit_code == 0
    assert [(record.key, record.value) for record in scene.logs.logs["t", 2].records] == [
        (b"k", b"v"),
        (b"k", None),
        (None, b"no key"),
    ]
    assert {record.headers for record in scene.records} == {(("trace", b"7=8"), ("empty", b""), ("null", None))}


def test_another_delimiter_and_one_key_for_all(scene: Scene):
    scene.produce("t", "-D", r"\0", "-k", "key", given=b"a\nb\0c\0")
    assert [(record.key, record.value) for record in scene.records] == [(b"key", b"a\nb"), (b"key", b"c")]


def test_files_are_read_by_lines_or_whole(scene: Scene, tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\nb\n")
    second.write_bytes(b"c\nd")
    assert scene.produce("t", "-p", "0", str(first), str(second)).exit_code == 0
    assert scene.values == [b"a", b"b", b"c", b"d"]
    assert scene.produce("t", "-p", "1", "--whole", str(first), "-", given=b"in\nput").exit_code == 0
    assert scene.values[4:] == [b"a\nb\n", b"in\nput"]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_batches_are_compressed_as_asked_for(scene: Scene, codec: Codec):
    scene.produce("t", "-z", codec.name.lower(), "-p", "0", given=b"a\n" * 100)
    assert [batch.header.codec for batch in scene.logs.logs["t", 0].batches] == [codec]
    assert len(scene.values) == 100


@pytest.mark.parametrize(("acks", "sent"), [("all", -1), ("1", 1), ("0", 0)])
def test_as_many_replicas_acknowledge_as_asked_for(scene: Scene, acks: str, sent: int):
    assert scene.produce("t", "--acks", acks, given=b"a\n").exit_code == 0
    scene.server.join()
    assert [request.acks for request in scene.server.requests(ProduceRequest)] == [sent]
    assert scene.values == [b"a"]


def test_lines_of_json_say_all_there_is(scene: Scene):
    lines = b'{"key": "k", "value": null, "partition": 1, "timestamp": 5}\n\n{"value": "v", "partition": 2}\n'
    assert scene.produce("t", "--json", "-H", "h=1", given=lines).exit_code == 0
    [first], [second] = scene.logs.logs["t", 1].records, scene.logs.logs["t", 2].records
    assert (first.key, first.value, first.timestamp, first.headers) == (b"k", None, 5, (("h", b"1"),))
    assert second.value == b"v"
    assert second.timestamp > 1_700_000_000_000


def test_partitions_of_another_topic_can_be_left_to_the_keys(scene: Scene):
    line = b'{"value": "v", "partition": 77}\n'
    refused = scene.produce("t", "--json", given=line)
    assert refused.exit_code == 1
    assert refused.stderr.splitlines() == [
        "t: 0 records written",
        "trio-broker: topic 't' has no partition 77; it has 3, from 0 on",
    ]
    assert scene.produce("t", "--json", "--repartition", given=line).exit_code == 0
    assert scene.values == [b"v"]


def test_what_stands_before_a_line_that_is_no_record_is_written(scene: Scene, tmp_path: Path):
    file = tmp_path / "records"
    file.write_bytes(b'{"value": "a"}\n{"value": "b"}\n{"valu": "c"}\n{"value": "d"}\n')
    result = scene.produce("t", "--json", str(file))
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "t: 2 records written to 1 partition",
        f"trio-broker: {file}, record 3: a record has no field 'valu'",
    ]
    assert scene.values == [b"a", b"b"]


def test_a_partition_that_does_not_exist_is_reported_before_anything_is_read(scene: Scene) -> None:
    result = scene.produce("t", "-p", "7", given=b"")
    assert result.exit_code == 1
    assert result.stderr == "trio-broker: topic 't' has no partition 7; it has 3, from 0 on\n"


def test_a_topic_that_does_not_exist_is_reported_before_anything_is_read(scene: Scene):
    result = scene.produce("missing", "--no-create", given=b"a\n")
    assert result.exit_code == 1
    assert result.stderr == ("trio-broker: there is no topic 'missing', and it is not created by being written to\n")
    assert not any(request.allow_auto_topic_creation for request in scene.server.requests(MetadataRequest))


def test_what_a_broker_refuses_is_reported_in_one_line(scene: Scene):
    scene.logs.troubles = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    result = scene.produce("t", "-p", "0", given=b"a\n")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "t: 0 records written",
        "trio-broker: t-0: 1 record refused: TOPIC_AUTHORIZATION_FAILED",
    ]


def test_a_partition_that_stays_without_a_leader_is_reported_with_the_option_that_sets_the_time(scene: Scene):
    scene.logs.troubles = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 9
    result = scene.produce("t", "-p", "0", "--command-timeout", "0.2", given=b"a\n")
    assert result.exit_code == 1
    message = "not acknowledged within 0.2 s (--command-timeout, delivery.timeout.ms): NOT_LEADER_OR_FOLLOWER"
    assert result.stderr.splitlines()[-1] == f"trio-broker: t-0: 1 record not written: {message}"


def test_a_broker_that_is_not_there_is_reported_when_the_time_is_over():
    port = unused_port()
    arguments = ["produce", "t", "-b", f"{HOST}:{port}", "--command-timeout", "0.3"]
    result = CliRunner().invoke(main, arguments, input=b"a\n")
    assert result.exit_code == 1
    assert result.stderr == (
        "trio-broker: topic 't' was not found within 0.3 s (--command-timeout, max.block.ms):"
        f" cannot connect to {HOST}:{port}: Connection refused\n"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--json", "-K", ":"], "leave out -K, -k, -Z, -D, --whole"),
        (["--json", "--whole"], "leave out -K, -k, -Z, -D, --whole"),
        (["--repartition"], "--repartition is for --json"),
        (["--whole", "-D", ";"], "--whole takes no --delimiter"),
        (["-K", ""], "it is empty"),
        (["-D", r"\q"], r"\q is no escape"),
        (["-H", "=v"], "is not of the form KEY=VALUE"),
        (["-z", "rar"], "'rar' is not one of"),
    ],
)
def test_options_that_make_no_sense_are_a_wrong_use(arguments: list[str], reason: str):
    assert reason in usage_error("produce", "t", *arguments)
