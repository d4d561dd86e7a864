"""The settings lead to the store: members, login, certificates."""

from __future__ import annotations

import pytest
import trio
import trustme

from tests.etcd_server import etcd_server, ready
from tests.security.tls_files import write_key_store
from trio_broker.cluster.etcd.opening import etcd_metadata_store
from trio_broker.cluster.etcd.status import etcd_status
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.real import real_runtime


async def test_a_store_over_tls_is_opened_by_its_settings(tmp_path):
    authority = trustme.CA()
    server_certificate, broker_certificate = authority.issue_cert("127.0.0.1"), authority.issue_cert("broker-1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server_certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    write_key_store(tmp_path / "broker.pem", broker_certificate)
    server_file, authority_file = str(tmp_path / "server.pem"), str(tmp_path / "ca.pem")
    files = ("--cert-file", server_file, "--key-file", server_file)
    mutual = ("--client-cert-auth", "--trusted-ca-file", authority_file)
    async with etcd_server(tmp_path, *files, *mutual, scheme="https") as server:
        settings = {
            "metadata.store": f"etcds://127.0.0.1:{server.port}/a",
            "metadata.store.ca.file": authority_file,
            "metadata.store.certificate.file": str(tmp_path / "broker.pem"),
        }
        client, store = etcd_metadata_store(BrokerConfig(settings).metadata_store, "c1", real_runtime())
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            await ready(client)
            await store.join()
            nursery.start_soon(store.run)
            claim = await store.claim(1)
            assert await store.end_offset() == claim.end_offset
            nursery.cancel_scope.cancel()
        for without, reason in (
            ("metadata.store.certificate.file", "metadata.store.certificate.file, or that there is none"),
            ("metadata.store.ca.file", "nobody in metadata.store.ca.file has signed its certificate"),
        ):
            config = BrokerConfig({key: value for key, value in settings.items() if key != without})
            with pytest.raises(OSError, match=reason):
                await etcd_status(config.metadata_store, real_runtime())


@pytest.mark.parametrize("key", ["metadata.store.ca.file", "metadata.store.certificate.file"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named_with_its_setting(tmp_path, key, content):
    path = tmp_path / "file.pem"
    if content is not None:
        path.touch(0o600)
        path.write_text(content)
    config = BrokerConfig({"metadata.store": "etcds://one:2379", key: str(path)})
    with pytest.raises(OSError, match=f"{key}: {path}"):
        etcd_metadata_store(config.metadata_store, "c1", real_runtime())
