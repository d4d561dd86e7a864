"""Asking a handler as a client would: the request through the codec, the handler, the response through the codec.

What a version does not carry is lost on the way, so a test sees exactly what a client of that version sees.
"""

from __future__ import annotations

from pathlib import PurePath
from types import CoroutineType, GeneratorType, SimpleNamespace
from typing import Any

import attrs

from kafka_wire.codec import decode, encode
from kafka_wire.headers import RequestHeader
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import run_steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.real import real_runtime

CONNECTION = ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 50_000, "127.0.0.1", 9092)


@attrs.define
class CountingProducerIds:
    """Hands out 1000, 1001, …"""

    following: int = 1000

    async def next(self) -> int:
        self.following += 1
        return self.following - 1


def joined(chunks: list[Any]) -> bytes:
    """The bytes of an answer, regions of files read in."""
    return b"".join(chunk.read() if hasattr(chunk, "read") else bytes(chunk) for chunk in chunks)


async def response_of(handler: Any, request: Any, context: Context) -> Any:
    """What a handler answers, whichever way it does."""
    response = handler(request, context)
    if isinstance(response, GeneratorType):
        return await run_steps(response)
    return await response if isinstance(response, CoroutineType) else response


@attrs.define
class Client:
    """A client with a connection of its own to the handlers over ``replicas``. ``waits`` are those for which it
    gave its slot back."""

    replicas: ReplicaManager
    client_id: str = "test"
    waits: list[RequestPhase] = attrs.Factory(list)
    producer_ids: Any = attrs.Factory(CountingProducerIds)
    image: MetadataImage = attrs.Factory(MetadataImage)
    """What the broker knows of the cluster."""
    _latest: QueuedRequest | None = None

    @property
    def delayed(self) -> int:
        return len(self.waits)

    def context(self, version: int) -> Context:
        def release_slot() -> None:
            assert request.waits is not None
            self.waits.append(request.waits.phase)

        header = RequestHeader(api_key=0, api_version=version, correlation_id=7, client_id=self.client_id)
        self._latest = request = QueuedRequest(header, memoryview(b""), CONNECTION, release_slot=release_slot)
        # The handlers that are asked here need no others.
        absent: Any = None
        # On another disk than every partition's.
        metadata_log: Any = SimpleNamespace(log=SimpleNamespace(directory=PurePath("elsewhere/0"), failure=None))
        services = BrokerServices(
            node=absent,
            config=self.replicas.config,
            runtime=real_runtime(self.replicas.clock),
            controller=absent,
            metadata_cache=MetadataCache(self.image),
            changes=absent,
            metadata_log=metadata_log,
            replicas=self.replicas,
            log_dir_failures=absent,
            producer_ids=self.producer_ids,
            groups=absent,
            markers=absent,
            transactions=absent,
            transaction_verification=absent,
            trials=absent,
        )
        return Context(request, services)

    def send_more(self) -> None:
        """Have something come behind the latest request, on the same connection."""
        if self._latest is not None:
            self._latest.followed()

    async def ask(self, handler: Any, request: Any, version: int) -> Any:
        """The response as a client of ``version`` reads it, None for silence."""
        wire = memoryview(bytearray(joined(encode(request, version))))
        decoded, _ = decode(type(request), version, wire)
        response = await response_of(handler, decoded, self.context(version))
        if response is None:
            return None
        if not isinstance(response, bytes):
            response = joined(response if isinstance(response, list) else encode(response, version))
        read, end = decode(type(request).RESPONSE, version, response)
        assert end == len(response)
        return read
