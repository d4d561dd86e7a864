"""The client speaks to a real etcd: what its messages mean there, which limits it meets, users and TLS."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trio
import trustme

from tests.etcd_server import etcd_client, etcd_server
from tests.oracles import absent
from tests.waits import fail_after
from trio_broker.cluster.etcd.client import EtcdAddresses, EtcdClient
from trio_broker.cluster.etcd.errors import EtcdLeaseGone, EtcdOutOfSpace, EtcdRefused, EtcdUnavailable, EtcdUnknown
from trio_broker.cluster.etcd.messages import (
    Event,
    RangeRequest,
    RangeResponse,
    RequestOp,
    created_at,
    delete,
    get,
    has_value,
    modified_at,
    put,
)

LIMIT_BYTES = 1024 * 1024
WAIT_SECONDS = 10.0


@pytest.fixture
async def server(tmp_path: Path):
    async with etcd_server(tmp_path) as server:
        yield server


@pytest.fixture
async def client(server):
    async with etcd_client(server.addresses) as client:
        yield client


async def test_a_txn_compares_the_birth_and_the_last_change_of_keys(client):
    born = await client.txn([created_at(b"/a", 0)], [put(b"/a", b"1")], [get(b"/a")])
    assert born.succeeded
    again = await client.txn([created_at(b"/a", 0)], [put(b"/a", b"2")], [get(b"/a")])
    assert not again.succeeded
    [kv] = again.responses[0].range.kvs
    assert (kv.value, kv.create_revision, kv.version) == (b"1", born.header.revision, 1)
    changed = await client.txn([created_at(b"/a", kv.create_revision), has_value(b"/a", b"1")], [put(b"/a", b"")])
    assert changed.succeeded
    assert not (await client.txn([modified_at(b"/a", kv.mod_revision)], [put(b"/a", b"3")])).succeeded
    assert (await client.txn([modified_at(b"/a", changed.header.revision)], [delete(b"/a")])).succeeded


async def test_a_range_is_read_in_pages(client):
    await client.txn([], [put(b"/p/%03d" % number, bytes([number])) for number in range(120)])
    page = await read(client, RangeRequest(key=b"/p/", range_end=b"/p0", limit=50))
    assert page.more
    assert [kv.key for kv in page.kvs] == [b"/p/%03d" % number for number in range(50)]
    rest = await read(client, RangeRequest(key=page.kvs[-1].key + b"\0", range_end=b"/p0"))
    assert not rest.more
    assert len(rest.kvs) == 70


async def test_sixteen_large_values_at_once_pass_the_flow_control(client):
    async with trio.open_nursery() as nursery:
        for number in range(16):
            nursery.start_soon(client.txn, [], [put(b"/v/%d" % number, bytes([number]) * 100_000)])
    values = await read(client, RangeRequest(key=b"/v/", range_end=b"/v0"))
    assert sum(len(kv.value) for kv in values.kvs) == 1_600_000


async def test_a_request_that_is_too_large_is_refused_and_the_connection_goes_on(client):
    for size in (1_600_000, 8_000_000):
        with pytest.raises((EtcdRefused, EtcdUnavailable)) as refusal:
            await client.txn([], [put(b"/large", bytes(size))])
        assert "larg" in str(refusal.value)
    await client.txn([], [put(b"/large", bytes(LIMIT_BYTES))])


async def test_more_operations_than_etcd_takes_and_a_key_twice_are_refused(client):
    with pytest.raises(EtcdRefused, match="too many operations"):
        await client.txn([], [put(b"/%d" % number, b"") for number in range(129)])
    with pytest.raises(EtcdRefused, match="duplicate key"):
        await client.txn([], [put(b"/a", b""), put(b"/a", b"")])


async def test_a_lease_takes_its_key_with_it(client):
    lease = await client.lease_grant(1)
    await client.txn([], [put(b"/leased", b"", lease=lease.id)])
    assert (await client.lease_keep_alive(lease.id)).ttl == lease.ttl
    await client.lease_revoke(lease.id)
    assert not (await read(client, RangeRequest(key=b"/leased"))).kvs
    assert (await client.lease_keep_alive(lease.id)).ttl == 0
    with pytest.raises(EtcdLeaseGone):
        await client.txn([], [put(b"/leased", b"", lease=lease.id)])
    with pytest.raises(EtcdLeaseGone):
        await client.lease_revoke(lease.id)


async def test_a_watch_reports_changes_in_order(client):
    async with client.watch(b"/w/", b"/w0") as watch:
        await client.txn([], [put(b"/w/1", b"one")])
        await client.txn([], [put(b"/w/2", b"two"), put(b"/other", b"")])
        events: list[Event] = []
        with fail_after(WAIT_SECONDS):
            while len(events) < 2:
                events += (await watch.receive()).events
            await client.txn([], [delete(b"/w/1")])
            events += (await watch.receive()).events
    assert [(event.type, event.kv and event.kv.key) for event in events] == [(0, b"/w/1"), (0, b"/w/2"), (1, b"/w/1")]


async def test_what_was_compacted_is_refused(client, server):
    revision = (await client.txn([], [put(b"/c", b"1")])).header.revision
    last = (await client.txn([], [put(b"/c", b"2")])).header.revision
    etcdctl(server.port, "compact", str(last))
    with pytest.raises(EtcdRefused, match="compacted"):
        await read(client, RangeRequest(key=b"/c", revision=revision))


async def test_a_full_etcd_refuses_puts_and_leases_and_renews_old_ones(tmp_path):
    quota = ("--quota-backend-bytes", str(4 * LIMIT_BYTES))
    async with etcd_server(tmp_path, *quota) as server, etcd_client(server.addresses) as client:
        lease = await client.lease_grant(1)
        with pytest.raises(EtcdOutOfSpace):
            await fill(client)
        with pytest.raises(EtcdOutOfSpace):
            await client.lease_grant(1)
        with pytest.raises(EtcdOutOfSpace):
            await client.txn([created_at(b"/a", -1)], [put(b"/a", b"")], [get(b"/a")])
        assert (await client.lease_keep_alive(lease.id)).ttl == lease.ttl
        await client.txn([], [delete(b"/full")])
        assert any("NOSPACE" in alarm for alarm in (await client.status()).errors)


async def fill(client):
    for _ in range(20):
        await client.txn([], [put(b"/full", bytes(LIMIT_BYTES))])


async def test_a_stopped_etcd_is_unknown_and_then_unavailable_until_it_is_back(client, server):
    server.kill()
    with pytest.raises((EtcdUnknown, EtcdUnavailable)):
        await client.status()
    with pytest.raises(EtcdUnavailable, match=f"127.0.0.1:{server.port}"):
        await client.status()
    server.start()
    with fail_after(WAIT_SECONDS):
        while True:
            try:
                assert (await client.status()).db_size > 0
                return
            except (EtcdUnknown, EtcdUnavailable):
                await trio.sleep(0.05)


async def test_the_next_member_is_asked_where_one_takes_no_connection_or_does_not_answer(server):
    [silent] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    endpoints = [("127.0.0.1", 1), silent.socket.getsockname()[:2], ("127.0.0.1", server.port)]
    async with etcd_client(EtcdAddresses(endpoints)) as client:
        assert (await client.status()).db_size > 0
    await silent.aclose()


async def test_a_user_is_authenticated_and_again_when_the_token_has_expired(client, server):
    for command in (
        ("user", "add", "root:r"),
        ("user", "add", "broker:b"),
        ("role", "add", "log"),
        ("role", "grant-permission", "log", "readwrite", "--prefix=true", "/t/"),
        ("user", "grant-role", "broker", "log"),
        ("user", "grant-role", "root", "root"),
        ("auth", "enable"),
    ):
        etcdctl(server.port, *command)
    with pytest.raises(EtcdRefused, match="user name is empty"):
        await read(client, RangeRequest(key=b"/t/1"))
    endpoints = server.addresses.endpoints
    async with trio.open_nursery() as nursery:
        user = type(client)(EtcdAddresses(endpoints, user="broker", password="b"), trio.open_tcp_stream)
        await nursery.start(user.run)
        await user.txn([created_at(b"/t/1", 0)], [put(b"/t/1", b"")])
        with pytest.raises(EtcdRefused, match="permission denied"):
            await user.txn([], [put(b"/other", b"")])
        assert (await user.status()).db_size > 0
        user._token = "expired.1"
        assert (await read(user, RangeRequest(key=b"/t/1"))).kvs
        untrusted = type(client)(EtcdAddresses(endpoints, user="broker", password="wrong"), trio.open_tcp_stream)
        await nursery.start(untrusted.run)
        with pytest.raises(EtcdUnavailable, match="authentication failed"):
            await untrusted.status()
        nursery.cancel_scope.cancel()


async def test_tls_with_certificates_that_are_trusted_and_without_on_either_side(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    known, unknown = ssl.create_default_context(), ssl.create_default_context()
    for each in (known, unknown):
        authority.configure_trust(each)
    certificate.configure_cert(known)
    files = (
        *("--cert-file", str(tmp_path / "cert.pem"), "--key-file", str(tmp_path / "key.pem")),
        *("--client-cert-auth", "--trusted-ca-file", str(tmp_path / "ca.pem")),
    )
    async with etcd_server(tmp_path, *files, scheme="https") as server:
        endpoints = [("127.0.0.1", server.port)]
        async with etcd_client(EtcdAddresses(endpoints, ssl_context=known)) as client:
            await client.txn([], [put(b"/secure", b"")])
        async with trio.open_nursery() as nursery:
            for refused, reason in (
                (ssl.create_default_context(), "nobody in metadata.store.ca.file has signed"),
                (unknown, "or that there is none"),
            ):
                client = EtcdClient(EtcdAddresses(endpoints, ssl_context=refused), trio.open_tcp_stream)
                await nursery.start(client.run)
                with pytest.raises((EtcdUnknown, EtcdUnavailable), match=reason):
                    await client.status()
            nursery.cancel_scope.cancel()


async def read(client, request: RangeRequest) -> RangeResponse:
    [response] = (await client.txn([], [RequestOp(range=request)])).responses
    found: RangeResponse = response.range
    return found


def etcdctl(port: int, *arguments: str) -> None:
    program = shutil.which("etcdctl")
    if program is None:
        absent("etcd", "there is no etcdctl")
    subprocess.run(
        [program, f"--endpoints=127.0.0.1:{port}", *arguments],
        env={"ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
    )
