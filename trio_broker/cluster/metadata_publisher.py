"""The MetadataPublisher: takes the next image, and notifies the parts of the broker.

An image is published in one order, always: the image is replaced; the settings of this broker take effect; what changed
is recorded; then the subscribers follow, one after the other, as bootstrap declares them. From the new image up to the
recording nothing waits, so whatever a client does with a new topic stands after its creation in the journal; only a
batch whose changes take longer than a turn to record lets other requests run between two of them.

Each part is behind a barrier of its own. A part that fails is logged by its name, and the parts after it are still
notified: the change is in the log, so nothing can be undone. ``MetadataFaults`` says what the broker does then. A
restart begins with the whole image.

Source: Kafka's MetadataLoader and MetadataPublisher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from trio_broker.changes.change import Change, MadeChange
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.barrier import barrier
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_changes import made_changes
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_faults import MetadataFaults
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.yield_budget import InTurns, in_turns


class MetadataSubscriber(Protocol):
    """A part of the broker that follows the metadata."""

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow ``delta``, which has led to ``image``. Deleted topics come first: a changed one may have the name of
        one of them."""
        ...


@attrs.define(eq=False)
class MetadataPublisher:
    """The only one that replaces the image in ``cache``. Batches come one at a time, in the order of the log."""

    cache: MetadataCache
    dynamic_config: DynamicConfigPublisher
    changes: ChangeLog
    subscribers: Sequence[MetadataSubscriber] = ()
    faults: MetadataFaults = attrs.field(factory=MetadataFaults)

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> list[Change]:
        """Publish ``image``, to which ``delta`` has led from the one before; return what was recorded of it.

        To be shielded: a part that misses a batch would follow the next one from a state that never was.
        """
        before = self.cache.image
        assert delta.image is before, f"a delta of the image at {delta.image.offset}, after the one at {before.offset}"
        assert image.offset > before.offset, f"{image.offset} after {before.offset}"
        made: list[MadeChange] = []
        # Before the settings take effect: a topic's change shows what it inherited until now.
        with barrier(self.changes):
            made += await in_turns(made_changes(delta, image, self.dynamic_config.config))
        self.cache.set_image(image)
        with barrier(self.dynamic_config):
            made += self.dynamic_config.apply(image, delta.changed_configs)
        recorded: list[Change] = []
        with barrier(self.changes):
            recorded.extend([self.changes.record(each) async for each in InTurns(made)])
        for subscriber in self.subscribers:
            with (following := barrier(subscriber)):
                await subscriber.apply_metadata(delta, image)
            if following.has_failed:
                self.faults.part_failed(type(subscriber).__name__)
        return recorded
