"""Which quota counts for a client, and how long one above it waits."""

from __future__ import annotations

import pytest

from trio_broker.config.quota_config import QuotaConfig
from trio_broker.quota.client_quota_manager import KEPT_SECONDS, MEASURES_BETWEEN_LOOKS, ClientQuotaManager, Measures
from trio_broker.quota.client_quotas import ClientQuotas, QuotaKey, Sharers
from trio_broker.quota.mutation_tokens import MutationTokens
from trio_broker.quota.quota_managers import QuotaManagers
from trio_broker.quota.rate import Rate
from trio_broker.runtime.clock import ManualClock

KEY = QuotaKey.PRODUCER_BYTE_RATE
BOTH, USERS, CLIENTS = Sharers("alice", "app"), Sharers("alice", ""), Sharers("", "app")


def entity(**parts):
    return frozenset((kind.replace("_", "-"), name) for kind, name in parts.items())


PRECEDENCE = [
    (entity(user="alice", client_id="app"), BOTH),
    (entity(user="alice", client_id=None), BOTH),
    (entity(user="alice"), USERS),
    (entity(user=None, client_id="app"), BOTH),
    (entity(user=None, client_id=None), BOTH),
    (entity(user=None), USERS),
    (entity(client_id="app"), CLIENTS),
    (entity(client_id=None), CLIENTS),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_counts_and_says_who_shares_it(first):
    quotas = ClientQuotas.of((each, KEY.value, 100.0 + n) for n, (each, _) in enumerate(PRECEDENCE) if n >= first)
    assert quotas.of_client(KEY, "alice", "app") == (100.0 + first, PRECEDENCE[first][1])


def test_each_key_has_its_own_precedence_and_others_have_no_bound():
    quotas = ClientQuotas.of([(entity(user="alice"), "consumer_byte_rate", 1.0), (entity(user=None), KEY.value, 2.0)])
    assert quotas.of_client(KEY, "alice", "app") == (2.0, USERS)
    assert quotas.of_client(QuotaKey.REQUEST_PERCENTAGE, "alice", "app") is None


def test_a_record_of_nobody_is_in_no_way_of_the_others():
    quotas = ClientQuotas.of([(entity(), KEY.value, 1.0), (entity(user=None), KEY.value, 2.0)])
    assert quotas.of_client(KEY, "alice", "app") == (2.0, USERS)


def test_an_address_has_its_own_rate_or_the_default_however_it_is_written():
    name = QuotaKey.CONNECTION_CREATION_RATE.value
    quotas = ClientQuotas.of([(entity(ip="0:0:0:0:0:0:0:1"), name, 5.0), (entity(ip=None), name, 9.0)])
    assert (quotas.of_address("::1"), quotas.of_address("10.0.0.1")) == (5.0, 9.0)
    assert not quotas.bound_clients


def test_a_client_may_begin_with_ten_seconds_at_once_and_then_waits_until_its_mean_is_right():
    clock = ManualClock()
    manager = ClientQuotaManager(KEY, clock, QuotaConfig())
    manager.quotas = ClientQuotas.of([(entity(client_id="app"), KEY.value, 100.0)])
    manager.record("alice", "app", 1000)
    assert manager.throttle_seconds("alice", "app") == 0
    manager.record("bob", "app", 500)  # of any user, since the quota is the client id's
    assert manager.throttle_seconds("alice", "app") == pytest.approx(5.0)
    assert manager.throttle_seconds("alice", "other") == 0
    assert manager.max_in_window("alice", "app") == 1000
    clock.advance(11.5)
    assert manager.throttle_seconds("alice", "app") == 0


def test_the_mean_of_a_rate_forgets_what_is_older_than_its_windows():
    clock = ManualClock()
    rate = Rate(clock, 1.0, 3)
    for amount in (30, 60, 90):
        rate.record(amount)
        clock.advance(1)
    assert rate.per_second == pytest.approx(150 / 2)


def test_a_bucket_may_be_overdrawn_once():
    clock = ManualClock()
    bucket = MutationTokens(clock, burst_seconds=10)
    bucket.take(30, 2.0)  # 20 are there
    assert bucket.seconds_in_debt(2.0) == 5.0
    clock.advance(5)
    assert bucket.seconds_in_debt(2.0) == 0
    clock.advance(1000)
    bucket.take(21, 2.0)  # and no more than 20 are saved up
    assert bucket.seconds_in_debt(2.0) == 0.5


def test_measures_of_silent_clients_are_dropped_and_those_of_others_kept():
    clock = ManualClock()
    measures: Measures[object, list[int]] = Measures(list, clock)
    for number in range(MEASURES_BETWEEN_LOOKS):
        measures.of(number)
    clock.advance(KEPT_SECONDS)
    kept = measures.of(1)
    measures.of("new")
    assert len(measures) == 2
    assert measures.of(1) is kept


def test_time_is_a_share_of_one_thread_and_its_wait_is_one_window_at_most():
    managers = QuotaManagers(ManualClock(), QuotaConfig())
    managers.update(ClientQuotas.of([(entity(user="alice"), "request_percentage", 50.0)]))
    managers.record_request("alice", "app", 5_000_000_000)  # 50 % over ten seconds
    assert managers.request_throttle_seconds("alice", "app") == 0
    managers.record_request("alice", "app", 500_000_000)
    assert managers.request_throttle_seconds("alice", "app") == pytest.approx(1.0)
    managers.record_request("alice", "app", 50_000_000_000)
    assert managers.request_throttle_seconds("alice", "app") == 1.0
