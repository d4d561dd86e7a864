"""When the controller takes a snapshot of the metadata: at a start where the log has grown long, and then by itself.

A snapshot replaces the log before it, so one that is taken while brokers run is of what was published at the last look:
a broker that has not read the last changes finds them in the log.

Source: Kafka's SnapshotGenerator.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_log import SNAPSHOT_AFTER_RECORDS
from trio_broker.cluster.metadata_log_writer import MetadataLogWriter
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import ClaimLost, MetadataStore
from trio_broker.runtime.runtime import Runtime

SNAPSHOT_CHECK_MS: Final = 60_000
"""Between two looks, so far a snapshot stays behind the end of the log."""

log = logging.getLogger(__name__)


class SnapshotGenerator:
    """See the head of the file. ``writer`` knows whether this broker is the controller."""

    def __init__(
        self, store: MetadataStore, loader: MetadataLoader, writer: MetadataLogWriter, runtime: Runtime
    ) -> None:
        self._store = store
        self._loader = loader
        self._writer = writer
        self._runtime = runtime
        # What was published at the last look, and where the newest snapshot ends, if that is known.
        self._former = (loader.image, loader.last_timestamp_ms)
        self._end: int | None = None

    def begin(self) -> None:
        """Begin a claim: another controller may have taken a snapshot meanwhile."""
        self._end = None

    async def take(self) -> None:
        """Replace what is in the log so far by a snapshot of the image that is published.

        Raises:
            OSError: the store refused. What was there is there still.
        """
        await self._take(self._loader.image, self._loader.last_timestamp_ms)

    async def _take(self, image: MetadataImage, last_timestamp_ms: int) -> None:
        claim, now_ms = self._writer.require_active(), self._runtime.clock.now_ms()
        make = partial(MetadataSnapshot.of_image, image, last_timestamp_ms=last_timestamp_ms, now_ms=now_ms)
        await self._store.take_snapshot(await self._runtime.workers.run(make), claim=claim)
        self._end = image.offset + 1

    async def take_if_due(self) -> None:
        """Take a snapshot of what was published at the last call, where the log has grown long since the last one."""
        image, last_timestamp_ms = self._former
        self._former = (self._loader.image, self._loader.last_timestamp_ms)
        if not self._writer.is_active:
            return
        try:
            if self._end is None:
                snapshot = await self._store.snapshot()
                self._end = 0 if snapshot is None else snapshot.id.end_offset
            if image.offset + 1 - self._end >= SNAPSHOT_AFTER_RECORDS:
                await self._take(image, last_timestamp_ms)
        except (OSError, ClaimLost, NotController) as error:
            log.warning("no snapshot of the metadata is taken: %s", error)
