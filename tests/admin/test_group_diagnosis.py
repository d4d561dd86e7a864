"""Why a group lags: what is found from which readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from broker_admin.group_diagnosis import LagCause, LagDiagnosis, diagnosis
from broker_admin.texts import time_text
from tests.admin.fake_groups import fake_group, fake_member, fake_partition, fake_rebalance
from tests.admin.fake_transactions import held_back
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupOffsets, GroupRates, LagTrend, Rebalance
from trio_broker.coordinator.transactions.transaction_snapshot import HeldBackPartition

NOW_MS = 1_700_000_000_000
A = fake_member("till-a", 1, {"orders": (0, 1)})
B = fake_member("till-b", 2, {"orders": (2, 3)})
FRESH_MS = NOW_MS - 2_000
OLD_MS = NOW_MS - 300_000


def partition(
    number: int, member: Any, lag: int | None, *, end: int = 10_000, seconds: float | None = 90.0, at_ms: int = FRESH_MS
) -> ConsumerLag:
    made = fake_partition("orders", number, member, end, lag, 0.0 if lag == 0 else seconds)
    return attrs.evolve(made, committed_at_ms=None if lag is None else at_ms)


def rates(produced: float, consumed: float, trend: LagTrend, catches_up: float | None = None) -> GroupRates:
    return GroupRates(
        over_seconds=120.0,
        consumed_per_second=consumed,
        produced_per_second=produced,
        lag_change_per_second=produced - consumed,
        trend=trend,
        catches_up_in_seconds=catches_up,
    )


def found(
    partitions: Sequence[ConsumerLag],
    members: Sequence[Any] = (A, B),
    rebalances: Sequence[Rebalance] = (),
    pace: GroupRates | None = None,
    held: Sequence[HeldBackPartition] = (),
) -> LagDiagnosis:
    group = fake_group("g", members).snapshot
    return diagnosis(group, GroupOffsets.of("g", partitions), pace, rebalances, NOW_MS, held)


GROWING = rates(100.0, 40.0, LagTrend.GROWING)
SHRINKING = rates(10.0, 60.0, LagTrend.SHRINKING, 240.0)
STEADY = rates(50.0, 50.0, LagTrend.STEADY)
CAUGHT_UP = [partition(0, A, 0), partition(2, B, 0)]
EVEN = [partition(0, A, 500), partition(1, A, 500), partition(2, B, 500), partition(3, B, 500)]
SLOW_B = [partition(0, A, 0), partition(1, A, 3), partition(2, B, 700), partition(3, B, 650)]
HUNG_B = [partition(0, A, 0), *(partition(number, B, 700, at_ms=OLD_MS) for number in (2, 3))]
SKEWED = [partition(0, A, 0), partition(1, A, 0), partition(2, B, 9_000, end=90_000), partition(3, B, 5)]
STOPPED = [attrs.evolve(each, committed_at_ms=OLD_MS) for each in EVEN]
JOINS = [
    fake_rebalance(NOW_MS - number * 60_000, 4_000, 9 - number, 2, (GroupEventKind.MEMBER_TIMED_OUT, B, ""))
    for number in range(5, 0, -1)
]
UNDER_WAY = [fake_rebalance(NOW_MS - 120_000, None, 9, 2, (GroupEventKind.MEMBER_JOINED, B, ""))]


def test_a_group_without_members_says_when_its_offsets_expire():
    """In seven days, of which one is over. While there are members nothing is said, though one may expire."""
    expiring = [attrs.evolve(partition(number, None, 40), expires_at_ms=NOW_MS + 6 * 86_400_000) for number in (0, 1)]
    without, finding = found(expiring, members=()).findings
    assert (without.cause, finding.cause) == (LagCause.NO_MEMBERS, LagCause.OFFSETS_EXPIRE)
    assert finding.summary == f"Its offsets are deleted from {time_text(NOW_MS + 6 * 86_400_000)} on, in 6 d 0 h."
    assert "auto.offset.reset" in finding.advice
    caught_up = [attrs.evolve(each, lag_records=0, lag_seconds=0.0) for each in expiring]
    assert [each.cause for each in found(caught_up, members=()).findings] == [
        LagCause.KEEPS_UP,
        LagCause.OFFSETS_EXPIRE,
    ]
    assert LagCause.OFFSETS_EXPIRE not in {each.cause for each in found(expiring).findings}


@pytest.mark.parametrize(
    ("partitions", "options", "causes"),
    [
        (CAUGHT_UP, {}, [LagCause.KEEPS_UP]),
        ([partition(0, A, 40, seconds=4.0), partition(2, B, 0)], {}, [LagCause.KEEPS_UP]),
        ([partition(0, A, 40, seconds=None)], {"pace": STEADY}, [LagCause.KEEPS_UP]),
        ([], {}, [LagCause.KEEPS_UP]),
        ([partition(0, A, 0), partition(2, B, None)], {}, [LagCause.MISSING_COMMITS]),
        ([partition(0, A, None, end=0)], {}, [LagCause.KEEPS_UP]),
        ([partition(0, None, 40)], {"members": ()}, [LagCause.NO_MEMBERS]),
        ([partition(0, None, 0)], {"members": ()}, [LagCause.KEEPS_UP]),
        (SLOW_B, {}, [LagCause.SLOW_MEMBER]),
        (SLOW_B, {"pace": GROWING}, [LagCause.SLOW_MEMBER, LagCause.TOO_SLOW]),
        (SLOW_B, {"pace": STEADY}, [LagCause.SLOW_MEMBER]),
        (HUNG_B, {}, [LagCause.SLOW_MEMBER]),
        (SKEWED, {}, [LagCause.SKEWED_PARTITION]),
        (STOPPED, {}, [LagCause.STOPPED_COMMITTING]),
        (EVEN, {"rebalances": JOINS}, [LagCause.REBALANCING]),
        (CAUGHT_UP, {"rebalances": JOINS}, [LagCause.KEEPS_UP]),
        (CAUGHT_UP, {"rebalances": JOINS * 3}, [LagCause.REBALANCING]),
        (EVEN, {"rebalances": JOINS[:2]}, [LagCause.BEHIND]),
        (EVEN, {"rebalances": UNDER_WAY}, [LagCause.REBALANCING]),
        (EVEN, {"pace": GROWING}, [LagCause.TOO_SLOW]),
        (EVEN, {"pace": SHRINKING}, [LagCause.CATCHING_UP]),
        (EVEN, {"pace": STEADY}, [LagCause.BEHIND]),
        (EVEN, {"members": (A,)}, [LagCause.BEHIND]),
        ([*EVEN, partition(4, None, 9_000)], {}, [LagCause.UNOWNED_PARTITIONS]),
        ([*SLOW_B, partition(4, A, None)], {}, [LagCause.SLOW_MEMBER, LagCause.MISSING_COMMITS]),
    ],
)
def test_what_stands_out_is_found(partitions: Sequence[ConsumerLag], options: Any, causes: list[LagCause]):
    assert [finding.cause for finding in found(partitions, **options).findings] == causes


def test_a_slow_member_is_named_with_its_evidence():
    [finding] = found(SLOW_B).findings
    assert finding.member_id == B.member_id
    assert finding.summary == "Member till-b is slow: it has 100\u00a0% of the lag."
    assert finding.evidence == (
        "till-b is 1\u202f350 of 1\u202f353 records behind, on 2 of its 2 partitions",
        "the other member is 3 records behind",
        "its oldest record waits for 1 min 30 s",
        "the last commit was 2.0 s ago, by this member",
    )
    assert "10.0.0.2" in finding.advice


def test_a_skewed_partition_is_named():
    [finding] = found(SKEWED).findings
    assert (finding.topic, finding.partition, finding.member_id) == ("orders", 2, B.member_id)


def test_why_it_rebalances_is_evidence():
    [finding] = found(EVEN, rebalances=JOINS).findings
    assert finding.evidence == ("members waited for 20 s in all", "5 × member timed out")


def test_what_clients_call_themselves_is_made_fit_to_be_shown():
    hostile = fake_member("a\u202eb" * 40, 2, {"orders": (2, 3)})
    partitions = [partition(0, A, 0), partition(2, hostile, 700)]
    [finding] = found(partitions, members=(A, hostile)).findings
    assert "\u202e" not in finding.summary
    assert len(finding.summary) < 300


def test_when_a_group_catches_up_is_reported():
    [finding] = found(EVEN, pace=SHRINKING).findings
    assert finding.summary == "It catches up in 4 min 0 s if both rates stay as they are."
    [finding] = found(EVEN, pace=GROWING).findings
    assert finding.summary.endswith("at this rate it never catches up.")


# --- transactions ---


def test_the_open_transaction_that_a_group_waits_for_is_reported():
    waits = partition(1, A, 42, seconds=90.0, at_ms=OLD_MS)
    held = held_back("orders", 1, NOW_MS, last_stable_offset=waits.committed_offset, held_seconds=90.0)
    [finding] = found([partition(0, A, 0), waits], held=[held]).findings
    assert finding.cause is LagCause.OPEN_TRANSACTION
    assert finding.summary == "Partition orders-1 waits for the end of the transaction of billing, open for 1 min 30 s."
    assert (finding.topic, finding.partition, finding.transactional_id) == ("orders", 1, "billing")
    assert "42 records behind it are held back" in finding.evidence


def test_a_hanging_transaction_is_to_be_aborted():
    waits = partition(1, A, 42)
    held = held_back(
        "orders", 1, NOW_MS, last_stable_offset=waits.committed_offset, transactional_id=None, is_hanging=True
    )
    [finding] = found([waits], held=[held]).findings
    assert "a transaction of producer 4000 that no coordinator will end" in finding.summary
    assert finding.advice == "Abort it on the page of the partition."


def test_a_group_that_could_read_on_before_the_transaction_does_not_wait_for_it():
    late = partition(1, A, 42)
    held = held_back("orders", 1, NOW_MS, last_stable_offset=(late.committed_offset or 0) + 1)
    assert LagCause.OPEN_TRANSACTION not in {each.cause for each in found([late], held=[held]).findings}


def test_a_slow_member_is_still_found_beside_a_partition_that_waits():
    waits = partition(4, A, 5_000)
    held = held_back("orders", 4, NOW_MS, last_stable_offset=waits.committed_offset)
    causes = [each.cause for each in found([*SLOW_B, waits], held=[held]).findings]
    assert causes[0] is LagCause.OPEN_TRANSACTION
