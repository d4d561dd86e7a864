"""What changes of partitions come to: the facts of Kafka's PartitionChangeBuilderTest, and what holds for any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.schema import fields_of
from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.metadata_image import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionImage
from trio_broker.cluster.partition_change_builder import (
    RECOVERED,
    RECOVERING,
    Assignment,
    Election,
    PartitionChangeBuilder,
    new_leader_epoch,
)

TOPIC_ID = bytes(15) + b"\x09"

A, B, C, D = (bytes(15) + bytes([number]) for number in (65, 66, 67, 68))

PREFERRED, ONLINE, UNCLEAN = Election


def partition(replicas, isr, leader, **fields):
    return PartitionImage(leader=leader, leader_epoch=100, partition_epoch=200, replicas=replicas, isr=isr, **fields)


FOO = partition((2, 1, 3), (2, 1, 3), 1, directories=(A, B, UNASSIGNED_DIRECTORY))

BAR = partition(
    (1, 2, 3, 4),
    (1, 2, 3),
    1,
    removing_replicas=(1,),
    adding_replicas=(4,),
    directories=(UNASSIGNED_DIRECTORY, A, B, C),
)

BAZ = partition((2, 1, 3), (1, 3), 3)

OFFLINE = partition((2, 1, 3), (), NO_LEADER, eligible_leader_replicas=(3,), last_known_elr=(2,))

OFFLINE_WITHOUT_ELR = partition((2, 1, 3), (3,), NO_LEADER)


def build(before, live, *, min_isr=2, elr=True, **targets):
    return PartitionChangeBuilder(
        partition=before,
        topic_id=TOPIC_ID,
        index=0,
        is_acceptable_leader=lambda broker_id, directory: broker_id in live,
        min_insync_replicas=min_isr,
        eligible_leader_replicas_enabled=elr,
        **targets,
    ).build()


def changed(before, live, **targets):
    """The fields that the change names."""
    record = build(before, live, **targets)
    if record is None:
        return {}
    nothing = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)
    names = [field.name for field in fields_of(PartitionChangeRecord)]
    return {name: getattr(record, name) for name in names if getattr(record, name) != getattr(nothing, name)}


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize(
    ("before", "live", "targets", "leader"),
    [
        (FOO, {1, 2}, {"election": PREFERRED}, 2),
        (FOO, {1, 2}, {}, 1),
        (FOO, {1, 2}, {"election": UNCLEAN}, 1),
        (FOO, {1, 2}, {"isr": (1, 3)}, 1),
        (FOO, {1, 2}, {"isr": (1, 3), "election": UNCLEAN}, 1),
        (FOO, {1, 2, 4}, {"isr": (4,), "assignment": Assignment((2, 1, 3, 4)), "election": UNCLEAN}, 4),
        (BAZ, {1, 2, 3}, {"election": PREFERRED}, 3),
        (BAZ, {1, 2, 3}, {}, 3),
        (BAZ, {1, 2}, {}, 1),
        (BAZ, {2}, {}, NO_LEADER),
        (BAZ, {2}, {"election": UNCLEAN}, 2),
    ],
)
def test_the_leader_is_kept_or_the_first_live_replica_in_sync(before, live, targets, leader, elr):
    record = build(before, live, elr=elr, **targets)
    assert (before if record is None else before.changed_by(record)).leader == leader


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize(
    ("before", "live", "targets", "changes"),
    [
        (FOO, {1, 2}, {}, {}),
        (FOO, {1, 2}, {"election": UNCLEAN}, {}),
        (BAR, {1, 2, 4}, {}, {}),
        (BAZ, {1, 2, 3}, {"election": PREFERRED}, {}),
        # A smaller ISR begins no leader epoch, nor does a larger one.
        (FOO, {1, 2}, {"isr": (2, 1)}, {"isr": [2, 1]}),
        (BAZ, {1, 2, 3}, {"isr": (1, 3, 2)}, {"isr": [1, 3, 2]}),
        (FOO, {1, 2}, {"isr": (2, 3)}, {"isr": [2, 3], "leader": 2}),
        (
            FOO,
            {1, 2},
            {"assignment": Assignment((3, 2, 1))},
            {"replicas": [3, 2, 1], "directories": [UNASSIGNED_DIRECTORY, A, B]},
        ),
        # A replica that is taken away does.
        (
            FOO,
            {1, 2},
            {"assignment": Assignment((2, 1, 4)), "isr": (2, 1)},
            {"replicas": [2, 1, 4], "isr": [2, 1], "leader": 1},
        ),
        (
            BAR,
            {1, 2, 4},
            {"isr": (1, 2, 3, 4)},
            {
                "replicas": [2, 3, 4],
                "isr": [2, 3, 4],
                "leader": 2,
                "removing_replicas": [],
                "adding_replicas": [],
                "directories": [A, B, C],
            },
        ),
        (
            BAR,
            {1, 2, 4},
            {"assignment": Assignment.of(BAR).reverted()},
            {
                "replicas": [1, 2, 3],
                "leader": 1,
                "removing_replicas": [],
                "adding_replicas": [],
                "directories": [UNASSIGNED_DIRECTORY, A, B],
            },
        ),
        (
            FOO,
            {1, 2},
            {"assignment": Assignment.of(FOO).reassigned_to([1, 2])},
            {"replicas": [1, 2], "isr": [2, 1], "leader": 1, "directories": [B, A]},
        ),
        (
            FOO,
            {1, 2},
            {"assignment": Assignment.of(FOO).reassigned_to([1, 2, 3, 4])},
            {
                "replicas": [1, 2, 3, 4],
                "adding_replicas": [4],
                "directories": [B, A, UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY],
            },
        ),
        (FOO, {1}, {"begins_leader_epoch": True}, {"leader": 1}),
    ],
)
def test_a_record_names_what_differs(before, live, targets, changes, elr):
    assert changed(before, live, elr=elr, **targets) == changes


def test_the_leader_that_a_reassignment_removes_leads_no_more_even_if_nobody_else_can():
    before = partition((2, 3, 0, 1), (0, 1), 0, removing_replicas=(0, 1), adding_replicas=(2, 3))
    assert changed(before, set(), elr=False, isr=(0, 1, 2, 3)) == {
        "replicas": [2, 3],
        "directories": [UNASSIGNED_DIRECTORY] * 2,
        "isr": [2, 3],
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": NO_LEADER,
    }


@pytest.mark.parametrize(
    ("before", "targets", "changes"),
    [
        (
            FOO,
            {"isr": (3,), "live": {1, 2}},
            {"isr": [2], "leader": 2, "leader_recovery_state": RECOVERING},
        ),
        (
            OFFLINE_WITHOUT_ELR,
            {"live": {1}, "elr": False},
            {"isr": [1], "leader": 1, "leader_recovery_state": RECOVERING},
        ),
        (
            OFFLINE,
            {"live": {1}},
            {
                "isr": [1],
                "leader": 1,
                "leader_recovery_state": RECOVERING,
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            },
        ),
    ],
)
def test_an_unclean_election_makes_the_leader_the_whole_isr_and_lets_it_recover(before, targets, changes):
    assert changed(before, election=UNCLEAN, **targets) == changes


def test_a_change_of_leader_does_not_end_a_recovery():
    before = partition((1, 2, 3), (1,), 1, leader_recovery_state=RECOVERING)
    gone = build(before, set(), elr=False, isr=())
    assert gone is not None
    offline = before.changed_by(gone)
    assert (offline.leader, offline.isr, offline.leader_recovery_state) == (NO_LEADER, (1,), RECOVERING)
    assert changed(offline, {1, 2, 3}, elr=False) == {"leader": 1}
    assert changed(before, {1}, leader_recovery_state=RECOVERED) == {"leader_recovery_state": RECOVERED}


FOUR = (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("before", "live", "targets", "changes"),
    [
        # Below min ISR those that leave are eligible; with it nobody is.
        (
            partition(FOUR, FOUR, 1),
            {1, 2, 4},
            {"isr": (1, 2)},
            {"isr": [1, 2], "eligible_leader_replicas": [3, 4]},
        ),
        (
            partition(FOUR, (1, 2), 1, eligible_leader_replicas=(3,)),
            {1, 2, 4},
            {"isr": (1, 2, 3)},
            {"isr": [1, 2, 3], "eligible_leader_replicas": []},
        ),
        (
            partition(FOUR, (1,), 1, eligible_leader_replicas=(3,)),
            {1, 2, 4},
            {"isr": (1, 4)},
            {"isr": [1, 4]},
        ),
        # A broker that ended without a clean stop is not eligible any more.
        (
            partition(FOUR, (1,), 1, eligible_leader_replicas=(2, 3)),
            {1, 2, 4},
            {"unclean_shutdown_replicas": (3,)},
            {"eligible_leader_replicas": [2]},
        ),
        # Eligible replicas lead when the ISR is empty.
        (
            partition(FOUR, (1,), 1, eligible_leader_replicas=(3,)),
            {2, 3, 4},
            {"isr": ()},
            {"isr": [3], "eligible_leader_replicas": [1], "leader": 3},
        ),
        (
            partition(FOUR, FOUR, 1),
            set(),
            {"isr": ()},
            {"isr": [], "leader": NO_LEADER, "eligible_leader_replicas": [1, 2, 3, 4], "last_known_elr": [1]},
        ),
        # The last known leader stays known while there is none.
        (
            partition(FOUR, (), NO_LEADER, eligible_leader_replicas=FOUR, last_known_elr=(1,)),
            set(),
            {"unclean_shutdown_replicas": (2,)},
            {"eligible_leader_replicas": [1, 3, 4]},
        ),
        (
            partition(FOUR, (), NO_LEADER, last_known_elr=(1,)),
            {1, 2, 3, 4},
            {},
            {"isr": [1], "leader": 1, "leader_recovery_state": RECOVERING, "last_known_elr": []},
        ),
        (partition(FOUR, (), NO_LEADER, last_known_elr=(1,)), {2, 3, 4}, {}, {}),
        # The only replica in sync of a partition without a leader, whose broker has lost its records.
        (
            partition(FOUR, (2,), NO_LEADER),
            {1, 3, 4},
            {"isr": (), "unclean_shutdown_replicas": (2,)},
            {"isr": [], "last_known_elr": [2]},
        ),
        # A replica that is taken away is not eligible.
        (
            partition(FOUR, (1, 2), 1, eligible_leader_replicas=(3, 4)),
            {1, 2},
            {"assignment": Assignment((1, 2, 3))},
            {
                "replicas": [1, 2, 3],
                "directories": [UNASSIGNED_DIRECTORY] * 3,
                "leader": 1,
                "eligible_leader_replicas": [3],
            },
        ),
    ],
)
def test_replicas_that_left_an_isr_too_small_to_commit_are_eligible(before, live, targets, changes):
    assert changed(before, live, min_isr=3, **targets) == changes


def test_a_leader_that_may_commit_alone_leaves_nobody_eligible():
    before = partition((1, 2), (), NO_LEADER, eligible_leader_replicas=(1, 2), last_known_elr=(1,))
    assert changed(before, {1}, min_isr=1) == {
        "isr": [1],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
        "leader": 1,
    }


def test_min_isr_is_no_more_than_there_are_replicas():
    assert changed(partition((1, 2), (1, 2), 1), {1, 2}, min_isr=3, isr=(1,)) == {
        "isr": [1],
        "eligible_leader_replicas": [2],
    }
    assert changed(partition((1,), (1,), 1), {1}, min_isr=3) == {}


def test_a_reassignment_that_is_replaced_can_still_be_cancelled():
    first = Assignment((1, 2)).reassigned_to([2, 3])
    assert first == Assignment((2, 3, 1), adding=(3,), removing=(1,))
    second = first.reassigned_to([4, 2])
    assert second == Assignment((4, 2, 1, 3), adding=(3, 4), removing=(1, 3))
    assert second.reverted() == Assignment((2, 1))
    assert second.completed([1, 2]) == second
    assert second.completed([1, 2, 4]) == Assignment((4, 2))
    # The replicas that were to go may stay after all.
    assert first.reassigned_to([1, 2]) == Assignment((1, 2, 3), adding=(3,), removing=(3,))


BROKERS = st.lists(st.integers(1, 5), unique=True)


@st.composite
def partitions(draw):
    """A partition as changes leave it behind, and targets of the next one."""
    replicas = tuple(draw(BROKERS.filter(bool)))
    subset = st.lists(st.sampled_from(replicas), unique=True).map(tuple)
    isr = draw(subset)
    others = [each for each in replicas if each not in isr]
    elr = draw(st.lists(st.sampled_from(others), unique=True).map(tuple)) if others else ()
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    before = partition(
        replicas,
        isr,
        leader,
        eligible_leader_replicas=elr,
        last_known_elr=draw(subset.map(lambda some: some[:1])) if leader == NO_LEADER and not isr else (),
        adding_replicas=draw(subset),
        leader_recovery_state=draw(st.sampled_from([RECOVERED, RECOVERING])),
    )
    targets = {"election": draw(st.sampled_from(Election)), "min_isr": draw(st.integers(1, 4))}
    match draw(st.sampled_from(["isr", "reassign", "revert", "unclean shutdown", "nothing"])):
        case "isr":
            targets["isr"] = draw(subset)
        case "reassign":
            targets["assignment"] = Assignment.of(before).reassigned_to(draw(BROKERS.filter(bool)))
        case "revert":
            targets["assignment"] = Assignment.of(before).reverted()
            targets["isr"] = tuple(each for each in isr if each not in before.adding_replicas)
        case "unclean shutdown":
            lost = draw(st.sampled_from(replicas))
            targets |= {"unclean_shutdown_replicas": (lost,), "isr": tuple(each for each in isr if each != lost)}
    return before, targets


@given(partitions(), st.sets(st.integers(1, 5)), st.booleans())
def test_whatever_changes_leaders_are_live_and_in_sync_and_replicas_consistent(drawn, live, elr):
    before, targets = drawn
    record = build(before, live, elr=elr, **targets)
    after = before if record is None else before.changed_by(record)
    assert after.leader == NO_LEADER or after.leader in live
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert not set(after.isr) & set(after.eligible_leader_replicas)
    assert after.partition_epoch == before.partition_epoch + (record is not None)
    assert after.leader_epoch >= before.leader_epoch + (after.leader != before.leader)
    if not set(before.replicas) <= set(after.replicas):
        assert after.leader_epoch > before.leader_epoch
    if after.leader not in (NO_LEADER, before.leader):
        is_clean = after.leader in (*before.isr, *targets.get("isr", ()), *before.eligible_leader_replicas)
        assert is_clean or (after.isr == (after.leader,) and after.leader_recovery_state == RECOVERING)
        assert is_clean or targets["election"] is UNCLEAN or before.last_known_elr == (after.leader,)
    if not elr and before.isr:
        assert after.isr, "nothing else would say who has the records"
    if before.isr and not after.isr:
        assert after.last_known_elr
    if not elr:
        assert not after.eligible_leader_replicas
    # A second time there is nothing left to do, where nobody was taken out of the ISR who may come back at once.
    if "isr" not in targets and not after.adding_replicas and not after.removing_replicas:
        assert build(after, live, elr=elr, election=targets["election"], min_isr=targets["min_isr"]) is None


@given(partitions(), st.integers(1, 5), st.booleans())
def test_a_leader_epoch_of_an_only_replica_begins_as_the_builder_would_begin_it(drawn, leader, elr):
    alone = partition((leader,), (leader,), leader)
    assert new_leader_epoch(alone, TOPIC_ID, 0, leader) == build(alone, {leader}, elr=elr, begins_leader_epoch=True)
    before, _ = drawn
    change = new_leader_epoch(before, TOPIC_ID, 0, leader)
    assert change is None or before.replicas == (leader,)
