"""A broker that starts, for the admin app."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from broker_admin.views.node.identity import Readiness
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.log_loader import LogLoader
from trio_broker.storage.recovery_progress import RecoveryProgress, progress_text


@attrs.frozen
class LiveStartView:
    """All that the admin app sees of a broker before it serves."""

    loader: LogLoader
    config: BrokerConfig

    @property
    def broker_id(self) -> int:
        return self.config.node.node_id

    def readiness(self) -> Readiness:
        return Readiness(ready=False, reason=progress_text(self.recovery()))

    def recovery(self) -> RecoveryProgress:
        return self.loader.progress()

    def prometheus_renderer(self) -> Callable[[], bytes]:
        # Imported here: prometheus_client is for those who are scraped.
        from trio_broker.metrics.prometheus import render_start

        return partial(render_start, self.recovery(), self.config.node.metrics_names)
