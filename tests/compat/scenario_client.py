"""A client of any Kafka broker in raw frames, with a transcript in a form that two brokers can share.

A ``ScenarioClient`` sends requests of kafka_wire over sockets of its own and keeps a transcript: each request in one
line, with the fields that are not at their defaults, and its response below, with every field that its version has.
What differs between two brokers, or two runs, without any meaning is written as a name: generated ids (``<id 1>``),
topic ids (``<id of name>``), producer ids (``<producer 1>``), fetch sessions, times, ports. Of records each
batch is described. Throttle times are left out, of an error message only its presence is kept, and lists of structs
and of strings are sorted.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.messages.list_groups import ListGroupsResponse
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.list_transactions import ListTransactionsResponse
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import RecordBatch, read_batches
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from kafka_wire.records.errors import CorruptRecordBatch
from kafka_wire.schema import Field, fields_of
from tests.waits import TimeLeft, scaled

CLIENT_ID = "talk"

ANSWER_SECONDS = 20.0
"""Nothing in a conversation waits longer than a few rebalances on a slow machine."""

PAUSE_SECONDS = 0.01
"""Before a question is repeated."""

GENERATED_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
GENERATED_MEMBER_ID = re.compile(r"^[A-Za-z0-9_-]{22}$")
"""A random uuid in the two forms in which Kafka writes one; the short one stands alone."""

MEMBER_ID_FIELDS = frozenset({"member_id", "leader"})

PRODUCER_ID_FIELDS = frozenset(
    {"producer_id", "v3_and_below_producer_id", "producer_id_filters", "previous_producer_id", "next_producer_id"}
)

TIME_FIELDS = frozenset(
    {
        "timestamp",
        "last_timestamp",
        "transaction_start_time_ms",
        "transaction_start_timestamp_ms",
        "transaction_last_update_timestamp_ms",
    }
)
"""Milliseconds since 1970. What lies before the conversation is shown: the records' own timestamps, and -1."""

NOT_REPORTED = frozenset({"throttle_time_ms"})

MAX_TEXT = 100
"""Characters of a string that a transcript tells in full."""

INDENT = "    "


class NoAnswer(Exception):
    """The broker closed the connection, or said nothing for ``ANSWER_SECONDS``."""


@attrs.define
class Connection:
    """One connection to a broker, which may have one request under way. ``source`` is the client's address."""

    port: int
    waiting_for: tuple[Any, int] | None = None
    source: str = "127.0.0.1"
    _socket: socket.socket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        broker, timeout = ("127.0.0.1", self.port), scaled(ANSWER_SECONDS)
        self._socket = socket.create_connection(broker, timeout, source_address=(self.source, 0))

    def send(self, request: Any, version: int) -> None:
        assert self.waiting_for is None, f"{self.waiting_for[0]} was not answered yet"
        self.send_bytes(request.API_KEY, version, encode_bytes(request, version))
        self.waiting_for = (request, version)

    def send_bytes(self, api_key: int, version: int, body: bytes) -> None:
        header = RequestHeader(api_key=api_key, api_version=version, correlation_id=7, client_id=CLIENT_ID)
        frame = request_header(header) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> Any:
        """Return the response to the request that is under way.

        Raises:
            NoAnswer: there is none.
        """
        assert self.waiting_for is not None, "nothing was asked"
        request, version = self.waiting_for
        self.waiting_for = None
        frame = self.receive_bytes()
        _, position = read_response_header(request.API_KEY, version, frame)
        response, end = decode(type(request).RESPONSE, version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes are left over after {response}"
        return response

    def receive_bytes(self) -> bytes:
        """Return the next answer, with its header; raises as ``receive``."""
        return self._exactly(*struct.unpack(">i", self._exactly(4)))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except TimeoutError:
                raise NoAnswer("timeout") from None
            except ConnectionError:
                raise NoAnswer("reset") from None
            if not more:
                raise NoAnswer("closed")
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


@attrs.define
class ScenarioClient:
    """A conversation with the broker at ``port``; ``name`` begins the names of all its topics and groups, and is left
    out where it does."""

    port: int
    name: str
    lines: list[str] = attrs.field(factory=list)
    connections: dict[str, Connection] = attrs.field(factory=dict)
    names: dict[str, str] = attrs.field(factory=dict)
    """What is written in place of generated uuids."""
    called: dict[str, str] = attrs.field(factory=dict)
    """What is written in place of whole strings."""
    topic_ids: dict[bytes, str] = attrs.field(factory=dict)
    producers: dict[int, str] = attrs.field(factory=dict)
    """What is written in place of producer ids."""
    began_ms: int = attrs.field(factory=lambda: int(time.time() * 1000))

    # --- Saying ---

    def note(self, text: str) -> None:
        """Write a heading into the transcript."""
        self.lines += ["", f"# {text}"]

    def tell(self, message: Any, version: int) -> None:
        """Write down a message that is no answer, such as a stored record."""
        self.lines += [INDENT + line for line in self._outline(message, version)]

    def ask(self, request: Any, version: int, connection: str = "a") -> Any:
        """Send ``request``, write down both it and the response, and return the response."""
        self._asked(request, version)
        return self._note_response(self._exchange(request, version, connection), version)

    def ask_until(
        self, reached: Callable[[Any], bool], request: Any, version: int, connection: str = "a", *, what: str
    ) -> Any:
        """Repeat ``request`` until its response satisfies ``reached``; write that one down, and return it."""
        self._asked(request, version, f"until {what}")
        time_left = TimeLeft(ANSWER_SECONDS)
        while not reached(response := self._exchange(request, version, connection)):
            assert not time_left.is_over, f"never {what}: {response}"
            time.sleep(PAUSE_SECONDS)
        return self._note_response(response, version)

    def begin(self, request: Any, version: int, connection: str) -> None:
        """Send a request whose response comes only when somebody else has done something; see ``finish``."""
        self._asked(request, version, f"{connection} waits")
        self._connection(connection).send(request, version)

    def finish(self, connection: str) -> Any:
        """Receive and write down the response to what was begun on ``connection``."""
        waiting = self._connection(connection).waiting_for
        assert waiting is not None
        self.lines.append(f"{request_name(waiting[0])} v{waiting[1]}  ({connection} goes on)")
        return self._note_response(self._connection(connection).receive(), waiting[1])

    def quietly(self, request: Any, version: int, connection: str = "a") -> Any:
        """Return the response, and write nothing down."""
        return self._exchange(request, version, connection)

    def ask_in_turn(self, request: Any, version: int, connection: str = "a") -> Any:
        """Ask, and repeat it without a word while the transaction before it has not ended yet."""
        self._asked(request, version)
        return self._note_response(self.quietly_in_turn(request, version, connection), version)

    def quietly_in_turn(self, request: Any, version: int, connection: str = "a") -> Any:
        """As ``ask_in_turn``, and write nothing down."""
        time_left = TimeLeft(ANSWER_SECONDS)
        while ErrorCode.CONCURRENT_TRANSACTIONS in error_codes(answer := self._exchange(request, version, connection)):
            assert not time_left.is_over, f"{request} has to wait for ever"
            time.sleep(PAUSE_SECONDS)
        return answer

    def call(self, text: str, name: str) -> None:
        """Write ``<name>`` wherever ``text`` stands, as an id whose form is not to be compared."""
        self.called[text] = f"<{name}>"

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> bytes:
        """Create a topic, and return its id; ``name`` is complete already."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        response = self.quietly(CreateTopicsRequest(topics=[topic]), 7)
        assert response.topics[0].error_code == 0, response
        topic_id: bytes = response.topics[0].topic_id
        self.topic_ids[topic_id] = name.removeprefix(f"{self.name}-")
        self._wait_for_topic(name, partitions)
        return topic_id

    def _wait_for_topic(self, name: str, partitions: int) -> None:
        """Kafka's broker learns of a topic a moment after its controller has created it, and leads its partitions a
        moment after that.
        """
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        time_left = TimeLeft(ANSWER_SECONDS)
        for request in (metadata, offsets):
            while any(error_codes(answer := self.quietly(request, 9))):
                assert not time_left.is_over, answer
                time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    @property
    def transcript(self) -> str:
        return "\n".join(self.lines).strip() + "\n"

    def _connection(self, name: str) -> Connection:
        if name not in self.connections:
            self.connections[name] = Connection(self.port)
        return self.connections[name]

    def _exchange(self, request: Any, version: int, connection: str) -> Any:
        self._connection(connection).send(request, version)
        return self._connection(connection).receive()

    # --- Writing down ---

    def _asked(self, request: Any, version: int, remark: str = "") -> None:
        fields = [
            f"{field.name}={self._inline(field.name, getattr(request, field.name), version)}"
            for field in reported_fields(request, version)
            if field.name in PRODUCER_ID_FIELDS or getattr(request, field.name) != field.new_default()
        ]
        self.lines.append(
            " ".join([request_name(request), f"v{version}", *fields]) + (f"  ({remark})" if remark else "")
        )

    def _note_response(self, response: Any, version: int) -> Any:
        if isinstance(response, ListGroupsResponse):
            response.groups = [group for group in response.groups if group.group_id.startswith(f"{self.name}-")]
        if isinstance(response, ListTransactionsResponse):
            response.transaction_states = [
                each for each in response.transaction_states if each.transactional_id.startswith(f"{self.name}-")
            ]
        self.lines += [INDENT + line for line in self._outline(response, version)]
        return response

    def _outline(self, message: Any, version: int) -> list[str]:
        """A message or struct as lines: its plain fields in one, then each of those that have structs in them."""
        plain, nested = [], []
        for field in reported_fields(message, version):
            value = getattr(message, field.name)
            if attrs.has(type(value)):
                nested += [f"{field.name}:", *(INDENT + line for line in self._outline(value, version))]
            elif isinstance(value, list) and value and attrs.has(type(value[0])):
                nested += [f"{field.name}:", *self._items(value, version)]
            else:
                if isinstance(value, list) and value and isinstance(value[0], str):
                    value = sorted(value)
                plain.append(f"{field.name}={self._inline(field.name, value, version)}")
        return [" ".join(plain), *nested] if plain else nested

    def _items(self, structs: list[Any], version: int) -> list[str]:
        """A list of structs, sorted, since what order they come in is the broker's own affair."""
        items = sorted(self._outline(struct, version) for struct in structs)
        return [("- " if number == 0 else "  ") + line for item in items for number, line in enumerate(item)]

    def _inline(self, name: str, value: Any, version: int) -> str:
        if value is None:
            return "null"
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name == "error_message":
            return "<text>" if value else "''"
        if name in ("port", "session_id") and value > 0:
            return f"<{name}>"
        if isinstance(value, list):
            return f"[{', '.join(self._inline(name, each, version) for each in value)}]"
        if isinstance(value, str):
            return self._text(name, value)
        if name in PRODUCER_ID_FIELDS:
            return self._producer(value)
        if name in TIME_FIELDS:
            return str(value) if value < self.began_ms else "<time>"
        if name == "records":
            return self._batches(value)
        if isinstance(value, bytes):
            return self._bytes(name, value)
        if attrs.has(type(value)):
            fields = [
                f"{field.name}={self._inline(field.name, getattr(value, field.name), version)}"
                for field in reported_fields(value, version)
                if getattr(value, field.name) != field.new_default()
            ]
            return f"({' '.join(fields)})"
        return str(value)

    def _text(self, name: str, value: str) -> str:
        if value in self.called:
            return self.called[value]
        if len(value) > MAX_TEXT:
            return f"'{value[:3]}…' ({len(value)} characters)"
        text = GENERATED_ID.sub(self._name_of, value.removeprefix(f"{self.name}-"))
        return repr(GENERATED_MEMBER_ID.sub(self._name_of, text) if name in MEMBER_ID_FIELDS else text)

    def _name_of(self, found: re.Match[str]) -> str:
        return self.names.setdefault(found.group(), f"<id {len(self.names) + 1}>")

    def _producer(self, producer_id: int) -> str:
        if producer_id <= 0:
            # What stands beside an error: the conversations' own ids begin later.
            return str(producer_id)
        return self.producers.setdefault(producer_id, f"<producer {len(self.producers) + 1}>")

    def _batches(self, records: memoryview) -> str:
        try:
            return f"[{', '.join(map(self._batch, read_batches(records)))}]"
        except CorruptRecordBatch:
            return f"<{len(records)} bytes that are no batch>"

    def _batch(self, batch: RecordBatch) -> str:
        """A batch: its offsets, what it is, and whose."""
        header = batch.header
        words = [f"{header.base_offset}-{header.last_offset}"]
        if header.is_transactional:
            words.append("transactional")
        if header.is_control:
            marker = read_control_record(next(batch.records()))
            assert isinstance(marker, EndTransactionMarker)
            words += [marker.type.name, f"of coordinator epoch {marker.coordinator_epoch}"]
        if header.has_producer_id:
            words.append(f"by {self._producer(header.producer_id)} epoch {header.producer_epoch}")
            words.append(f"from {header.base_sequence}")
        return " ".join(words)

    def _bytes(self, name: str, value: bytes) -> str:
        if not name.endswith("topic_id"):
            return repr(value).replace(f"{self.name}-", "")
        if value == NO_UUID:
            return "<no id>"
        return f"<id of {self.topic_ids[value]}>" if value in self.topic_ids else "<unknown id>"


def request_name(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def error_codes(message: Any) -> set[int]:
    """Every error code in a response."""
    if isinstance(message, list):
        return set().union(*map(error_codes, message))
    if not attrs.has(type(message)):
        return set()
    found = {getattr(message, each.name) for each in fields_of(type(message)) if each.name.endswith("error_code")}
    return found.union(*(error_codes(getattr(message, each.name)) for each in fields_of(type(message))))


def reported_fields(message: Any, version: int) -> list[Field]:
    """The fields that ``version`` has, but for those that no transcript tells."""
    return [field for field in fields_of(type(message)) if version in field.versions and field.name not in NOT_REPORTED]
