"""How far the decommission of a broker is: the values that the admin API answers with."""

from __future__ import annotations

import enum

import attrs


class DecommissionState(enum.Enum):
    """How far the decommission of a broker is."""

    NONE = "none"
    """It is not asked for."""
    MOVING = "moving"
    """Replicas are still on the broker."""
    STOPPING = "stopping"
    """It is empty, and is asked to stop, or is being unregistered."""


@attrs.frozen
class ReplicaMove:
    """A partition that leaves a broker: its replicas, preferred leader first, now and then."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    is_under_way: bool = False


@attrs.frozen(kw_only=True)
class DecommissionProgress:
    """What is left to be done for a broker to leave.

    ``replicas`` are those that it has, and ``leaders`` those of them that lead. ``moves`` are under way, or begin next;
    ``further_moves`` are not listed. ``blocked`` is why some cannot begin now, or empty.
    """

    broker_id: int
    state: DecommissionState
    replicas: int
    leaders: int
    moves: tuple[ReplicaMove, ...]
    further_moves: int
    blocked: str
