"""The metadata that several brokers share."""

from __future__ import annotations

import attrs

from trio_broker.cluster.metadata_store import MetadataStore


@attrs.frozen
class SharedMetadata:
    """The store of a cluster, and the id that the data directories of all its brokers have."""

    store: MetadataStore
    cluster_id: str
