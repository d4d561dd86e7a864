"""What becomes of a request's bytes after its answer: reference counts free them, however the request ends.

The collector would find what is in a cycle only after a full collection, and what that has excluded after an hour
(docs/decisions/0048): a client could fill the memory with frames that are refused.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from bench.largest_requests import array_paths, request_with
from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.headers import RequestHeader
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cases import each
from tests.handlers.handler_client import CONNECTION
from tests.handlers.wire_client import WireClient
from trio_broker.handlers.support.registry import served_apis
from trio_broker.network.errors import CloseConnection
from trio_broker.network.handler_pool import HandlerPool
from trio_broker.network.request_channel import QueuedRequest, Reply, RequestChannel

NAMES = [f"name-{number}" for number in range(1000)]
SMALL = MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 5
LARGE = DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1), 5
LARGE_FIELD = (
    JoinGroupRequest(
        group_id="g",
        session_timeout_ms=500,
        rebalance_timeout_ms=500,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=bytes(20 << 20))],
    ),
    3,
)
"""With more metadata than a member may have: refused."""

ELEMENTS = 300
"""Of an array: more than are handled at once."""

REFUSALS = [
    KafkaError("no", code=ErrorCode.POLICY_VIOLATION),
    OSError("the disk is gone"),
    CloseConnection("no"),
]


@attrs.define
class Mailbox:
    """Takes the reply of a request, and nothing of the request."""

    has_come: trio.Event = attrs.field(factory=trio.Event)
    is_closed: bool = False
    has_more: bool = False

    def unmute(self, request: QueuedRequest) -> None:
        """There is nothing behind it."""

    def respond(self, request: QueuedRequest, reply: Reply) -> None:
        self.has_come.set()


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def is_freed(nursery: trio.Nursery, wire: WireClient, api_key: int, version: int, body: bytes) -> bool:
    """Whether a request that was answered in the turn of its Processor, and one that was queued, are freed."""
    pool = HandlerPool(RequestChannel(10), wire.dispatcher.answer, 1)
    await nursery.start(pool.run)

    def submit() -> tuple[weakref.ref[QueuedRequest], trio.Event]:
        header = RequestHeader(api_key, version, 1, "test")
        request = QueuedRequest(header, memoryview(bytearray(body)), CONNECTION, reply_target=(mailbox := Mailbox()))
        pool.submit(request)
        return weakref.ref(request), mailbox.has_come

    submitted = [submit(), submit()]
    for _, has_come in submitted:
        await has_come.wait()
    await wait_all_tasks_blocked()
    return not any(request() for request, _ in submitted)


@each("request_,version", [SMALL, LARGE, LARGE_FIELD])
async def test_a_request_that_is_answered_is_freed(nursery, wire, request_, version):
    assert await is_freed(nursery, wire, request_.API_KEY, version, encode_bytes(request_, version))
    nursery.cancel_scope.cancel()


@each("api", served_apis().values())
async def test_a_request_of_many_elements_is_freed(nursery, wire, api):
    """Whichever of its arrays has them. Most are refused, in each API in its own way."""
    version = api.versions.high
    for path in array_paths(api.request, version):
        body = request_with(api.request, version, path, ELEMENTS)
        with trio.move_on_after(5):
            assert await is_freed(nursery, wire, api.api_key, version, body), path
    nursery.cancel_scope.cancel()


@each("request_,version", [SMALL, LARGE, LARGE_FIELD])
async def test_a_request_that_cannot_be_read_is_freed(nursery, wire, request_, version):
    assert await is_freed(nursery, wire, request_.API_KEY, version, encode_bytes(request_, version)[:-2])
    nursery.cancel_scope.cancel()


@each("waits", [False, True])
@each("error", REFUSALS)
@each("request_,version", [SMALL, LARGE])
async def test_a_request_that_its_handler_refuses_is_freed(nursery, wire, request_, version, error, waits):
    def refuse(message: Any, context: Any) -> Any:
        raise type(error)(*error.args, **({"code": error.code} if isinstance(error, KafkaError) else {}))

    async def refuse_later(message: Any, context: Any) -> Any:
        await trio.lowlevel.checkpoint()
        refuse(message, context)

    api = served_apis()[request_.API_KEY]
    handler = refuse_later if waits else refuse
    wire.dispatcher.apis = {**served_apis(), request_.API_KEY: attrs.evolve(api, handler=handler)}
    assert await is_freed(nursery, wire, request_.API_KEY, version, encode_bytes(request_, version))
    nursery.cancel_scope.cancel()
