"""A server on a real socket that answers as a test says, for the client of the command line.

``answers`` has for each request class what to answer: a response, a function that makes one of the request and its
version, or a list of those, one for each time it is asked, the last one for ever. In place of a response may stand
what goes wrong (``Raw``, ``Misnumbered``, ``CLOSED``, ``SILENCE``). What was asked is kept in ``asked``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

import attrs

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode_bytes
from kafka_wire.headers import read_request_header, response_header
from kafka_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_wire.schema import VersionRange

HOST = "127.0.0.1"
UNKNOWN_TOPIC = 3


@attrs.frozen
class Raw:
    """Bytes in place of a framed answer, in pieces that are sent one by one; then the connection is closed."""

    pieces: tuple[bytes, ...]


@attrs.frozen
class Misnumbered:
    """A right answer with another request's correlation id."""

    response: Any


CLOSED: Final = Raw(())
"""The connection is closed in place of an answer."""

SILENCE: Final = object()
"""No answer comes."""


@attrs.frozen
class Asked:
    """One request as it came; ``node_id`` is that of the server which it came to."""

    request: Any
    version: int
    node_id: int


@attrs.define(eq=False)
class ScriptedKafka:
    """One broker. Use it as a context manager; several make a cluster when they are given each other (``cluster``)."""

    answers: dict[type[Any], Any] = attrs.field(factory=dict)
    node_id: int = 1
    served: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    asked: list[Asked] = attrs.field(factory=list)
    _listener: socket.socket = attrs.field(factory=lambda: socket.create_server((HOST, 0)))
    _connections: list[socket.socket] = attrs.field(factory=list)
    _threads: list[threading.Thread] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        ranges = {key: (kind.VERSIONS.low, kind.VERSIONS.high) for key, kind in all_requests().items()}
        self.served = {**ranges, **self.served}

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def requests(self, kind: type[Any]) -> list[Any]:
        """The requests of one kind that came, in their order."""
        return [each.request for each in self.asked if isinstance(each.request, kind)]

    def versions(self, kind: type[Any]) -> list[int]:
        """The versions in which the requests of one kind came."""
        return [each.version for each in self.asked if isinstance(each.request, kind)]

    # --- Serving ---

    def __enter__(self) -> ScriptedKafka:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def join(self) -> None:
        """Wait until every request of the connections that their clients have closed was taken."""
        for thread in self._threads[1:]:
            thread.join()

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, name=f"scripted kafka {self.node_id}")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._converse, connection)

    def _converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while (frame := self._frame(connection)) is not None and self._answer(connection, frame):
                pass

    def _frame(self, connection: socket.socket) -> bytes | None:
        size = connection.recv(4, socket.MSG_WAITALL)
        return connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if size else None

    def _answer(self, connection: socket.socket, frame: bytes) -> bool:
        """Answer one request; returns whether the connection goes on."""
        header, position = read_request_header(frame)
        kind = all_requests()[header.api_key]
        version = header.api_version
        if version not in kind.VERSIONS or not VersionRange(*self.served[header.api_key]).low <= version:
            raise AssertionError(f"{kind.__name__} v{version} was asked")
        request, _ = decode(kind, version, frame, position)
        self.asked.append(Asked(request, version, self.node_id))
        answer = self._scripted(kind, request, version)
        correlation_id = header.correlation_id
        if answer is SILENCE:
            return True
        if isinstance(answer, Raw):
            for piece in answer.pieces:
                connection.sendall(piece)
            return False
        if isinstance(answer, Misnumbered):
            answer, correlation_id = answer.response, correlation_id + 1
        if isinstance(answer, ApiVersionsResponse) and answer.error_code:
            version = 0
        body = response_header(header.api_key, version, correlation_id) + encode_bytes(answer, version)
        connection.sendall(len(body).to_bytes(4, "big") + body)
        return True

    def _scripted(self, kind: type[Any], request: Any, version: int) -> Any:
        script = self.answers.get(kind)
        if script is None and kind is ApiVersionsRequest:
            return api_versions(self.served)
        assert script is not None, f"nobody said what to answer to {request}"
        if isinstance(script, list):
            script = script.pop(0) if len(script) > 1 else script[0]
        return script(request, version) if callable(script) else script


# --- Answers ---


def api_versions(served: Mapping[int, tuple[int, int]], error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def served_up_to(api_key: ApiKey, high: int, low: int = 0) -> dict[int, tuple[int, int]]:
    """What a broker serves that knows an API in some versions only."""
    return {api_key: (low, high)}


def fetched(request: FetchRequest, data_of: Callable[[FetchPartition], PartitionData]) -> FetchResponse:
    """The answer that has ``data_of`` each partition that is asked for."""
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=[data_of(each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def listed(
    request: ListOffsetsRequest, answer_of: Callable[[str, ListOffsetsPartition], ListOffsetsPartitionResponse | None]
) -> ListOffsetsResponse:
    """The answer that has ``answer_of`` each partition that is asked for, by its topic; None leaves one out."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[answer for each in topic.partitions if (answer := answer_of(topic.name, each)) is not None],
            )
            for topic in request.topics
        ]
    )


@attrs.define
class Cluster:
    """What brokers answer to Metadata: the servers, their topics, and by whom each partition is led (-1: by none)."""

    servers: list[ScriptedKafka]
    topics: dict[str, list[int]] = attrs.field(factory=dict)
    controller_id: int = 1
    other_nodes: dict[int, tuple[str, int]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for server in self.servers:
            server.answers.setdefault(MetadataRequest, self.metadata)

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        addresses = {server.node_id: (HOST, server.port) for server in self.servers} | self.other_nodes
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, (host, port) in addresses.items()
            ],
            cluster_id="scripted",
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        leaders = self.topics.get(name)
        return MetadataResponseTopic(
            name=name,
            error_code=UNKNOWN_TOPIC if leaders is None else 0,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=leader, replica_nodes=[1], isr_nodes=[1] if leader >= 0 else []
                )
                for index, leader in enumerate(leaders or ())
            ],
        )
