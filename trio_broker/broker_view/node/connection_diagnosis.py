"""How clients come back to a running broker, for the admin app.

A client connects once to the address it was given by its user, and from then on only to those in the answer to
Metadata. So the broker goes that way itself: it resolves each advertised name, connects, and asks who is there. From
another machine the way may be another one; what the broker finds is evidence, not proof.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Sequence

import trio

from broker_admin.views.node.connection_diagnosis import ListenerFacts, ProbeResult
from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode
from kafka_wire.errors import WireError
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from kafka_wire.primitives import Chunk
from trio_broker.config.listeners import UNROUTABLE_HOSTS, Endpoint
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.socket_server import SocketServer
from trio_broker.network.statistics import FailedHandshake

PROBE_SECONDS = 2.0
"""For resolving one name and for connecting to one address each: a client on the same network waits milliseconds."""

MAX_RESOLVED_ADDRESSES = 8
"""Addresses of one name that are shown."""

MAX_REMOTE_PEERS = 5
"""Machines that are named; the others are counted."""

MAX_ANSWER_BYTES = 64 * 1024
"""Of the answer to a Metadata without topics, which takes some hundred; what is not a broker may announce anything."""

PROBE_CLIENT_ID = "trio-broker-connection-diagnosis"
METADATA_VERSION = 4


class LiveConnectionDiagnosisView:
    """The part of the admin app's view that finds out why clients cannot connect."""

    def __init__(self, services: BrokerServices, server: SocketServer) -> None:
        self.services = services
        self.listening_server = server
        # One at a time: each opens connections and asks for names, which a page could otherwise do without end.
        self._probe_lock = trio.Lock()

    async def listener_facts(self) -> Sequence[ListenerFacts]:
        node, bound = self.services.node, self.listening_server.bound_addresses
        facts: dict[str, ListenerFacts] = {}
        async with self._probe_lock, trio.open_nursery() as nursery:
            for name, endpoint in node.advertised.items():
                nursery.start_soon(self._examine, name, endpoint, bound[name], facts)
        return [facts[name] for name in node.advertised]

    async def _examine(
        self, name: str, endpoint: Endpoint, bound: tuple[str, int], facts: dict[str, ListenerFacts]
    ) -> None:
        bound_host, bound_port = bound
        dialled_host = "127.0.0.1" if bound_host in UNROUTABLE_HOSTS else bound_host
        addresses = await resolve(endpoint.host or dialled_host, endpoint.port)
        probe = ProbeResult.UNRESOLVED
        if addresses:
            probe = await self._probe(addresses[0], endpoint)
        peers = sorted(
            {each.info.peer_host for each in self.listening_server.connections() if each.info.listener_name == name}
        )
        remote = [peer for peer in peers if not is_loopback(peer)]
        facts[name] = ListenerFacts(
            listener_name=name,
            bound_host=bound_host,
            bound_port=bound_port,
            advertised_host=endpoint.host,
            advertised_port=endpoint.port,
            resolved_addresses=tuple(addresses[:MAX_RESOLVED_ADDRESSES]),
            probe=probe,
            remote_peers=tuple(remote[:MAX_REMOTE_PEERS]),
            remote_peer_count=len(remote),
        )

    async def _probe(self, address: str, endpoint: Endpoint) -> ProbeResult:
        with trio.move_on_after(PROBE_SECONDS):
            try:
                response = await ask_for_metadata(address, endpoint.port)
            except ConnectionRefusedError:
                return ProbeResult.REFUSED
            except (WireError, EOFError, struct.error):
                return ProbeResult.NOT_KAFKA
            except OSError:
                return ProbeResult.UNREACHABLE
            node = self.services.node
            # No answer says who gives it. But a broker of this cluster advertises the address too, if it is its own.
            is_same = response.cluster_id == node.cluster_id and all(
                each.node_id == node.node_id or (each.host, each.port) != (endpoint.host, endpoint.port)
                for each in response.brokers
            )
            return ProbeResult.THIS_BROKER if is_same else ProbeResult.ANOTHER_BROKER
        return ProbeResult.UNREACHABLE

    def failed_handshakes(self) -> Sequence[FailedHandshake]:
        return self.listening_server.failed_handshakes.latest_first()


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of ``host``; none if it has none or nobody says so in time."""
    with trio.move_on_after(PROBE_SECONDS):
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return list(dict.fromkeys(str(address[0]) for *_, address in found))
    return []


def is_loopback(host: str) -> bool:
    """Whether a peer's address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def ask_for_metadata(host: str, port: int) -> MetadataResponse:
    """What the broker at ``host``, an IP address, says of itself.

    Raises:
        OSError: nothing answers there.
        WireError, EOFError, struct.error: what answers is no broker.
    """
    sock = trio.socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # Not ``open_tcp_stream``, whose error hides whether the connection was refused.
    with sock:
        await sock.connect((host, port))
        stream = trio.SocketStream(sock)
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        header = request_header(RequestHeader(ApiKey.METADATA, METADATA_VERSION, 1, PROBE_CLIENT_ID))
        frame = header + joined(encode(request, METADATA_VERSION))
        try:
            await stream.send_all(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", await receive_exactly(stream, 4))
            if not 0 < size <= MAX_ANSWER_BYTES:
                raise EOFError(f"an answer of {size} bytes")
            answer = await receive_exactly(stream, size)
        except trio.BrokenResourceError:
            raise EOFError("the connection was reset") from None
    _, position = read_response_header(ApiKey.METADATA, METADATA_VERSION, answer)
    response, _ = decode(MetadataResponse, METADATA_VERSION, answer, position)
    return response


def joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview))


async def receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        if not (more := await stream.receive_some(count - len(data))):
            raise EOFError("the connection ended")
        data += more
    return bytes(data)
