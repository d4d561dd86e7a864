"""Several brokers in one process, for development: they share a metadata log, which lies beside their directories.

    DIRECTORY/metadata      what the cluster has decided, in place of etcd
    DIRECTORY/broker-1 …    a data directory each

Everything between the brokers is as between processes, over TCP: replicas, in-sync sets, elections. What one process
cannot show is its own end, which takes all of them along; they come back from the directory.

Source: docs/cluster.md.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import PurePath

import trio

from kafka_wire.primitives import uuid_text
from trio_broker.broker import STOP_SIGNALS, Broker, StartupError, raise_file_limit, single_startup_error
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.shared_metadata import SharedMetadata, opened_metadata_store
from trio_broker.concurrency.barrier import start_background
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.randomness import random_uuid
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.log_directory import known_cluster_id

log = logging.getLogger(__name__)

METADATA_DIRECTORY = "metadata"


def broker_directory(directory: PurePath, node_id: int) -> PurePath:
    """The data directory of one broker of the cluster in ``directory``."""
    return directory / f"broker-{node_id}"


def run_dev_cluster(directory: PurePath, configs: Sequence[BrokerConfig], announce: Callable[[str], object]) -> None:
    """Run a broker for each configuration until SIGTERM, SIGINT or SIGHUP, which stops one after the other.

    ``announce`` gets their addresses once all of them serve. A second signal ends them at once.

    Raises:
        StartupError: one of them cannot start.
    """
    raise_file_limit()
    try:
        trio.run(_serve_until_signalled, directory, configs, announce)
    except BaseExceptionGroup as group:
        raise single_startup_error(group) or group from None
    except MetadataLogUnusable as error:
        raise StartupError(str(error)) from error


async def _serve_until_signalled(
    directory: PurePath, configs: Sequence[BrokerConfig], announce: Callable[[str], object]
) -> None:
    runtime = real_runtime()
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with opened_metadata_store(directory / METADATA_DIRECTORY, runtime) as store:
            shared = SharedMetadata(store, await runtime.workers.run(partial(_cluster_id, configs, runtime)))
            # A runtime each, as between processes: what one asks of the disk does not count for another.
            brokers = [Broker(config, runtime=real_runtime(), shared_metadata=shared) for config in configs]
            async with trio.open_nursery() as nursery:
                async with trio.open_nursery() as starting:
                    for broker in brokers:
                        starting.start_soon(nursery.start, broker.run)
                for line in announcement(shared, brokers):
                    announce(line)
                await _stop_at_signal(signals, nursery.cancel_scope, brokers)


def _cluster_id(configs: Sequence[BrokerConfig], runtime: Runtime) -> str:
    """The id that the directories have, or a new one. Blocks."""
    found = (known_cluster_id(runtime.disk, PurePath(config.node.log_dirs[0])) for config in configs)
    return next((known for known in found if known is not None), None) or uuid_text(random_uuid(runtime.random))


async def _stop_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope, brokers: Sequence[Broker]) -> None:
    """Stop the brokers one after the other at the first signal, so that each hands over what it leads, and end all at
    once at the second. In either case ``scope`` is cancelled then."""
    log.info("%s: stopping", signal.Signals(await anext(signals)).name)
    async with trio.open_nursery() as nursery:
        start_background(nursery, "end at a second signal", partial(_end_at_signal, signals, scope))
        for broker in brokers:
            broker.stop()
            await broker.stopped.wait()
            if broker.failure:
                log.error("broker %d: %s", broker.config.node.node_id, broker.failure)
        scope.cancel()


async def _end_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    log.warning("%s again: stopped at once; the next start checks the logs", signal.Signals(await anext(signals)).name)
    scope.cancel()


def announcement(shared: SharedMetadata, brokers: Sequence[Broker]) -> list[str]:
    """Where the brokers can be reached, and what their cluster is."""
    addresses = [str(broker.bound_endpoints[0]).partition("://")[2] for broker in brokers]
    return [
        f"cluster    {shared.cluster_id}: {len(brokers)} brokers in this process, with one metadata log",
        *(
            f"broker {broker.config.node.node_id}   {address}   admin {broker.admin_url or 'off'}"
            for broker, address in zip(brokers, addresses, strict=True)
        ),
        f"clients    bootstrap.servers={','.join(addresses)}",
        f"try        echo hello | trio-broker produce greetings -b {addresses[0]}",
        "stop       Ctrl-C, or SIGTERM",
    ]
