"""Several brokers in one process, for development, with their metadata in an etcd of their own, or in one shared log.

    DIRECTORY/etcd          what etcd keeps and prints, where there is one
    DIRECTORY/metadata      else what the cluster has decided
    DIRECTORY/broker-1 …    a data directory each

Everything between the brokers is as between processes, over TCP: replicas, in-sync sets, elections. What one process
cannot show is its own end, which takes all of them along; they come back from the directory. With etcd they find and
claim the metadata as in production; the shared log is for where etcd is not installed.

Source: docs/cluster.md, docs/decisions/0093-a-cluster-to-try-has-an-etcd-of-its-own.md.
"""

from __future__ import annotations

import enum
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import PurePath

import trio

from trio_broker.broker import STOP_SIGNALS, Broker, StartupError, raise_file_limit, single_startup_error
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.etcd.server import EtcdDidNotStart, started_etcd
from trio_broker.cluster.shared_metadata import SharedMetadata, opened_metadata_store, proposed_cluster_id
from trio_broker.concurrency.barrier import start_background
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.metadata_store_config import DEFAULT_PREFIX, LOCAL
from trio_broker.runtime.child_process import found_program
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.real import real_runtime

log = logging.getLogger(__name__)

METADATA_DIRECTORY = "metadata"


class MetadataKind(enum.Enum):
    """Where the metadata of a cluster are that is run here."""

    ETCD = "etcd"
    SHARED = "shared"


DIRECTORIES = {MetadataKind.ETCD: "etcd", MetadataKind.SHARED: METADATA_DIRECTORY}

DESCRIPTIONS = {
    MetadataKind.ETCD: "an etcd of its own",
    MetadataKind.SHARED: "one log that the brokers share",
}


def broker_directory(directory: PurePath, node_id: int) -> PurePath:
    """The data directory of one broker of the cluster in ``directory``."""
    return directory / f"broker-{node_id}"


def metadata_kind(disk: Disk, directory: PurePath, wanted: MetadataKind | None, program: str | None) -> MetadataKind:
    """Where the metadata of the cluster in ``directory`` are: where they were, as ``wanted``, or in etcd where its
    ``program`` is there. Blocks.

    Raises:
        StartupError: they cannot be there.
    """
    present = [kind for kind, name in DIRECTORIES.items() if disk.is_directory(directory / name)]
    if present and wanted not in (None, present[0]):
        raise StartupError(
            f"{directory} has its metadata in {DESCRIPTIONS[present[0]]}: leave --metadata out, or name another"
            " --data-dir"
        )
    kind = present[0] if present else wanted or (MetadataKind.ETCD if program else MetadataKind.SHARED)
    if kind is MetadataKind.ETCD and program is None:
        raise StartupError(
            f"{directory} is to have its metadata in etcd, which is not on the PATH: install it, as by apt install"
            " etcd-server, or name another --data-dir"
        )
    return kind


def run_dev_cluster(
    directory: PurePath,
    configs: Callable[[str], Sequence[BrokerConfig]],
    announce: Callable[[str], object],
    wanted: MetadataKind | None = None,
) -> None:
    """Run a broker for each configuration until SIGTERM, SIGINT or SIGHUP, which stops one after the other.

    ``configs`` makes them for a value of ``metadata.store``. ``announce`` gets the brokers' addresses once all of them
    serve. A second signal ends them at once.

    Raises:
        ConfigError: a setting is not valid.
        StartupError: one of them cannot start.
    """
    raise_file_limit()
    program = found_program("etcd")
    kind = metadata_kind(real_runtime().disk, directory, wanted, program)
    try:
        if kind is MetadataKind.ETCD:
            assert program is not None, "etcd is there"
            trio.run(_serve_with_etcd, directory, program, configs, announce)
        else:
            why = "" if program else ": etcd is not on the PATH"
            about = f"metadata   {DESCRIPTIONS[kind]}{why}"
            trio.run(_serve_with_shared_log, directory, configs(LOCAL), announce, about)
    except BaseExceptionGroup as group:
        raise single_startup_error(group) or group from None
    except (MetadataLogUnusable, EtcdDidNotStart) as error:
        raise StartupError(str(error)) from error
    except OSError as error:
        raise StartupError(f"{error.filename or directory}: {error.strerror or error}") from error


async def _serve_with_etcd(
    directory: PurePath,
    program: str,
    configs: Callable[[str], Sequence[BrokerConfig]],
    announce: Callable[[str], object],
) -> None:
    kept = directory / DIRECTORIES[MetadataKind.ETCD]
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with started_etcd(program, kept, real_runtime()) as server:
            # A runtime each, as between processes: what one asks of the disk does not count for another.
            brokers = [Broker(config, runtime=real_runtime()) for config in configs(f"etcd://{server.address}")]
            view = f"etcd       etcdctl --endpoints {server.address} get --prefix {DEFAULT_PREFIX}view/"
            await _serve_until_signalled(signals, brokers, announce, view)


async def _serve_with_shared_log(
    directory: PurePath, configs: Sequence[BrokerConfig], announce: Callable[[str], object], about: str
) -> None:
    runtime = real_runtime()
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with opened_metadata_store(directory / METADATA_DIRECTORY, runtime) as store:
            directories = [PurePath(config.node.log_dirs[0]) for config in configs]
            cluster_id = await runtime.workers.run(partial(proposed_cluster_id, runtime, directories))
            shared = SharedMetadata(store, cluster_id)
            brokers = [Broker(config, runtime=real_runtime(), shared_metadata=shared) for config in configs]
            await _serve_until_signalled(signals, brokers, announce, about)


async def _serve_until_signalled(
    signals: AsyncIterator[int],
    brokers: Sequence[Broker],
    announce: Callable[[str], object],
    about_metadata: str,
) -> None:
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as starting:
            for broker in brokers:
                starting.start_soon(nursery.start, broker.run)
        for line in announcement(brokers, about_metadata):
            announce(line)
        await _stop_at_signal(signals, nursery.cancel_scope, brokers)


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


def announcement(brokers: Sequence[Broker], about_metadata: str) -> list[str]:
    """Where the brokers can be reached, and what their cluster is."""
    addresses = [str(broker.bound_endpoints[0]).partition("://")[2] for broker in brokers]
    return [
        f"cluster    {brokers[0].services.node.cluster_id}: {len(brokers)} brokers in this process",
        about_metadata,
        *(
            f"broker {broker.config.node.node_id}   {address}   admin {broker.admin_url or 'off'}"
            for broker, address in zip(brokers, addresses, strict=True)
        ),
        f"clients    bootstrap.servers={','.join(addresses)}",
        f"try        echo hello | trio-broker produce greetings -b {addresses[0]}",
        "stop       Ctrl-C, or SIGTERM",
    ]
