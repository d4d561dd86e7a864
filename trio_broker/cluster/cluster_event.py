"""What happens in a cluster, as values for the admin API, whose JSON has these names. Nothing here acts."""

from __future__ import annotations

import enum

import attrs


class ClusterEventKind(enum.Enum):
    """What has happened."""

    CONTROLLER = "controller"
    """Another broker decides from now on."""
    ELECTION = "election"
    UNCLEAN_ELECTION = "unclean-election"
    """Of a replica that was not in sync: records may be lost."""
    LEADERLESS = "leaderless"
    """Nobody leads a partition any more."""
    ISR_SHRINK = "isr-shrink"
    ISR_EXPAND = "isr-expand"
    REASSIGNMENT = "reassignment"
    """A partition begins to move to other brokers, or has arrived there."""
    BROKER = "broker"
    """One has registered, is in contact, is out of contact, stops, or is gone."""


@attrs.frozen(kw_only=True)
class ClusterEvent:
    """One of them, as this broker has read it in the metadata at ``at_ms``; ``text`` says it in a few words.

    ``broker_id`` is the broker that it is about: the new leader or controller, the first one that has left or joined
    the replicas in sync. ``leader_epoch`` is that of the partition.
    """

    at_ms: int
    kind: ClusterEventKind
    text: str
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    leader_epoch: int | None = None


@attrs.frozen
class ClusterChanged:
    """What one batch of the metadata has brought; ``further_events`` counts those beyond the ones that fit."""

    events: tuple[ClusterEvent, ...]
    further_events: int = 0
