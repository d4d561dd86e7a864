"""How far a broker is that starts: all that can be asked of one before it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker_admin.views.node.identity import Readiness
from trio_broker.storage.recovery_progress import RecoveryProgress


class StartView(Protocol):
    """A broker that starts, as the admin app sees it."""

    @property
    def broker_id(self) -> int:
        """Its ``node.id``."""
        ...

    def readiness(self) -> Readiness:
        """Why it does not serve clients yet."""
        ...

    def recovery(self) -> RecoveryProgress:
        """How far it is with the logs."""
        ...

    def prometheus_renderer(self) -> Callable[[], bytes]:
        """What makes the text of the metrics that there are so early, in any thread."""
        ...
