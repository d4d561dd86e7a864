"""Bad input from any client to a real broker, which costs its connection, one line in the log, and nothing else.

Each test sends something that no client should, over raw sockets, and expects a clear error code or a closed connection
with exactly one log line. A healthy client produces and reads back during it and afterwards. Where memory is at stake,
the kernel's own measure of the peak is taken.
"""

from __future__ import annotations

import functools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import attrs
import pytest

from fuzz.raw_client import (
    WAIT_SECONDS,
    HealthyClient,
    RawConnection,
    create_topic,
    fetch_request,
    framed,
    one_record,
    peak_resident_bytes,
    produce_error,
    produce_request,
    request_bytes,
    reset_peak,
    resident_bytes,
    response_of,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, request_header
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.records.batch import BATCH_HEADER_BYTES, build_batch
from kafka_wire.records.compression import XERIAL_HEADER, Codec, compress
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import NewRecord
from tests.waits import TimeLeft, scaled
from trio_broker.testing.process import BrokerProcess

MIB = 1 << 20

MAX_REQUEST_BYTES = 100 * MIB
"""``socket.request.max.bytes`` by default."""

MAX_GROWTH_BYTES = 64 * MIB
"""How much more memory the broker may hold at its highest, whatever is sent; what it allocates by itself is less."""

MAX_BOMB_GROWTH_BYTES = 192 * MIB
"""The same for decompression: one batch may grow to 64 MiB, of which gzip holds two copies for a moment."""

MAX_PARALLEL_BOMBS_GROWTH_BYTES = 384 * MIB
"""For any number of them at once: two are inflated at a time, and the allocator keeps some of what they gave back."""

BOMB_BYTES = 200 * MIB

POLL_SECONDS = 0.005
"""The log comes through a pipe and a thread, so it is a moment late."""

METADATA_VERSION = 12
"""A flexible one."""

CRC_POSITION = 17
ATTRIBUTES_POSITION = 21


@attrs.frozen
class Witness:
    """The broker, its healthy client, and the log since the test began."""

    broker: BrokerProcess
    healthy: HealthyClient
    lines_before: int

    def log_lines(self, connection_port: int) -> list[str]:
        """What the log says about the connection from that port."""
        return [line for line in self.broker.output[self.lines_before :] if f":{connection_port}#" in line]

    def awaited_log_lines(self, connection_port: int, connections: int = 1) -> list[str]:
        """Return the lines about ``connections`` that ended, one of each, and fail if there are more or fewer."""
        time_left = TimeLeft(WAIT_SECONDS)
        while len(self.log_lines(connection_port)) < connections and not time_left.is_over:
            time.sleep(POLL_SECONDS)
        self.healthy.check()
        lines = self.log_lines(connection_port)
        assert len(lines) == connections
        return lines

    def one_log_line(self, connection_port: int) -> str:
        """Return the one line there is about a connection that ended, and fail if there are more or none."""
        (line,) = self.awaited_log_lines(connection_port)
        return line

    def refused(self, data: bytes) -> str:
        """Send ``data`` on a connection, see the broker close it without an answer, and return what its log says."""
        with RawConnection.open(self.broker.port) as connection:
            port = connection.local_port
            connection.send(data)
            self.healthy.check()
            assert connection.receive_frame() is None
        return self.one_log_line(port)

    @contextmanager
    def bounded_memory(self, growth_bytes: int = MAX_GROWTH_BYTES) -> Iterator[None]:
        """Fail if the broker's memory grows by more inside the block."""
        before = resident_bytes(self.broker.pid)
        reset_peak(self.broker.pid)
        yield
        growth = peak_resident_bytes(self.broker.pid) - before
        assert growth < growth_bytes, f"{growth / MIB:.0f} MiB more than before"


@pytest.fixture(scope="module")
def healthy(broker: BrokerProcess) -> Iterator[HealthyClient]:
    client = HealthyClient(broker.port, "healthy")
    yield client
    client.close()


@pytest.fixture
def witness(broker: BrokerProcess, healthy: HealthyClient) -> Iterator[Witness]:
    """What every test is about; at its end the broker must be well, and none of its own bugs may stand in its log."""
    healthy.check()
    witness = Witness(broker, healthy, len(broker.output))
    yield witness
    healthy.check()
    assert broker.is_running
    assert not [line for line in broker.output[witness.lines_before :] if "Traceback" in line or " ERROR " in line]


def raw_header(api_key: int, version: int) -> bytes:
    return request_header(RequestHeader(api_key=api_key, api_version=version, correlation_id=9, client_id="unknown"))


def metadata(version: int = METADATA_VERSION) -> bytes:
    return request_bytes(MetadataRequest(topics=[]), version)


# --- Frames ---


@pytest.mark.parametrize("size", [MAX_REQUEST_BYTES + 1, 2**31 - 1, -1, -(2**31), 0, 1, 7])
def test_a_size_that_no_request_has_closes_the_connection(witness: Witness, size: int) -> None:
    with witness.bounded_memory():
        line = witness.refused(struct.pack(">i", size) + bytes(8))
    assert f"a frame of {size} bytes" in line


def test_a_frame_too_short_for_its_header_closes_the_connection(witness: Witness) -> None:
    assert "too short for a request header" in witness.refused(framed(bytes(9)))


@pytest.mark.parametrize("sent_bytes", [1, 3, 4, 5, 20])
def test_a_frame_that_is_cut_off_is_reported_in_one_line(witness: Witness, sent_bytes: int) -> None:
    with RawConnection.open(witness.broker.port) as connection:
        port = connection.local_port
        connection.send(framed(metadata())[:sent_bytes])
    assert "in the middle of a frame" in witness.one_log_line(port)


def test_a_client_that_closes_its_sending_half_in_a_frame_is_closed(witness: Witness) -> None:
    with RawConnection.open(witness.broker.port) as connection:
        connection.send(framed(metadata())[:10])
        connection.sock.shutdown(socket.SHUT_WR)
        assert connection.receive_frame() is None
        assert "in the middle of a frame" in witness.one_log_line(connection.local_port)


def test_a_client_that_closes_its_sending_half_after_a_request_is_answered(witness: Witness) -> None:
    with RawConnection.open(witness.broker.port) as connection:
        connection.send(framed(metadata()))
        connection.sock.shutdown(socket.SHUT_WR)
        assert connection.receive_frame() is not None
        assert connection.receive_frame() is None


def test_a_hundred_mebibytes_announced_fifty_times_cost_no_memory(witness: Witness) -> None:
    with ExitStack() as stack, witness.bounded_memory():
        for _ in range(50):
            connection = stack.enter_context(RawConnection.open(witness.broker.port))
            connection.send(struct.pack(">i", MAX_REQUEST_BYTES))
        began = time.monotonic()
        witness.healthy.check()
        assert time.monotonic() - began < scaled(2), "they kept the broker busy"


# --- Headers ---


@pytest.mark.parametrize("api_key", [-1, 93, 999, 2**15 - 1, -(2**15)])
def test_an_unknown_api_closes_the_connection(witness: Witness, api_key: int) -> None:
    assert "is not served here" in witness.refused(framed(raw_header(api_key, 0) + bytes(20)))


@pytest.mark.parametrize("version", [-1, 14, 2**15 - 1])
def test_an_unsupported_version_closes_the_connection(witness: Witness, version: int) -> None:
    assert f"Metadata version {version} is not served here" in witness.refused(framed(raw_header(3, version)))


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(witness: Witness) -> None:
    with RawConnection.open(witness.broker.port) as connection:
        frame = connection.exchange(raw_header(18, 99) + b"\xff" * 50)
        assert frame is not None
        response = response_of(ApiVersionsRequest(client_software_name="", client_software_version=""), 0, frame)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert connection.exchange(metadata()) is not None, "the connection is still good"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (struct.pack(">hhih", 3, 1, 9, -2), "the client id has the length -2"),
        (struct.pack(">hhih", 3, 1, 9, 100) + b"short", "the client id reaches past the end"),
        (struct.pack(">hhih", 3, 1, 9, 2) + b"\xff\xfe", "the client id is not UTF-8"),
        (struct.pack(">hhih", 3, 12, 9, -1) + b"\xff\xff\xff\xff\x7f", "varint"),
        (struct.pack(">hhih", 3, 12, 9, -1) + b"\x01\x00\xff\xff\xff\xff\x07", "tag"),
    ],
    ids=["negative length", "past the end", "bad UTF-8", "endless varint", "huge tag"],
)
def test_a_malformed_header_closes_the_connection(witness: Witness, header: bytes, reason: str) -> None:
    assert reason in witness.refused(framed(header))


def test_a_client_id_can_neither_forge_a_log_line_nor_fill_the_log(witness: Witness) -> None:
    client_id = "x\n2026-01-01 WARNING all is lost\x1b[2J" + 30_000 * "y"
    body = request_bytes(MetadataRequest(topics=[]), METADATA_VERSION, client_id=client_id)
    line = witness.refused(framed(body[:2] + struct.pack(">h", 99) + body[4:]))
    assert "\\n2026-01-01 WARNING" in line
    assert len(line) < 1000


def test_the_name_of_a_topic_cannot_forge_a_log_line(witness: Witness) -> None:
    topic = "x\n2026-01-01 WARNING all is lost"
    line = witness.refused(framed(request_bytes(produce_request(topic, one_record(b"v"), acks=0), 9)))
    assert "produce with acks=0" in line
    assert not [each for each in witness.broker.output if each.startswith("2026-01-01 WARNING")]


# --- Bodies ---

NOT_NULL_METADATA_V0 = struct.pack(">i", -1)
NULL_TOPIC_NAME_V9 = b"\x02\x00\x00\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b""),
        (1, b"\x00\x00"),
        (1, struct.pack(">i", 2**31 - 1)),
        (1, struct.pack(">i", -2)),
        (1, struct.pack(">ih", 1, 2**15 - 1) + b"name"),
        (1, struct.pack(">ih", 1, -1)),
        (1, struct.pack(">ih", 1, 2) + b"\xc3\x28"),
        (0, NOT_NULL_METADATA_V0),
        (9, b"\xff\xff\xff\xff\x0f"),
        (9, b"\xff\xff\xff\xff\xff\xff\xff"),
        (9, b"\x80\x80\x80\x80\x80\x80\x01"),
        (9, NULL_TOPIC_NAME_V9),
        (9, b"\x01\x00\x00\x00\xff\xff\xff\xff\x0f"),
        (9, b"\x01\x00\x00\x00\x01\x00\xff\xff\xff\xff\x07"),
    ],
    ids=[
        "nothing",
        "cut in a count",
        "absurd count",
        "negative count",
        "string past the end",
        "null name",
        "bad UTF-8",
        "null array",
        "absurd compact count",
        "varint too long",
        "varint padded",
        "null compact name",
        "absurd number of tags",
        "tag past the end",
    ],
)
def test_a_malformed_body_closes_the_connection(witness: Witness, version: int, body: bytes) -> None:
    with witness.bounded_memory():
        line = witness.refused(framed(raw_header(3, version) + body))
    assert f"malformed METADATA v{version}" in line


def test_two_million_elements_of_a_few_bytes_each_are_refused_before_they_are_made(witness: Witness) -> None:
    count = 2_000_000
    body = raw_header(3, 1) + struct.pack(">i", count) + count * b"\x00\x01a"
    with witness.bounded_memory():
        line = witness.refused(framed(body))
    assert "too expensive" in line


@pytest.mark.parametrize("partitions", [2**31 - 1, 1_000_000, -5, 0])
def test_an_absurd_number_of_partitions_is_an_error_code(witness: Witness, partitions: int, topic: str) -> None:
    creatable = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    with witness.bounded_memory(), RawConnection.open(witness.broker.port) as connection:
        response = connection.ask(CreateTopicsRequest(topics=[creatable]), 7)
    assert response.topics[0].error_code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION)


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_fetch_may_name_a_partition_twice(witness: Witness, topic_of_all: str, session_epoch: int) -> None:
    """Kafka reads a request into a map, so a partition that is named four times is answered once."""
    request = fetch_request(topic_of_all, 0)
    request.session_epoch = session_epoch
    request.topics = 2 * request.topics
    request.topics[0].partitions *= 2
    with RawConnection.open(witness.broker.port) as connection:
        response = connection.ask(request, 12)
        assert response.error_code == ErrorCode.NONE
        assert sum(len(each.partitions) for each in response.responses) == 1


def test_ten_thousand_times_all_settings_are_asked_for_and_given_once(witness: Witness) -> None:
    """They would make a hundred megabytes of fifty thousand bytes, and keep the broker busy for many seconds."""
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=10_000 * [resource], include_synonyms=True, include_documentation=True)
    with witness.bounded_memory(), RawConnection.open(witness.broker.port) as connection:
        first, *others = connection.ask(request, 4).results
    assert first.error_code == ErrorCode.NONE
    assert {other.error_code for other in others} == {ErrorCode.INVALID_REQUEST}


def test_a_large_topic_named_a_thousand_times_is_described_once(witness: Witness, topic: str) -> None:
    creatable = CreatableTopic(name=topic, num_partitions=100, replication_factor=1, assignments=[], configs=[])
    names = 1000 * [MetadataRequestTopic(name=topic)]
    with RawConnection.open(witness.broker.port) as connection, witness.bounded_memory():
        assert connection.ask(CreateTopicsRequest(topics=[creatable]), 7).topics[0].error_code == ErrorCode.NONE
        (described,) = connection.ask(MetadataRequest(topics=names), METADATA_VERSION).topics
    assert len(described.partitions) == 100


# --- Batches ---


def stamped(batch: bytes) -> bytes:
    """Return ``batch`` with its length and CRC put right."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, CRC_POSITION, crc32c(memoryview(out)[ATTRIBUTES_POSITION:]))
    return bytes(out)


def patched(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """Return ``batch`` with one number of its header replaced and its CRC right."""
    out = bytearray(batch)
    struct.pack_into(layout, out, position, value)
    return stamped(bytes(out))


def two_records() -> bytes:
    return build_batch([NewRecord(0, b"k", b"v", []), NewRecord(1, b"k", b"w", [])])


def flipped(batch: bytes, position: int) -> bytes:
    return batch[:position] + bytes([batch[position] ^ 1]) + batch[position + 1 :]


@pytest.mark.parametrize(
    ("make_batch", "code"),
    [
        (lambda: flipped(two_records(), -2), ErrorCode.CORRUPT_MESSAGE),
        (lambda: flipped(two_records(), CRC_POSITION), ErrorCode.CORRUPT_MESSAGE),
        (lambda: two_records()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda: two_records() + b"\x00", ErrorCode.INVALID_RECORD),
        (lambda: two_records() + two_records(), ErrorCode.INVALID_RECORD),
        (lambda: b"", ErrorCode.INVALID_RECORD),
        (lambda: None, ErrorCode.INVALID_RECORD),
        (lambda: b"\x00" * 40, ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        (lambda: patched(two_records(), 16, ">b", 1), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 57, ">i", 3), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 57, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 57, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 23, ">i", 7), ErrorCode.INVALID_RECORD),
        (lambda: patched(patched(two_records(), 57, ">i", 5), 23, ">i", 4), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), BATCH_HEADER_BYTES, ">B", 0xFE), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 0, ">q", 2**63 - 1), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (lambda: patched(two_records(), 21, ">h", 0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (lambda: patched(two_records(), 21, ">h", 0x07), ErrorCode.INVALID_RECORD),
        (lambda: build_batch([NewRecord(0, b"k", bytes(2 * MIB), [])]), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "bit of a record",
        "bit of the CRC",
        "cut",
        "a byte behind",
        "two batches",
        "empty",
        "null",
        "zeros",
        "magic 3",
        "magic 1",
        "count too large",
        "count negative",
        "count absurd",
        "last offset delta",
        "count and delta both lie",
        "record length",
        "base offset",
        "control",
        "transactional",
        "codec 7",
        "too large",
    ],
)
def test_a_bad_batch_is_an_error_code(
    witness: Witness, topic_of_all: str, make_batch: Callable[[], bytes | None], code: ErrorCode
) -> None:
    assert produce_error(witness.broker.port, topic_of_all, make_batch()) is code
    assert produce_error(witness.broker.port, topic_of_all, one_record(b"good")) is ErrorCode.NONE


@pytest.fixture(scope="module")
def topic_of_all(broker: BrokerProcess) -> str:
    create_topic(broker.port, "batches")
    return "batches"


# --- Bombs ---


@functools.cache
def bomb(codec: Codec) -> bytes:
    """Return a batch of one record that inflates to ``BOMB_BYTES``, or as far as a megabyte of the codec can go."""
    ratio = {Codec.GZIP: 1000, Codec.SNAPPY: 20, Codec.LZ4: 250, Codec.ZSTD: 20_000}[codec]
    block = compress(codec, bytes(min(BOMB_BYTES, ratio * MIB * 3 // 4)))
    return stamped(one_record(b"", codec=codec)[:BATCH_HEADER_BYTES] + block)


def snappy_liar() -> bytes:
    """Return a batch whose block says that it inflates to 4 GiB."""
    block = XERIAL_HEADER + b"\x00\x00\x00\x07\xff\xff\xff\xff\x0f\x00a"
    return stamped(one_record(b"", codec=Codec.SNAPPY)[:BATCH_HEADER_BYTES] + block)


@pytest.fixture(scope="module", params=["compacted", "recompressed", "recompressed otherwise"])
def inflating_topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic for which the broker must look into compressed batches."""
    configs: dict[str, dict[str, str]] = {
        "compacted": {"cleanup_policy": "compact"},
        "recompressed": {"compression_type": "uncompressed"},
        "recompressed otherwise": {"compression_type": "zstd", "cleanup_policy": "compact"},
    }
    topic = str(request.param).replace(" ", "-")
    create_topic(broker.port, topic, **configs[request.param])
    return topic


@pytest.mark.parametrize(
    ("make_batch", "codes"),
    [
        (lambda: bomb(Codec.GZIP), {ErrorCode.MESSAGE_TOO_LARGE}),
        (lambda: bomb(Codec.SNAPPY), {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD}),
        (lambda: bomb(Codec.LZ4), {ErrorCode.MESSAGE_TOO_LARGE}),
        (lambda: bomb(Codec.ZSTD), {ErrorCode.MESSAGE_TOO_LARGE}),
        (snappy_liar, {ErrorCode.INVALID_RECORD}),
    ],
    ids=["gzip", "snappy", "lz4", "zstd", "snappy that lies"],
)
def test_a_decompression_bomb_is_refused_within_bounds(
    witness: Witness, inflating_topic: str, make_batch: Callable[[], bytes], codes: set[ErrorCode]
) -> None:
    batch = make_batch()
    with witness.bounded_memory(MAX_BOMB_GROWTH_BYTES):
        assert produce_error(witness.broker.port, inflating_topic, batch) in codes
    assert produce_error(witness.broker.port, inflating_topic, one_record(b"good", codec=Codec.GZIP)) is ErrorCode.NONE


def test_many_bombs_at_once_are_inflated_a_few_at_a_time(witness: Witness) -> None:
    """Each costs its sender a kilobyte and the broker over a hundred mebibytes while it is looked at."""
    topics = [f"bombed-{number}" for number in range(5)]
    for topic in topics:
        create_topic(witness.broker.port, topic, cleanup_policy="compact")
    batch = bomb(Codec.GZIP)
    with ExitStack() as stack, witness.bounded_memory(MAX_PARALLEL_BOMBS_GROWTH_BYTES):
        connections = [stack.enter_context(RawConnection.open(witness.broker.port)) for _ in range(10)]
        for number, connection in enumerate(connections):
            connection.send(framed(request_bytes(produce_request(topics[number % 5], batch), 9)))
        witness.healthy.check()
        for connection in connections:
            assert connection.receive_frame() is not None


# --- Crowds ---


def test_two_hundred_dribblers_harm_nobody(witness: Witness) -> None:
    """Each sends a frame byte by byte and never ends it."""
    frame = framed(metadata())
    with ExitStack() as stack, witness.bounded_memory():
        dribblers = [stack.enter_context(RawConnection.open(witness.broker.port)) for _ in range(200)]
        for position in range(10):
            for dribbler in dribblers:
                dribbler.send(frame[position : position + 1])
            witness.healthy.check()
        dribblers[0].send(frame[10:])
        assert dribblers[0].receive_frame() is not None, "slowness alone is no offence"


def test_a_dribbler_is_closed_in_the_end(start_broker: Callable[..., BrokerProcess]) -> None:
    """With the shortest timeout that there is: a frame under way does not keep a silent connection open."""
    broker = start_broker(connections_max_idle_ms="101", log_durability="page-cache")
    with RawConnection.open(broker.port) as connection:
        connection.send(b"\x00\x00")
        assert connection.receive_frame() is None


def test_clients_that_never_read_are_not_waited_for(witness: Witness, topic: str) -> None:
    create_topic(witness.broker.port, topic, max_message_bytes=str(8 * MIB))
    for _ in range(4):
        batch = build_batch([NewRecord(0, b"k", bytes(4 * MIB), [])])
        assert produce_error(witness.broker.port, topic, batch) is ErrorCode.NONE
    fetch = framed(request_bytes(fetch_request(topic, 0, max_bytes=50 * MIB), 12))
    with ExitStack() as stack, witness.bounded_memory():
        for _ in range(50):
            connection = stack.enter_context(RawConnection.open(witness.broker.port))
            connection.send(20 * fetch)
        for _ in range(20):
            witness.healthy.check()


def test_clients_that_ask_for_much_metadata_and_never_read_cost_little(witness: Witness) -> None:
    ask = framed(request_bytes(MetadataRequest(topics=None), METADATA_VERSION))
    with ExitStack() as stack, witness.bounded_memory():
        for _ in range(50):
            connection = stack.enter_context(RawConnection.open(witness.broker.port))
            connection.sock.settimeout(0.01)
            with_all_that_fits(connection.sock, 200 * ask)
        for _ in range(20):
            witness.healthy.check()


def with_all_that_fits(sock: socket.socket, data: bytes) -> None:
    """Send until the broker, which waits for us to read, takes no more."""
    with suppress(TimeoutError):
        sock.sendall(data)


def test_a_thousand_connects_and_drops_harm_nobody(witness: Witness) -> None:
    with witness.bounded_memory():
        for number in range(1000):
            connection = RawConnection.open(witness.broker.port)
            if number % 2:
                linger = struct.pack("ii", 1, 0)
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # a reset instead of an end
            connection.close()
            if number % 50 == 0:
                witness.healthy.check()


def test_a_flood_of_garbage_harms_nobody(witness: Witness) -> None:
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff" * 64,
        b"SSH-2.0-x\r\n",
    ]
    ports = []
    with witness.bounded_memory():
        for number in range(400):
            with RawConnection.open(witness.broker.port) as connection:
                ports.append(connection.local_port)
                connection.send(garbage[number % len(garbage)])
                assert connection.receive_frame() is None
            if number % 50 == 0:
                witness.healthy.check()
    # The kernel may have given one port to several of them, one after the other.
    lines = [line for port in ports[-8:] for line in witness.awaited_log_lines(port, ports.count(port))]
    assert all("not Kafka's protocol" in line for line in lines)


def test_a_thousand_pipelined_requests_are_answered_in_their_order(witness: Witness) -> None:
    request = MetadataRequest(topics=[])
    frames = [framed(request_bytes(request, 1, correlation_id=number)) for number in range(1000)]
    with RawConnection.open(witness.broker.port) as connection:
        connection.send(b"".join(frames))
        answers: list[Any] = [connection.receive_frame() for _ in frames]
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == list(range(1000))


def test_good_requests_before_a_bad_frame_are_answered(witness: Witness) -> None:
    with RawConnection.open(witness.broker.port) as connection:
        connection.send(3 * framed(metadata()) + struct.pack(">i", -1) + bytes(20))
        answers = [connection.receive_frame() for _ in range(4)]
        assert [answer is None for answer in answers] == [False, False, False, True]
        assert "a frame of -1 bytes" in witness.one_log_line(connection.local_port)
