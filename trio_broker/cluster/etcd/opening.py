"""From the settings to a metadata store in etcd."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias

import trio

from trio_broker.cluster.etcd.client import EtcdAddresses, EtcdClient
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import ClusterState, EtcdLayout, stored_cluster_id
from trio_broker.cluster.etcd.transactions import until_answered
from trio_broker.cluster.etcd.view import keep_view
from trio_broker.cluster.shared_metadata import SharedMetadata
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.concurrency.barrier import background_nursery, start_background
from trio_broker.config.metadata_store_config import MetadataStoreConfig, etcd_location
from trio_broker.runtime.runtime import Runtime
from trio_broker.security.private_files import read_private_file

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


OpenStore: TypeAlias = Callable[[str], AbstractAsyncContextManager[tuple[EtcdMetadataStore, trio.Nursery]]]
"""Opens the store of the cluster of an id, as ``opened_store`` does."""


@asynccontextmanager
async def opened_store(
    config: MetadataStoreConfig, runtime: Runtime, cluster_id: str
) -> AsyncIterator[tuple[EtcdMetadataStore, trio.Nursery]]:
    """The store of a cluster for a command: it does not run yet, and has a nursery to do so.

    Raises:
        OSError: a file with certificates cannot be read, or etcd may lose data or does not answer.
    """
    client, store = etcd_metadata_store(config, cluster_id, runtime)
    async with running(client) as nursery:
        await store.transactions.require_version()
        yield store, nursery


@asynccontextmanager
async def opened_cluster(
    config: MetadataStoreConfig, runtime: Runtime
) -> AsyncIterator[tuple[EtcdMetadataStore, ClusterState]]:
    """The store of the cluster that is there, whatever its id, for a look; the state says whether there is one.

    Raises:
        OSError: as ``opened_store``.
    """
    async with opened_store(config, runtime, "") as (unknown, _):
        transactions = unknown.transactions
        state = await transactions.state_of_any()
        cluster_id = "" if state.cluster is None else stored_cluster_id(state.cluster)
        yield EtcdMetadataStore(transactions.etcd, transactions.layout, cluster_id, runtime.clock), state


@asynccontextmanager
async def running(client: EtcdClient) -> AsyncIterator[trio.Nursery]:
    """Have ``client`` run until the block ends, as further tasks of the nursery."""
    async with background_nursery() as nursery:
        await nursery.start(client.run)
        yield nursery


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
    state = await until_answered(proposed.transactions.entered, LogThrottle(log, runtime.clock))
    assert state.cluster is not None, "it was entered"
    cluster_id = stored_cluster_id(state.cluster)
    store = EtcdMetadataStore(client, proposed.transactions.layout, cluster_id, runtime.clock)
    await store.join()
    start_background(nursery, "metadata in etcd", store.run)
    return SharedMetadata(store, cluster_id, partial(keep_view, store))


def ssl_context_of(config: MetadataStoreConfig) -> ssl.SSLContext:
    """What etcd is trusted by, and shown.

    Raises:
        OSError: a file cannot be read, or is not what it should be; the error names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not config.metadata_store_ca_file:
        context.load_default_certs()
    for name, path, load in (
        ("metadata.store.ca.file", config.metadata_store_ca_file, context.load_verify_locations),
        ("metadata.store.certificate.file", config.metadata_store_certificate_file, partial(load_own, context)),
    ):
        if path:
            try:
                load(path)
            except OSError as error:
                raise OSError(error.errno, f"{name}: {path}: {error.strerror or error}") from error
    return context


def load_own(context: ssl.SSLContext, path: str) -> None:
    # Imported here: what reads certificates is a large module, which most commands do not need.
    from trio_broker.security.key_store import private_file

    with private_file(read_private_file(path)) as checked:
        context.load_cert_chain(checked)
