"""The rules of the overview's verdict."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from broker_admin.health import Health, about_text, findings_in, health
from broker_admin.health_rules import BUSY_SECONDS, RECENT_MS, HealthState
from broker_admin.views.cluster.replication import BrokerState
from broker_admin.views.node.identity import Readiness
from broker_admin.views.node.overview import OverviewReadings, RestlessGroup
from broker_admin.views.node.storage import DirectoryReport
from tests.admin.fake_broker import ALONE
from tests.metrics.statistics_fixtures import client_backlog
from tests.metrics.test_effect import sample
from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.reporting.snapshot import Rebalance
from trio_broker.metrics.bottleneck import Bottleneck, Limit, SuggestedSetting
from trio_broker.network.statistics import FailedHandshake, RecentError

NOW_MS = 1_780_000_000_000
DAY = 86_400.0
NOTHING = Bottleneck(Limit.NOTHING, "The broker is idle.", (), None, "There is no load.")

DISK = DirectoryReport(
    path="/data", failure=None, partitions=1, log_bytes=10, total_bytes=1000, usable_bytes=600, growth="none",
    sampled_seconds=7200.0, growth_bytes_per_second=3072.0, log_growth_bytes_per_second=1024.0, full_in_seconds=None,
)  # fmt: skip

GROWS = "logs grow by 1.0 KiB/s, other files by 2.0 KiB/s"

READINGS = OverviewReadings(
    read_at_ms=NOW_MS, has_records=True, topics=1, partitions=1, unreadable_partitions=0, uncleanable_partitions=0,
    groups=2, groups_falling_behind=(), produce_p99_ms=None, fetch_p99_ms=None, directories=(DISK,), lagging_groups=(),
    groups_abandoned=0, abandoned_groups=(), restless_groups=(),
    largest_topics=(), busiest_topics=(), errors=(), cluster=ALONE,
)  # fmt: skip


def verdict(
    *,
    readiness: Readiness = Readiness(True),  # noqa: B008  # frozen
    loop: tuple[float, ...] = (),
    cpu_share: float = 1.0,
    limit: Bottleneck = NOTHING,
    handshakes: tuple[FailedHandshake, ...] = (),
    **readings: Any,
) -> Health:
    """The verdict on a broker with ``loop`` busy ratios of the last seconds, of which it was on a CPU for
    ``cpu_share``, on a full machine, and these of its readings."""
    samples = [
        sample(
            NOW_MS + 1000 * second,
            event_loop_busy_ratio=ratio,
            event_loop_cpu_ratio=cpu_share * ratio,
            process_cpu_ratio=cpu_share * ratio,
            cpu_pressure_ratio=0.9,
        )
        for second, ratio in enumerate(loop)
    ]
    return health(findings_in(readiness, attrs.evolve(READINGS, **readings), samples, limit, handshakes), 1)


def findings(found: Health) -> list[tuple[HealthState, str, str]]:
    return [(each.state, each.text, each.page) for each in found.findings]


def test_a_broker_without_findings_is_healthy():
    assert verdict() == Health(HealthState.HEALTHY, "Healthy.", ())


def test_findings_stand_in_one_line_the_worst_first():
    full = attrs.evolve(DISK, usable_bytes=90, full_in_seconds=3 * DAY)
    found = verdict(
        directories=(full,),
        groups_falling_behind=("billing", "orders"),
        loop=(0.94,) * 300,
        readiness=Readiness(False, "it is stopping"),
    )
    assert found.state is HealthState.FAILING
    assert found.summary == (
        "Clients are not served: it is stopping; 2 groups fall behind; disk at 91\u00a0%, full in about 3\u00a0days: "
        f"{GROWS}; event loop busy 94\u00a0% for 5\u00a0min."
    )
    assert [each.page for each in found.findings] == [
        "/brokers/1/storage",
        "/groups?order=-lag_seconds",
        "/brokers/1/storage",
        "/brokers/1/tuning",
    ]


def test_one_group_that_falls_behind_is_named_and_linked():
    assert findings(verdict(groups_falling_behind=("billing",))) == [
        (HealthState.ATTENTION, "group billing falls behind", "/groups/billing")
    ]
    (found,) = verdict(groups_falling_behind=("\u202e" + "x" * 5000,)).findings
    assert found.text == f"group \\u{{202e}}{'x' * 39}… falls behind"
    assert found.page == "/groups?order=-lag_seconds"


def rebalances(count: int, seconds: float) -> tuple[Rebalance, ...]:
    """So many, so many seconds apart, of a member that left each time."""
    cause = GroupEvent(at_ms=0, kind=GroupEventKind.MEMBER_LEFT, generation=1)
    times = [NOW_MS - round(1000 * seconds * number) for number in reversed(range(count))]
    return tuple(
        Rebalance(started_at_ms=at, ended_at_ms=at, duration_ms=0, generation=1, member_count=1, causes=(cause,))
        for at in times
    )


def test_a_group_that_keeps_rebalancing_is_named_with_its_rate_and_cause():
    flappy = RestlessGroup("flappy", rebalances(50, 5.5))
    assert findings(verdict(restless_groups=(flappy,))) == [
        (HealthState.ATTENTION, "group flappy rebalances 11 times a minute (50 × member left)", "/groups/flappy")
    ]
    other = RestlessGroup("other", rebalances(10, 50.0))
    (found,) = verdict(restless_groups=(flappy, other)).findings
    assert (found.text, found.page) == ("2 groups keep rebalancing", "/groups?order=-last_rebalance")


@pytest.mark.parametrize(
    ("usable_bytes", "full_in_seconds", "expected"),
    [
        (600, None, None),
        (600, 8 * DAY, None),
        (
            600,
            6 * DAY,
            (HealthState.ATTENTION, f"disk at 40\u00a0%, full in about 6\u00a0days: {GROWS}", "/brokers/1/storage"),
        ),
        (
            600,
            DAY / 2,
            (HealthState.FAILING, f"disk at 40\u00a0%, full in about 12\u00a0hours: {GROWS}", "/brokers/1/storage"),
        ),
        (101, None, None),
        (100, None, (HealthState.ATTENTION, "disk at 90\u00a0%", "/brokers/1/storage")),
        (1, None, (HealthState.FAILING, "disk at 99\u00a0%", "/brokers/1/storage")),
    ],
)
def test_a_disk_is_worth_a_look_when_it_is_nearly_full_or_will_be_within_a_week(
    usable_bytes, full_in_seconds, expected
):
    disk = attrs.evolve(DISK, usable_bytes=usable_bytes, full_in_seconds=full_in_seconds)
    assert findings(verdict(directories=(disk,))) == ([] if expected is None else [expected])


def test_a_disk_that_fills_up_in_less_than_an_hour_s_readings_is_worth_a_look_and_no_alarm():
    disk = attrs.evolve(DISK, full_in_seconds=4 * 3600.0, sampled_seconds=3599.0)
    assert [each.state for each in verdict(directories=(disk,)).findings] == [HealthState.ATTENTION]
    disk = attrs.evolve(disk, sampled_seconds=3600.0)
    assert [each.state for each in verdict(directories=(disk,)).findings] == [HealthState.FAILING]


def test_of_several_disks_the_one_that_is_full_first_is_named():
    fuller, sooner = attrs.evolve(DISK, usable_bytes=50), attrs.evolve(DISK, path="/b", full_in_seconds=2 * DAY)
    failed = attrs.evolve(DISK, path="/c", failure="input/output error", total_bytes=None, usable_bytes=None)
    assert findings(verdict(directories=(fuller, sooner, failed))) == [
        (HealthState.FAILING, "data directory /c out of use", "/brokers/1/storage"),
        (HealthState.ATTENTION, f"disk of /b at 40\u00a0%, full in about 2\u00a0days: {GROWS}", "/brokers/1/storage"),
    ]


def test_an_event_loop_that_other_processes_keep_from_the_cpus_is_not_called_busy_alone():
    [finding] = verdict(loop=(0.96,) * 60, cpu_share=0.2).findings
    assert finding.text == "other processes have the CPUs, event loop busy 96\u00a0% for 59\u00a0s"


@pytest.mark.parametrize(
    ("backlog", "text"),
    [
        (client_backlog(wait_seconds=60.0), "requests of payments wait at least 60\u00a0s unread in its socket"),
        (client_backlog(wait_seconds=None), "requests of payments wait unread in its socket"),
        (client_backlog(wait_seconds=0.9), None),
        (None, None),
    ],
)
def test_a_client_whose_requests_wait_unread_for_long_is_named_with_its_page(backlog, text):
    found = health(findings_in(Readiness(True), READINGS, [sample(backlog=backlog)], NOTHING, ()), 1)
    page = "/brokers/1/clients/client?client_id=payments"
    assert findings(found) == ([] if text is None else [(HealthState.ATTENTION, text, page)])


@pytest.mark.parametrize(
    ("loop", "text"),
    [
        ((), None),
        ((0.99,) * (BUSY_SECONDS - 1), None),
        ((0.99,) * 60 + (0.1,) * 10, None),
        ((0.1,) * 100 + (0.9,) * 40, "event loop busy 90\u00a0% for 39\u00a0s"),
        ((0.1,) * 100 + (0.8, 0.98) * 60, "event loop busy 89\u00a0% for 2\u00a0min"),
    ],
    ids=["no samples", "short", "over", "now", "on average"],
)
def test_an_event_loop_is_worth_a_look_once_it_has_been_busy_for_long(loop, text):
    assert [each.text for each in verdict(loop=loop).findings] == ([] if text is None else [text])


def test_a_limit_is_worth_a_look_where_a_setting_would_help():
    waits = Bottleneck(
        Limit.DISK_SYNCS, "Syncs to the disk wait for a thread.", (), SuggestedSetting("num.io.threads", "16"), "…"
    )
    assert findings(verdict(limit=waits)) == [
        (
            HealthState.ATTENTION,
            "syncs to the disk wait for a thread, and num.io.threads=16 would help",
            "/brokers/1/tuning#tunable-num.io.threads",
        )
    ]
    assert verdict(limit=attrs.evolve(waits, setting=None)).findings == ()


def handshake(peer_host: str, last_at_ms: int) -> FailedHandshake:
    return FailedHandshake("PLAINTEXT", peer_host, "TLS", "a TLS handshake", None, None, 3, 0, last_at_ms)


def test_clients_that_cannot_connect_are_counted_by_host_for_some_minutes():
    old = handshake("192.0.2.1", NOW_MS - RECENT_MS)
    assert verdict(handshakes=(old,)).findings == ()
    one = (handshake("192.0.2.7", NOW_MS), old)
    assert [each.text for each in verdict(handshakes=one).findings] == ["clients on 192.0.2.7 cannot connect"]
    two = (*one, handshake("192.0.2.8", NOW_MS))
    assert findings(verdict(handshakes=two)) == [
        (HealthState.ATTENTION, "clients on 2 hosts cannot connect", "/brokers/1/connection-diagnosis")
    ]


def test_requests_that_fail_in_the_broker_are_a_failure_and_those_of_clients_are_not():
    error = RecentError(
        api="Fetch", error="OFFSET_OUT_OF_RANGE", client_id="c", software_name="", software_version="", count=1,
        first_at_ms=0, last_at_ms=NOW_MS,
    )  # fmt: skip
    assert verdict(errors=(error,)).findings == ()
    bug = attrs.evolve(error, error="UNKNOWN_SERVER_ERROR")
    assert findings(verdict(errors=(error, bug))) == [
        (HealthState.FAILING, "requests are answered with UNKNOWN_SERVER_ERROR", "/#errors-title")
    ]
    assert verdict(errors=(attrs.evolve(bug, last_at_ms=NOW_MS - RECENT_MS),)).findings == ()


def test_damage_that_the_scrubber_found_is_failing():
    assert "2 segments damaged on disk" in verdict(damaged_segments=2).summary


def test_a_transaction_that_nothing_ends_is_worth_a_look():
    assert findings(verdict(hanging_transactions=2, overdue_transactions=1)) == [
        (HealthState.ATTENTION, "a transaction hangs in 2 partitions", "/transactions#held-title"),
        (HealthState.ATTENTION, "1 transaction open beyond its timeout", "/transactions"),
    ]


def test_partitions_that_cannot_be_read_or_compacted():
    assert findings(verdict(unreadable_partitions=1200, uncleanable_partitions=1)) == [
        (HealthState.FAILING, "1\u202f200 partitions cannot be read", "/topics"),
        (HealthState.ATTENTION, "1 partition cannot be compacted", "/brokers/1/storage"),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40\u00a0s"), (300, "5\u00a0min"), (5400, "2\u00a0hours"), (259_200, "3\u00a0days")]
)
def test_durations_of_the_line_have_one_unit(seconds, text):
    assert about_text(seconds) == text


def test_what_a_cluster_lacks_is_found_the_worst_first():
    lacking = attrs.evolve(ALONE, controller_id=None, offline_count=1, under_min_isr_count=2, under_replicated_count=3)
    away = attrs.evolve(
        lacking, brokers=(attrs.evolve(ALONE.brokers[0], node_id=3, state=BrokerState.FENCED), *ALONE.brokers)
    )
    found = verdict(cluster=away)
    assert [(each.rule, each.state is HealthState.FAILING) for each in found.findings] == [
        ("no-controller", True),
        ("partitions-offline", True),
        ("partitions-under-min-isr", True),
        ("partitions-under-replicated", False),
    ]
    assert found.findings[-1].text == "3 partitions under-replicated (broker 3 is fenced)"
    first = verdict(cluster=attrs.evolve(lacking, metadata_problem="timed out")).findings[0]
    assert first.rule == "metadata-not-reached"
