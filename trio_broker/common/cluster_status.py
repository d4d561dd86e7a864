"""What ``trio-broker cluster status`` shows, by the brokers or by the metadata store itself."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs

from trio_broker.common.topic_partition import TopicPartition


class RegistrationState(enum.Enum):
    """What a registered broker may do."""

    ACTIVE = "active"
    """It may lead partitions and be in sync."""
    STOPPING = "stopping"
    """It hands over what it leads."""
    FENCED = "fenced"
    """It is stopped, or not in contact, or has not read the metadata yet."""


def is_under_replicated(replicas: Sequence[int], in_sync_replicas: Sequence[int]) -> bool:
    """Whether a replica of a partition is not in sync, one that a reassignment adds included."""
    return len(in_sync_replicas) < len(replicas)


@attrs.frozen
class BrokerStatus:
    """One broker. ``behind`` is how many records of the metadata it has not read yet, None where nobody knows."""

    broker_id: int
    state: RegistrationState
    address: str | None
    behind: int | None = None


@attrs.frozen
class StoreSize:
    """What the metadata take in their store, and with how many bytes nothing more is appended."""

    stored_bytes: int
    max_bytes: int


@attrs.frozen(kw_only=True)
class ClusterStatus:
    """A cluster at one moment; None is what nobody has said.

    ``store`` is the ``metadata.store``, ``revision`` that of etcd; ``end_offset`` is that of the next record, and
    ``epoch`` that of the controller. ``unavailable`` are the partitions without a leader; of the ``under_replicated``
    ones a replica is not in sync.
    """

    cluster_id: str | None
    store: str | None
    controller_id: int | None
    epoch: int | None
    end_offset: int | None
    revision: int | None = None
    size: StoreSize | None = None
    brokers: Sequence[BrokerStatus]
    partitions: int
    unavailable: Sequence[TopicPartition]
    under_replicated: int

    @property
    def problems(self) -> list[str]:
        """Why the cluster does not serve everything, a line each."""
        found = []
        if self.controller_id is None:
            found.append("no broker is the controller")
        if self.unavailable:
            more = f" and {len(self.unavailable) - 1} more partitions" if len(self.unavailable) > 1 else ""
            found.append(f"{self.unavailable[0]}{more} cannot be written or read: no replica leads")
        return found
