"""From the settings to a metadata store in etcd."""

from __future__ import annotations

import logging
import ssl
from functools import partial

import trio

from trio_broker.cluster.etcd.client import EtcdAddresses, EtcdClient
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import EtcdLayout
from trio_broker.cluster.etcd.transactions import RETRY_SECONDS
from trio_broker.cluster.etcd.view import keep_view
from trio_broker.cluster.shared_metadata import SharedMetadata
from trio_broker.concurrency.barrier import start_background
from trio_broker.config.metadata_store_config import MetadataStoreConfig, etcd_location
from trio_broker.runtime.runtime import Runtime

log = logging.getLogger(__name__)


def etcd_metadata_store(
    config: MetadataStoreConfig, cluster_id: str, runtime: Runtime
) -> tuple[EtcdClient, EtcdMetadataStore]:
    """Return the client that ``metadata.store`` asks for, and the store on it; both have to ``run``, the client first.

    Raises:
        OSError: a file with certificates cannot be read, or has none.
    """
    location = etcd_location(config.metadata_store)
    addresses = EtcdAddresses(
        location.endpoints,
        config.metadata_store_user,
        config.metadata_store_password,
        ssl_context_of(config) if location.is_tls else None,
    )
    client = EtcdClient(addresses, runtime.network.connect)
    return client, EtcdMetadataStore(client, EtcdLayout(location.prefix.encode()), cluster_id, runtime.clock)


async def join_etcd(
    config: MetadataStoreConfig, runtime: Runtime, nursery: trio.Nursery, proposed_id: str
) -> SharedMetadata:
    """Return the metadata of the cluster that ``metadata.store`` names, which has ``proposed_id`` if it is new. Its
    tasks run in ``nursery``. Waits until etcd answers.

    Raises:
        OSError: etcd refuses, or has something else there, or a file with certificates cannot be read.
    """
    client, proposed = etcd_metadata_store(config, proposed_id, runtime)
    await nursery.start(client.run)
    while True:
        try:
            cluster_id = await proposed.transactions.cluster_id()
            break
        except TimeoutError as error:
            log.warning("the metadata of the cluster is waited for: %s", error)
            await trio.sleep(RETRY_SECONDS)
    store = EtcdMetadataStore(client, proposed.transactions.layout, cluster_id, runtime.clock)
    await store.join()
    start_background(nursery, "metadata in etcd", store.run)
    return SharedMetadata(store, cluster_id, partial(keep_view, store))


def ssl_context_of(config: MetadataStoreConfig) -> ssl.SSLContext:
    """What etcd is trusted by, and shown.

    Raises:
        OSError: a file cannot be read, or is not what it should be; the error names the setting.
    """
    context = ssl.create_default_context()
    for name, path, load in (
        ("metadata.store.ca.file", config.metadata_store_ca_file, context.load_verify_locations),
        ("metadata.store.certificate.file", config.metadata_store_certificate_file, context.load_cert_chain),
    ):
        if path:
            try:
                load(path)
            except OSError as error:
                raise OSError(error.errno, f"{name}: {path}: {error.strerror or error}") from error
    return context
