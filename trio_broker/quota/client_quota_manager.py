"""How much each client has had, and how long those above their quota must wait.

A client that has had too much is not refused: its answer leaves at once and says how long the broker will not read its
connection. A client that waits by itself and one that does not are slowed down alike (KIP-219).

Source: Kafka's ClientQuotaManager, ClientRequestQuotaManager and ControllerMutationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

import attrs

from trio_broker.config.quota_config import QuotaConfig
from trio_broker.quota.client_quotas import NO_QUOTAS, QuotaKey, Sharers
from trio_broker.quota.mutation_tokens import MutationTokens
from trio_broker.quota.rate import Rate
from trio_broker.runtime.clock import Clock

KEPT_SECONDS: Final = 3600.0
"""How long the measure of a silent client is kept, as in Kafka."""

MEASURES_BETWEEN_LOOKS: Final = 1000
"""New measures between two looks for those of silent clients: a default quota gives each client id, which clients
choose, a measure of its own, some 300 bytes."""

KeyT = TypeVar("KeyT")
MeasureT = TypeVar("MeasureT")


@attrs.define
class _Used(Generic[MeasureT]):
    measure: MeasureT
    used_at: float


class Measures(Generic[KeyT, MeasureT]):
    """A measure for each key, made when it is asked for."""

    def __init__(self, make: Callable[[], MeasureT], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._by_key: dict[KeyT, _Used[MeasureT]] = {}
        self._next_look = MEASURES_BETWEEN_LOOKS

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: KeyT) -> MeasureT:
        now = self._clock.monotonic()
        if (used := self._by_key.get(key)) is None:
            if len(self._by_key) >= self._next_look:
                self._drop_unused(now)
            used = self._by_key[key] = _Used(self._make(), now)
        used.used_at = now
        return used.measure

    def _drop_unused(self, now: float) -> None:
        self._by_key = {key: used for key, used in self._by_key.items() if now - used.used_at < KEPT_SECONDS}
        # So that looking costs each new one the same, however many there are.
        self._next_look = len(self._by_key) + MEASURES_BETWEEN_LOOKS


def windowed_rate(clock: Clock, config: QuotaConfig) -> Rate:
    """A rate over the windows of the settings. A client may begin with a burst, as in Kafka's Rate: its mean is always
    over all windows but the present one."""
    window_seconds = float(config.quota_window_size_seconds)
    return Rate(clock, window_seconds, config.quota_window_num, max(1, config.quota_window_num - 1))


class ClientQuotaManager:
    """Bytes, or time, a second, of one ``key``."""

    def __init__(self, key: QuotaKey, clock: Clock, config: QuotaConfig) -> None:
        self.key = key
        self.quotas = NO_QUOTAS
        self._burst_seconds = max(1, config.quota_window_num - 1) * config.quota_window_size_seconds
        self._rates: Measures[Sharers, Rate] = Measures(partial(windowed_rate, clock, config), clock)

    def record(self, user: str, client_id: str, amount: float) -> None:
        """A client has had ``amount``."""
        if (found := self.quotas.of_client(self.key, user, client_id)) is not None:
            self._rates.of(found[1]).record(amount)

    def throttle_seconds(self, user: str, client_id: str) -> float:
        """How long a client must wait; 0 where it is within its quota."""
        if (found := self.quotas.of_client(self.key, user, client_id)) is None:
            return 0.0
        bound, sharers = found
        return self._rates.of(sharers).seconds_above(bound)

    def max_in_window(self, user: str, client_id: str) -> float:
        """The largest amount that is not above the quota by itself; infinite without a quota."""
        found = self.quotas.of_client(self.key, user, client_id)
        return float("inf") if found is None else found[0] * self._burst_seconds


class ControllerMutationQuotaManager:
    """Partitions a second that clients may create and delete."""

    def __init__(self, clock: Clock, config: QuotaConfig) -> None:
        self.quotas = NO_QUOTAS
        seconds = float(config.controller_quota_window_num * config.controller_quota_window_size_seconds)
        self._buckets: Measures[Sharers, MutationTokens] = Measures(partial(MutationTokens, clock, seconds), clock)

    def throttle_seconds(self, user: str, client_id: str) -> float:
        """How long a client must wait before its next mutation."""
        if (found := self.quotas.of_client(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)) is None:
            return 0.0
        bound, sharers = found
        return self._buckets.of(sharers).seconds_in_debt(bound)

    def record(self, user: str, client_id: str, partitions: int) -> None:
        """A client creates or deletes so many partitions."""
        if (found := self.quotas.of_client(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)) is not None:
            self._buckets.of(found[1]).take(partitions, found[0])
