"""The client of an etcd cluster: each call on whichever member answers, with a deadline.

A member that is cut off answers nothing, so a call that ends as unknown also ends its connection, and the next call
asks the next member. Nothing is repeated here but what etcd surely did not do: the caller knows what a repetition would
mean.

Calls and watches ask for a member that has a leader (``hasleader``): without, a watch on a member that is cut off is
silent for ever.

Source: etcd's api/etcdserverpb/rpc.proto, client/v3.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio

from trio_broker.cluster.etcd.errors import (
    EtcdError,
    EtcdNotAuthenticated,
    EtcdUnavailable,
    EtcdUnknown,
    MalformedMessage,
)
from trio_broker.cluster.etcd.grpc_connection import Call, GrpcConnection, reason_of
from trio_broker.cluster.etcd.messages import (
    AuthenticateRequest,
    AuthenticateResponse,
    Compare,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    RequestOp,
    StatusRequest,
    StatusResponse,
    TxnRequest,
    TxnResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from trio_broker.cluster.etcd.protobuf import decode, encode
from trio_broker.common.host_port import host_port
from trio_broker.concurrency.barrier import start_once
from trio_broker.runtime.network import Connect

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

CALL_SECONDS: Final = 1.0
"""The deadline of a call, and of making a connection. An etcd that is well answers in milliseconds; an fsync that takes
longer than this is repeated as unknown."""

HTTP_2: Final = "h2"
"""Its name in ALPN."""


class Watch(Protocol):
    """A watch that etcd has begun."""

    async def receive(self) -> WatchResponse:
        """Return the next events.

        Raises:
            EtcdError: it has ended, or was cancelled.
        """
        ...


class Etcd(Protocol):
    """The calls that the store makes. Each raises ``EtcdError``, after ``CALL_SECONDS`` at the latest."""

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse: ...

    async def lease_grant(self, ttl_seconds: int) -> LeaseGrantResponse: ...

    async def lease_keep_alive(self, lease_id: int) -> LeaseKeepAliveResponse: ...

    async def lease_revoke(self, lease_id: int) -> None: ...

    async def status(self) -> StatusResponse: ...

    def watch(self, key: bytes, range_end: bytes) -> contextlib.AbstractAsyncContextManager[Watch]: ...


@attrs.frozen
class EtcdAddresses:
    """Where etcd's members are, and how they are spoken to. ``user`` is empty where etcd has no users."""

    endpoints: Sequence[tuple[str, int]]
    user: str = ""
    password: str = attrs.field(default="", repr=False)
    ssl_context: ssl.SSLContext | None = None


class EtcdWatch:
    """See ``Watch``."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def receive(self) -> WatchResponse:
        message = await self._call.receive()
        if message is None:
            raise EtcdUnavailable("etcd ended the watch")
        response = decode_answer(WatchResponse, message)
        if response.canceled:
            raise EtcdUnavailable(response.cancel_reason or f"compacted up to {response.compact_revision}")
        return response


class EtcdClient:
    """See ``Etcd``. ``run`` has to run for as long as calls are made."""

    def __init__(self, addresses: EtcdAddresses, connect: Connect) -> None:
        self._addresses, self._connect = addresses, connect
        self._connection: GrpcConnection | None = None
        self._token = ""
        self._next_endpoint = 0
        self._connecting = trio.Lock()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the connection's tasks. Ends when it is cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    # --- The calls ---

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        return await self._call("KV/Txn", TxnRequest(compare=compare, success=success, failure=failure), TxnResponse)

    async def lease_grant(self, ttl_seconds: int) -> LeaseGrantResponse:
        return await self._call("Lease/LeaseGrant", LeaseGrantRequest(ttl=ttl_seconds), LeaseGrantResponse)

    async def lease_keep_alive(self, lease_id: int) -> LeaseKeepAliveResponse:
        # A stream in etcd's API; one request and one answer are one as well.
        return await self._call("Lease/LeaseKeepAlive", LeaseKeepAliveRequest(id=lease_id), LeaseKeepAliveResponse)

    async def lease_revoke(self, lease_id: int) -> None:
        await self._call("Lease/LeaseRevoke", LeaseRevokeRequest(id=lease_id), LeaseRevokeResponse)

    async def status(self) -> StatusResponse:
        return await self._call("Maintenance/Status", StatusRequest(), StatusResponse)

    @contextlib.asynccontextmanager
    async def watch(self, key: bytes, range_end: bytes) -> AsyncIterator[Watch]:
        connection = await self._connected()
        create = WatchCreateRequest(key=key, range_end=range_end)
        async with connection.call(path_of("Watch/Watch"), self._metadata()) as call:
            call.send(encode(WatchRequest(create_request=create)))
            watch = EtcdWatch(call)
            with self._deadline(connection):
                while not (await watch.receive()).created:
                    pass
            yield watch

    # --- How they are made ---

    async def _call(self, method: str, request: Any, answer_class: type[Answer]) -> Answer:
        connection = await self._connected()
        try:
            return await self._call_on(connection, method, request, answer_class)
        except EtcdNotAuthenticated:
            # Tokens expire while they are not used, and with etcd's restart.
            if not self._addresses.user:
                raise
            await self._authenticate(connection)
            return await self._call_on(connection, method, request, answer_class)

    async def _call_on(
        self, connection: GrpcConnection, method: str, request: Any, answer_class: type[Answer]
    ) -> Answer:
        with self._deadline(connection):
            async with connection.call(path_of(method), self._metadata()) as call:
                call.send(encode(request), end=True)
                message = await call.receive()
        if message is None:
            raise EtcdUnknown(f"{method} has no answer")
        return decode_answer(answer_class, message)

    @contextlib.contextmanager
    def _deadline(self, connection: GrpcConnection) -> Iterator[None]:
        """Bound a call; whatever is unknown afterwards is asked of another member."""
        try:
            with trio.fail_after(CALL_SECONDS):
                yield
        except trio.TooSlowError as error:
            self._leave(connection)
            raise EtcdUnknown(f"no answer within {CALL_SECONDS:g} s") from error
        except EtcdUnknown:
            self._leave(connection)
            raise

    def _leave(self, connection: GrpcConnection) -> None:
        """Close ``connection``; the next call asks the next member."""
        connection.close()
        if connection is self._connection:
            self._connection = None
            self._next_endpoint += 1

    def _metadata(self) -> list[tuple[str, str]]:
        token = [("token", self._token)] if self._token else []
        return [("hasleader", "true"), *token]

    async def _connected(self) -> GrpcConnection:
        """Return the connection, made to the first member that takes one.

        Raises:
            EtcdUnavailable: none does.
        """
        async with self._connecting:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            reasons = []
            endpoints = self._addresses.endpoints
            for _ in endpoints:
                host, port = endpoints[self._next_endpoint % len(endpoints)]
                try:
                    self._connection = await self._connection_to(host, port)
                except (OSError, trio.TooSlowError, EtcdError) as error:
                    reasons.append(f"{host_port(host, port)}: {error or 'no answer'}")
                    self._next_endpoint += 1
                else:
                    return self._connection
            raise EtcdUnavailable(f"no member of etcd can be used: {'; '.join(reasons)}")

    async def _connection_to(self, host: str, port: int) -> GrpcConnection:
        assert self._nursery is not None, "run() has to run"
        with trio.fail_after(CALL_SECONDS):
            stream = await self._connect(host, port)
            if (ssl_context := self._addresses.ssl_context) is not None:
                stream = await negotiated(stream, ssl_context, host)
        scheme = "http" if ssl_context is None else "https"
        connection = GrpcConnection(stream, host_port(host, port), scheme=scheme)
        start_once(self._nursery, "a connection to etcd", connection.run)
        if self._addresses.user:
            try:
                await self._authenticate(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    async def _authenticate(self, connection: GrpcConnection) -> None:
        self._token = ""
        request = AuthenticateRequest(name=self._addresses.user, password=self._addresses.password)
        answer = await self._call_on(connection, "Auth/Authenticate", request, AuthenticateResponse)
        self._token = answer.token


async def negotiated(stream: trio.abc.Stream, ssl_context: ssl.SSLContext, host: str) -> trio.abc.Stream:
    """Return a TLS stream on ``stream`` that speaks HTTP/2.

    Raises:
        OSError: the peer does not, or it is not trusted, or does not trust us.
    """
    ssl_context.set_alpn_protocols([HTTP_2])
    secured = trio.SSLStream(stream, ssl_context, server_hostname=host, https_compatible=True)
    try:
        await secured.do_handshake()
        if secured.selected_alpn_protocol() != HTTP_2:
            raise OSError("it does not speak HTTP/2 over TLS")
    except BaseException as error:
        await trio.aclose_forcefully(stream)
        if isinstance(error, trio.BrokenResourceError):
            raise OSError(reason_of(error)) from error
        raise
    return secured


def path_of(method: str) -> str:
    return f"/etcdserverpb.{method}"


def decode_answer(answer_class: type[Answer], message: bytes) -> Answer:
    try:
        return decode(answer_class, message)
    except MalformedMessage as error:
        raise EtcdUnknown(f"the answer is no {answer_class.__name__}: {error}") from error
