"""A barrier between the parts of the broker that follow a change."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def barrier(part: object) -> Iterator[None]:
    """Log what ``part`` raises, by the name of its class, so that the next part is still notified."""
    try:
        yield
    except Exception:
        log.exception("%s failed to follow a change of the metadata or settings", type(part).__name__)
