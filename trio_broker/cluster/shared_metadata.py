"""The metadata that several brokers share, and those that brokers of one process share, on a disk of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import PurePath

import attrs
import trio

from kafka_wire.primitives import uuid_text
from trio_broker.cluster.local_metadata_store import LocalMetadataStore
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_store import MetadataStore
from trio_broker.runtime.randomness import random_uuid
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.log_directory import known_cluster_id


@attrs.frozen
class SharedMetadata:
    """The store of a cluster, and the id that the data directories of all its brokers have. ``show`` is a task of each
    broker that has the store show people what the metadata say, where it can."""

    store: MetadataStore
    cluster_id: str
    show: Callable[[MetadataCache], Awaitable[None]] | None = None


def proposed_cluster_id(runtime: Runtime, directories: Sequence[PurePath]) -> str:
    """The id of the cluster that the data directories are of, or a new one. Blocks.

    Raises:
        DataDirectoryError: one is not a data directory as they are written here.
        OSError: the first one cannot be read; the broker does without another one.
    """
    found = [known_cluster_id(runtime.disk, directories[0])]
    for directory in directories[1:]:
        with suppress(OSError):
            found.append(known_cluster_id(runtime.disk, directory))
    return next(filter(None, found), None) or uuid_text(random_uuid(runtime.random))


@asynccontextmanager
async def opened_metadata_store(directory: PurePath, runtime: Runtime) -> AsyncIterator[LocalMetadataStore]:
    """The store of brokers of this process, whose log is in ``directory`` and in none of theirs; that is made here.

    Raises:
        MetadataLogUnusable: it is damaged.
        OSError: the disk refused.
    """
    workers = runtime.workers
    await workers.run(partial(runtime.disk.make_directory, directory))
    log = await workers.run(partial(MetadataLog.open, directory, runtime))
    try:
        yield LocalMetadataStore(log, workers)
    finally:
        with trio.CancelScope(shield=True):
            await workers.run(log.close)
