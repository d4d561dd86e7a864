"""What the report of latencies says."""

from __future__ import annotations

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from tests.network.test_request_metrics import MS, Timed
from trio_broker.common.request_phase import RequestPhase
from trio_broker.metrics.latency import NO_LATENCY, api_latencies, latency_summary
from trio_broker.network.request_metrics import RequestChannelMetrics, RequestWaits


def test_apis_are_reported_by_name_with_their_rate_and_errors():
    metrics = RequestChannelMetrics()
    for api_key in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        metrics.by_api[api_key].record(Timed(), 3 * MS, 3 * MS)
    metrics.update_error_metrics(ApiKey.PRODUCE, {ErrorCode.NOT_LEADER_OR_FOLLOWER: 2, 999: 1})
    commit, produce = api_latencies(metrics, 4.0)
    assert (commit.api, produce.api) == ("OffsetCommit", "Produce")
    assert (produce.since_start.count, produce.since_start.per_second) == (1, 0.25)
    assert produce.since_start.errors == {"NOT_LEADER_OR_FOLLOWER": 2, "999": 1}
    assert produce.since_start.error_count == 3
    assert (produce.last_minute.count, produce.last_minute.per_second) == (0, 0)


def test_the_means_of_the_phases_add_up_to_that_of_the_total():
    metrics = RequestChannelMetrics()
    waited = Timed(answered_ns=43 * MS, waits=RequestWaits(RequestPhase.PURGATORY, 0, purgatory_ns=40 * MS))
    metrics.by_api[ApiKey.FETCH].record(Timed(), 4 * MS, 5 * MS)
    metrics.by_api[ApiKey.FETCH].record(waited, 44 * MS, 45 * MS)
    [fetch] = api_latencies(metrics, 1.0)
    latency = fetch.since_start
    assert [each.phase for each in latency.phases] == list(RequestPhase)
    means = {each.phase: each.latency.mean_ms for each in latency.phases}
    assert means[RequestPhase.PURGATORY] == 20
    assert latency.total.mean_ms == pytest.approx(sum(means.values())) == 25
    assert latency.active.mean_ms == 5


def test_a_phase_that_no_request_was_in_took_no_time():
    metrics = RequestChannelMetrics()
    metrics.by_api[ApiKey.FETCH].record(Timed(), 4 * MS, 5 * MS)
    [fetch] = api_latencies(metrics, 1.0)
    [disk] = [each.latency for each in fetch.since_start.phases if each.phase is RequestPhase.DISK]
    assert disk == NO_LATENCY == latency_summary(RequestChannelMetrics().by_api[0].since_start().total)
