"""The phases of a request's life, in their order.

Source: Kafka's RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs (here ``DISK`` and ``PURGATORY``), ResponseQueueTimeMs and
ResponseSendTimeMs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias


class RequestPhase(enum.Enum):
    """Where a request's time goes: each nanosecond from its last byte to its answer's last byte is in one phase."""

    QUEUE = "queue"
    """From the frame's last byte until a handler begins; includes the wait for room in the queue."""
    LOCAL = "local"
    """The handler works, and holds its slot."""
    DISK = "disk"
    """The handler has given its slot back until a sync has made records durable, or a thread has read or written files
    beside the appends."""
    PURGATORY = "purgatory"
    """The handler has given its slot back until others act: a long poll, a rebalance, other replicas of a batch."""
    RESPONSE_QUEUE = "response_queue"
    """From the answer until its connection takes it."""
    SEND = "send"
    """Until the kernel has the last byte."""


ReleaseHandler: TypeAlias = Callable[[RequestPhase], None]
"""Releases the handler slot of a request; called before each of its waits, with the phase that begins."""


def ignore_release(phase: RequestPhase) -> None:
    """The ``ReleaseHandler`` of what holds no slot."""
