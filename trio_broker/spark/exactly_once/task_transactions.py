"""The transactional ids of this process. No other process begins a transaction with them, so none can abort one.

An id is used again once its transaction has ended: the driver begins a batch only after the one before it was
committed, so an id that was used in an earlier batch of a job is free. Within a batch each attempt of each task has its
own.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Final

import attrs

from trio_broker.spark.exactly_once.committer import ID_PREFIX

MOST_JOBS: Final = 100
"""Jobs of which ids are kept; those of the oldest are forgotten, and their next tasks use new ones."""


@attrs.define
class TransactionalIds:
    """The ids, and the last batch in which each was used, by job."""

    _used: dict[str, dict[str, int]] = attrs.field(factory=lambda: defaultdict(dict))

    def take(self, job: str, batch: int) -> str:
        """Return an id that no open transaction of the job has."""
        used = self._used[job]
        free = next((each for each, last in used.items() if last < batch), None)
        name = free or f"{ID_PREFIX}{job}.{uuid.uuid4().hex}"
        used[name] = batch
        if len(self._used) > MOST_JOBS:
            del self._used[next(iter(self._used))]
        return name


IDS: Final = TransactionalIds()
"""Those of this process; empty in every worker when it starts, since the process that forks workers never writes."""
