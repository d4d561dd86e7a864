"""What was changed in a running broker, for the admin app, with the effect of each change of settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from broker_admin.views.cluster.changes import TrialRefusal
from kafka_wire.errors import KafkaError
from trio_broker.changes.change import Change
from trio_broker.cluster.config_trials import NoSuchTrial
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.effect_watch import EffectWatch
from trio_broker.metrics.history import History
from trio_broker.metrics.series import SeriesHistory


class LiveChangesView:
    """The part of the admin app's view that is about changes."""

    def __init__(self, services: BrokerServices, samples: History, series: SeriesHistory) -> None:
        self.services = services
        self._effects = EffectWatch(services.changes, lambda: series.seconds)
        samples.subscribe(self._effects.sampled)

    def list(self) -> Sequence[Change]:
        return self.services.changes.changes

    def get(self, number: int) -> Change | None:
        return self.services.changes.change(number)

    async def keep(self, number: int) -> Change | TrialRefusal:
        return await self._or_refusal(self.services.trials.keep, number)

    async def undo(self, number: int) -> Change | TrialRefusal:
        return await self._or_refusal(self.services.trials.undo, number)

    async def _or_refusal(self, end: Callable[[int], Awaitable[Change]], number: int) -> Change | TrialRefusal:
        try:
            return await end(number)
        except (NoSuchTrial, KafkaError) as error:
            return TrialRefusal(str(error))
