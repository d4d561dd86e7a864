"""A barrier between the parts of the broker that follow a change."""

from __future__ import annotations

from trio_broker.concurrency.barrier import Barrier


def barrier(part: object) -> Barrier:
    """A barrier that names the class of ``part``, so that the next part is still notified."""
    return Barrier(type(part).__name__, "it did not follow a change of the metadata or settings")
