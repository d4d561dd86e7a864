"""All quotas of clients of one broker.

Source: Kafka's QuotaFactory.QuotaManagers.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from trio_broker.config.quota_config import QuotaConfig
from trio_broker.quota.client_quota_manager import (
    ClientQuotaManager,
    ControllerMutationQuotaManager,
    Measures,
    windowed_rate,
)
from trio_broker.quota.client_quotas import NO_QUOTAS, ClientQuotas, QuotaKey
from trio_broker.quota.rate import Rate
from trio_broker.runtime.clock import Clock

MAX_LOGIN_THROTTLE_SECONDS: Final = 20.0
"""How long a connection waits behind its login: the answer cannot say so, and clients take 30 seconds for the end."""

PERCENT_OF_NANOSECONDS: Final = 100 / 1e9
"""Of one thread, in a second."""


class QuotaManagers:
    """``is_bounding`` says that any user or client id has a quota: without one nothing is measured. Of requests whose
    clients had to wait since the start, there is the number and the sum of their waits.
    """

    def __init__(self, clock: Clock, config: QuotaConfig) -> None:
        self.quotas = NO_QUOTAS
        self.is_bounding = False
        self.throttled_requests = 0
        self.throttled_seconds = 0.0
        self.produce = ClientQuotaManager(QuotaKey.PRODUCER_BYTE_RATE, clock, config)
        self.fetch = ClientQuotaManager(QuotaKey.CONSUMER_BYTE_RATE, clock, config)
        self.request = ClientQuotaManager(QuotaKey.REQUEST_PERCENTAGE, clock, config)
        self.controller_mutation = ControllerMutationQuotaManager(clock, config)
        self._connections: Measures[str, Rate] = Measures(partial(windowed_rate, clock, config), clock)
        self._max_request_seconds = float(config.quota_window_size_seconds)

    def update(self, quotas: ClientQuotas) -> None:
        """Go by ``quotas`` from now on."""
        self.quotas = quotas
        self.is_bounding = quotas.bound_clients
        for manager in (self.produce, self.fetch, self.request, self.controller_mutation):
            manager.quotas = quotas

    def record_request(self, user: str, client_id: str, handled_ns: int) -> None:
        """A request of a client has taken so long, waits not counted."""
        self.request.record(user, client_id, handled_ns * PERCENT_OF_NANOSECONDS)

    def request_throttle_seconds(self, user: str, client_id: str) -> float:
        """How long a client must wait for the time that its requests have taken: one window at most, as in Kafka, since
        time is measured on a machine that has other work."""
        return min(self.request.throttle_seconds(user, client_id), self._max_request_seconds)

    def login_throttle_seconds(self, user: str, client_id: str) -> float:
        """How long a connection is not read behind the login of a client above its quota of bytes produced, as its
        others are not: to come anew would be a way around it. A Fetch above its quota gets no records anyway."""
        return min(self.produce.throttle_seconds(user, client_id), MAX_LOGIN_THROTTLE_SECONDS)

    def note_throttled(self, seconds: float) -> None:
        """A client waits after a request."""
        self.throttled_requests += 1
        self.throttled_seconds += seconds

    def admits_connection(self, address: str) -> bool:
        """Count a new connection from ``address``; whether that is within its quota."""
        if (bound := self.quotas.of_address(address)) is None:
            return True
        rate = self._connections.of(address)
        rate.record(1)
        return not rate.seconds_above(bound)
