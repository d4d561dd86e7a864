"""Requests over TLS: as over plain bytes, and what is different about them."""

from __future__ import annotations

import gc
import logging
import os
import socket
import ssl
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
import trustme

from tests.network.conftest import Client, Harness
from trio_broker.network.connection import HANDSHAKE_SECONDS, Reassign
from trio_broker.network.processor import Processor
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.tls_channel import LOOP_BYTES, MAX_HANDSHAKE_BYTES, SEAL_BYTES, TlsChannel
from trio_broker.runtime.disk import OpenMode
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", common_name="broker")


@attrs.define
class Keys:
    """The keys of a listener, as a SslFactory has them."""

    context: ssl.SSLContext = attrs.field(factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def __attrs_post_init__(self) -> None:
        CERTIFICATE.configure_cert(self.context)
        self.context.num_tickets = 0
        self.context.options |= ssl.OP_NO_RENEGOTIATION

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        return ANONYMOUS if certificate is None else KafkaPrincipal("User", "shown")


def trusting(**options: Any) -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    for name, value in options.items():
        setattr(context, name, value)
    return context


def shake_hands(port: int, context: ssl.SSLContext) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock, server_hostname="localhost"):
        pass


async def connect(harness: Harness, context: ssl.SSLContext | None = None) -> Client:
    """Return a client whose handshake is done."""
    client = await harness.connect()
    client.stream = trio.SSLStream(client.stream, context or trusting(), server_hostname="localhost")
    await client.stream.do_handshake()
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_small_and_large_requests_are_answered(serving, version):
    async with serving(tls=Keys()) as harness:
        client = await connect(harness, trusting(maximum_version=version))
        assert await client.ask(7, b"hello") == b"hello"
        body = os.urandom(3 * SEAL_BYTES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, 8, body)
            assert await client.receive() == (8, body)
        assert await client.ask(9, bytes(20_000)) == bytes(20_000)


async def test_requests_of_one_packet_are_all_answered(serving, frame_of):
    """One read of the socket has all of them; the selector reports it once."""
    async with serving(tls=Keys()) as harness:
        client = await connect(harness)
        await client.stream.send_all(b"".join(frame_of(number, b"x") for number in range(300)))
        for number in range(300):
            assert await client.receive() == (number, b"x")


def test_what_comes_between_two_reads_is_not_taken_for_read():
    """The selector reports it once, before the second read, which is to say whether there may be more."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        channel = TlsChannel(ours, Keys())
        client = trusting().wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
        is_client_done = False
        while not is_client_done or channel.needs_handshake:
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
                is_client_done = True
            if channel.needs_handshake:
                channel.handshake()
        buffer = memoryview(bytearray(1000))
        client.sendall(bytes(300))
        assert channel.receive_into(buffer[:100]) == 100
        assert channel.has_pending
        client.sendall(bytes(50))
        assert channel.receive_into(buffer) == 250
        assert not channel.has_pending
        client.close()


async def test_files_are_sealed_in_the_thread_and_arrive_whole(serving, tmp_path: Path):
    content = os.urandom(2_500_000)
    (tmp_path / "log").write_bytes(content)
    file = RealDisk().open(tmp_path / "log", OpenMode.READ)

    async def handle(request: QueuedRequest) -> Answer:
        return [request.header.correlation_id.to_bytes(4, "big"), b"head", file.region(1000, 2_000_000), b"tail"]

    async with serving(handle, tls=Keys()) as harness:
        client = await connect(harness)
        for number in range(3):
            await client.send(number)
            # Read late, so that the socket is full in the middle of sealed bytes.
            await trio.sleep(0.02)
            assert await client.receive() == (number, b"head" + content[1000:2_001_000] + b"tail")


async def test_a_connection_moves_with_its_sealed_bytes_and_in_the_middle_of_a_handshake(serving, frame_of):
    async with serving(tls=Keys(), num_network_threads=1) as harness:
        busy = await connect(harness)
        joining = await harness.connect()
        for count in (4, 2, 1, 3, 1):
            harness.server.resize_network_threads(count)
            await busy.stream.send_all(frame_of(1, b"a") + frame_of(2, bytes(LOOP_BYTES)))
            assert await busy.receive() == (1, b"a")
            harness.server.resize_network_threads(2)
            assert await busy.receive() == (2, bytes(LOOP_BYTES))
        joining.stream = trio.SSLStream(joining.stream, trusting(), server_hostname="localhost")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(joining.stream.do_handshake)
            for count in (1, 3, 2, 4, 1):
                harness.server.resize_network_threads(count)
                await trio.lowlevel.checkpoint()
        assert await joining.ask(3, b"joined") == b"joined"


async def test_a_connection_that_moves_at_the_end_of_its_handshake_takes_along_what_came_with_that(
    serving, frame_of, monkeypatch
):
    """The thread has read it with the end of the handshake, so no selector will report it."""
    async with serving(tls=Keys(), num_network_threads=2) as harness:
        client = await harness.connect()
        real_handshake = TlsChannel.handshake

        def move() -> None:
            [connection] = harness.server.connections()
            connection.give_command(Reassign(1 - cast(Processor, connection.owner).processor_id))

        def handshake(channel: TlsChannel) -> bool:
            if is_done := real_handshake(channel):
                trio.from_thread.run_sync(move)
            return is_done

        monkeypatch.setattr(TlsChannel, "handshake", handshake)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        is_done = False
        while not is_done:
            try:
                tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                await client.stream.send_all(outgoing.read())
                incoming.write(await client.stream.receive_some())
        tls.write(frame_of(7, b"at once"))
        await client.stream.send_all(outgoing.read())
        incoming.write(await client.stream.receive_some())
        assert tls.read().endswith(b"at once")


async def test_a_client_that_shows_a_certificate_is_named_by_it(serving):
    principals = []

    async def handle(request: QueuedRequest) -> Answer:
        principals.append(request.principal)
        return [request.header.correlation_id.to_bytes(4, "big")]

    keys = Keys()
    keys.context.verify_mode = ssl.CERT_OPTIONAL
    CA.configure_trust(keys.context)
    async with serving(handle, tls=keys) as harness:
        await (await connect(harness)).ask(1)
        context = trusting()
        CA.issue_cert("client").configure_cert(context)
        await (await connect(harness, context)).ask(1)
    assert principals == [ANONYMOUS, KafkaPrincipal("User", "shown")]


async def test_bytes_that_are_no_tls_end_with_one_line(serving, frame_of, caplog):
    async with serving(tls=Keys()) as harness:
        plain, http = await harness.connect(), await harness.connect()
        await plain.stream.send_all(frame_of(1, b"x"))
        assert await plain.is_closed()
        await http.stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert (await http.exactly(30)).startswith(b"HTTP/1.1 400 Bad Request")
        await harness.until(lambda: len(harness.server.failed_handshakes.latest_first()) == 2)
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert "not TLS: the client speaks without it" in lines[0]
    assert "not Kafka's protocol: an HTTP request" in lines[1]


async def test_a_client_that_does_not_trust_the_certificate_is_named_with_the_reason(serving, caplog):
    async with serving(tls=Keys()) as harness:
        # Trio's own stream does not send the alert.
        with pytest.raises(ssl.SSLCertVerificationError):
            await trio.to_thread.run_sync(shake_hands, harness.port, ssl.create_default_context())
        await harness.until(lambda: harness.server.failed_handshakes.latest_first())
        [failed] = harness.server.failed_handshakes.latest_first()
    assert "does not trust this broker's certificate" in failed.reason
    assert failed.cause == "TLS handshake failed"


async def test_a_client_without_a_certificate_gets_the_alert(serving):
    keys = Keys()
    keys.context.verify_mode = ssl.CERT_REQUIRED
    CA.configure_trust(keys.context)
    async with serving(tls=keys) as harness:
        client = await connect(harness)  # under TLS 1.3 the client is done before the server looks
        with pytest.raises(trio.BrokenResourceError) as raised:
            await client.ask(1)
        assert "CERTIFICATE_REQUIRED" in str(raised.value.__cause__).upper().replace(" ", "_")
        await client.stream.transport_stream.aclose()
        await harness.until(harness.server.failed_handshakes.latest_first)
        [failed] = harness.server.failed_handshakes.latest_first()
    assert "ssl.client.auth is required here" in failed.reason


async def test_half_a_handshake_ends_at_the_deadline(serving):
    async with serving(tls=Keys()) as harness:
        silent, begun = await harness.connect(), await harness.connect()
        await begun.stream.send_all(bytes.fromhex("16030100ff01"))
        await harness.until(lambda: len(list(harness.server.connections())) == 2)
        harness.clock.advance(HANDSHAKE_SECONDS + 0.1)
        assert await silent.is_closed()
        assert await begun.is_closed()


async def test_the_oldest_unfinished_handshake_gives_way(serving, monkeypatch):
    monkeypatch.setattr("trio_broker.network.processor.MAX_HANDSHAKES", 2)
    async with serving(tls=Keys()) as harness:
        begun = []
        for _ in range(2):
            begun.append(await harness.connect())
            await begun[-1].stream.send_all(bytes.fromhex("16030100ff01"))
            await harness.until(lambda: len(harness.server._context.handshakes) == len(begun))
        assert await (await connect(harness)).ask(1, b"served") == b"served"
        assert await begun[0].is_closed()


async def test_a_handshake_without_an_end_is_cut_off(serving):
    """OpenSSL would take a first message of 130 KB."""
    async with serving(tls=Keys()) as harness:
        client = await harness.connect()
        message = bytes.fromhex("0101ffff") + bytes(MAX_HANDSHAKE_BYTES)
        for begin in range(0, len(message), 16_000):
            part = message[begin : begin + 16_000]
            await client.stream.send_all(bytes.fromhex("160301") + len(part).to_bytes(2, "big") + part)
        await harness.until(harness.server.failed_handshakes.latest_first)
        [failed] = harness.server.failed_handshakes.latest_first()
    assert failed.reason == "its TLS handshake takes more than 65536 bytes"


async def test_broken_records_end_the_connection(serving, caplog):
    async with serving(tls=Keys()) as harness:
        client = await connect(harness)
        await client.ask(1)
        raw = client.stream.transport_stream
        await raw.send_all(bytes.fromhex("1703034001") + bytes(0x4001))
        client.stream = raw
        while await raw.receive_some(1000):
            pass
    assert "its TLS records are broken" in caplog.text


async def test_a_client_that_has_gone_while_its_request_waits_is_noticed_over_its_goodbye(serving):
    waiting = trio.Event()

    async def handle(request: QueuedRequest) -> Answer:
        waiting.set()
        await trio.sleep_forever()

    async with serving(handle, tls=Keys()) as harness:
        client = await connect(harness)
        await client.send(1)
        await waiting.wait()
        [connection] = harness.server.connections()
        assert not connection.channel.peer_is_gone()
        await client.stream.aclose()
        await harness.until(connection.channel.peer_is_gone)


async def test_a_proper_close_ends_the_connection_and_nothing_else(serving):
    async with serving(tls=Keys()) as harness:
        leaving, staying = await connect(harness), await connect(harness)
        await leaving.ask(1)
        await leaving.stream.aclose()
        assert await staying.ask(2, b"served") == b"served"
        await harness.until(lambda: len(list(harness.server.connections())) == 1)


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def leaves_in_order(harness: Harness) -> None:
    client = await connect(harness)
    await client.ask(1)
    await client.stream.aclose()


async def is_reset(harness: Harness) -> None:
    client = await connect(harness)
    await client.ask(1)
    client.stream = client.stream.transport_stream
    client.reset()


async def leaves_in_its_handshake(harness: Harness) -> None:
    client = await harness.connect()
    await client.stream.send_all(bytes.fromhex("16030100ff01"))
    await client.stream.aclose()


async def breaks_its_handshake(harness: Harness) -> None:
    client = await harness.connect()
    await client.stream.send_all(bytes.fromhex("160301000400000000"))
    assert await client.stream.receive_some(1000)
    await client.stream.aclose()


async def breaks_its_records(harness: Harness) -> None:
    client = await connect(harness)
    client.stream = client.stream.transport_stream
    await client.stream.send_all(bytes.fromhex("1703034001") + bytes(0x4001))


@pytest.mark.parametrize(
    "end", [leaves_in_order, is_reset, leaves_in_its_handshake, breaks_its_handshake, breaks_its_records]
)
@pytest.mark.usefixtures("without_collector")
async def test_a_closed_connection_leaves_nothing_to_the_collector(
    serving, monkeypatch, end: Callable[[Harness], Awaitable[None]]
):
    """A cycle may stay for an hour, and this one has OpenSSL's buffers: clients that come and go would fill memory."""
    made: list[weakref.ref[TlsChannel]] = []

    def new_channel(sock: socket.socket, keys: Keys) -> TlsChannel:
        channel = TlsChannel(sock, keys)
        made.append(weakref.ref(channel))
        return channel

    monkeypatch.setattr("trio_broker.network.socket_server.TlsChannel", new_channel)
    async with serving(tls=Keys(), num_network_threads=1) as harness:
        await end(harness)
        await harness.until(lambda: harness.server.quotas.total == 0)
        # A Processor refers to the connection that came last.
        await connect(harness)
        assert made[0]() is None
