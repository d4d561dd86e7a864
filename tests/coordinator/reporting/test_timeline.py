"""A timeline tells of each rebalance why it was, when, and how long it took."""

from __future__ import annotations

from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.reporting.timeline import MAX_CAUSES, MAX_REBALANCES, MAX_TEXT_CHARACTERS, Timeline


def event(kind, at_ms, *, generation=1, **fields):
    return GroupEvent(kind=kind, at_ms=at_ms, generation=generation, **fields)


JOINED, LEFT = GroupEventKind.MEMBER_JOINED, GroupEventKind.MEMBER_LEFT
STARTED, COMPLETED = GroupEventKind.REBALANCE_STARTED, GroupEventKind.REBALANCE_COMPLETED


def test_a_rebalance_has_the_causes_before_and_during_it():
    timeline = Timeline()
    timeline.record([event(JOINED, 1, member_id="a"), event(STARTED, 2)], members=1)
    timeline.record([event(JOINED, 3, member_id="b")], members=2)
    assert timeline.record([event(COMPLETED, 9, generation=5)], members=2) == 1
    [rebalance] = timeline.rebalances(members=2)
    assert (rebalance.started_at_ms, rebalance.ended_at_ms) == (2, 9)
    assert (rebalance.generation, rebalance.member_count) == (5, 2)
    assert [cause.member_id for cause in rebalance.causes] == ["a", "b"]


def test_the_next_rebalance_does_not_inherit_causes():
    timeline = Timeline()
    timeline.record([event(JOINED, 1), event(STARTED, 1), event(COMPLETED, 2)], members=1)
    timeline.record([event(LEFT, 5), event(STARTED, 5), event(COMPLETED, 6)], members=0)
    assert [[cause.kind for cause in each.causes] for each in timeline.rebalances(0)] == [[JOINED], [LEFT]]


def test_a_rebalance_that_starts_anew_while_it_goes_on_is_one():
    timeline = Timeline()
    timeline.record([event(STARTED, 1), event(STARTED, 4), event(COMPLETED, 8)], members=1)
    [rebalance] = timeline.rebalances(1)
    assert (rebalance.started_at_ms, rebalance.ended_at_ms) == (1, 8)


def test_a_rebalance_lasts_from_its_start_to_its_end_unless_the_clock_is_set_back_meanwhile():
    timeline = Timeline()
    timeline.record([event(STARTED, 2), event(COMPLETED, 9), event(STARTED, 20), event(COMPLETED, 11)], members=1)
    assert [rebalance.duration_ms for rebalance in timeline.rebalances(members=1)] == [7, 0]


def test_a_rebalance_under_way_has_no_end():
    timeline = Timeline()
    timeline.record([event(STARTED, 1), event(JOINED, 2, generation=7)], members=1)
    [rebalance] = timeline.rebalances(members=3)
    assert (rebalance.ended_at_ms, rebalance.duration_ms) == (None, None)
    assert (rebalance.ended_at_ms, rebalance.generation, rebalance.member_count) == (None, 7, 3)


def test_a_flood_of_joins_takes_bounded_memory():
    timeline = Timeline()
    for number in range(10 * MAX_CAUSES):
        timeline.record([event(JOINED, number)], members=number)
    timeline.record([event(STARTED, 1), event(COMPLETED, 2)], members=1)
    [rebalance] = timeline.rebalances(1)
    assert len(rebalance.causes) == MAX_CAUSES
    assert rebalance.further_causes == 9 * MAX_CAUSES


def test_joins_of_those_who_were_there_make_room_for_what_is_more_telling():
    timeline = Timeline()
    for number in range(2 * MAX_CAUSES):
        timeline.record([event(GroupEventKind.MEMBER_REJOINED, number)], members=1)
    timeline.record([event(GroupEventKind.MEMBER_TIMED_OUT, 7), event(STARTED, 8), event(COMPLETED, 9)], members=1)
    [rebalance] = timeline.rebalances(1)
    assert len(rebalance.causes) == MAX_CAUSES
    assert rebalance.causes[-1].kind is GroupEventKind.MEMBER_TIMED_OUT
    assert rebalance.further_causes == MAX_CAUSES + 1


def test_names_are_kept_as_long_as_people_read():
    timeline = Timeline()
    timeline.record([event(JOINED, 1, member_id="m" * 32_000, client_id="c" * 32_000, reason="r" * 32_000)], members=1)
    timeline.record([event(STARTED, 1), event(COMPLETED, 2)], members=1)
    [cause] = timeline.rebalances(1)[0].causes
    assert {len(text or "") for text in (cause.member_id, cause.client_id, cause.reason)} == {MAX_TEXT_CHARACTERS}


def test_only_the_last_rebalances_are_kept():
    timeline = Timeline()
    for number in range(2 * MAX_REBALANCES):
        timeline.record([event(STARTED, number), event(COMPLETED, number, generation=number)], members=1)
    kept = timeline.rebalances(1)
    assert [each.generation for each in kept] == list(range(MAX_REBALANCES, 2 * MAX_REBALANCES))
