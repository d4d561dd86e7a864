"""The assignors: balance, stickiness, and that every partition has one owner."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.coordinator.consumer.assignors import ASSIGNORS, GroupSpec, MemberSubscriptionSpec
from trio_broker.coordinator.consumer.member import Target

FOO, BAR, BAZ = (bytes([number]) * 16 for number in (1, 2, 3))
TOPICS = (FOO, BAR, BAZ)


def member(
    member_id: str, topics: tuple[bytes, ...] = (FOO,), target: Target | None = None, instance_id: str | None = None
) -> MemberSubscriptionSpec:
    return MemberSubscriptionSpec(
        member_id=member_id, instance_id=instance_id, topic_ids=frozenset(topics), target=target or {}
    )


def spec(*members: MemberSubscriptionSpec, foo: int = 0, bar: int = 0, baz: int = 0) -> GroupSpec:
    counts = {topic: count for topic, count in ((FOO, foo), (BAR, bar), (BAZ, baz)) if count}
    subscribed = {topic for one in members for topic in one.topic_ids}
    return GroupSpec(
        members=members, partition_counts={topic: count for topic, count in counts.items() if topic in subscribed}
    )


def solved(assignor: str, asked: GroupSpec) -> dict[str, dict[bytes, list[int]]]:
    return {
        member_id: {topic: sorted(indexes) for topic, indexes in target.items()}
        for member_id, target in ASSIGNORS[assignor](asked).items()
    }


# --- Any problem ---


@st.composite
def specs(draw: st.DrawFn) -> GroupSpec:
    """Members with any subscriptions, some of whom have targets from before, when there were other partitions."""
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS}
    free = {(topic, index) for topic, count in counts.items() for index in range(count + 2)}
    same = draw(st.booleans())
    common = draw(st.frozensets(st.sampled_from(TOPICS), max_size=3))
    members = []
    for number in range(draw(st.integers(1, 7))):
        topics = common if same else draw(st.frozensets(st.sampled_from(TOPICS), max_size=3))
        taken = draw(st.sets(st.sampled_from(sorted(free)), max_size=6)) if free else set()
        free -= taken
        target: dict[bytes, frozenset[int]] = {}
        for topic, index in taken:
            target[topic] = target.get(topic, frozenset()) | {index}
        instance_id = draw(st.sampled_from([None, f"i{number}"]))
        members.append(member(f"m{number}", tuple(topics), target, instance_id))
    subscribed = {topic for one in members for topic in one.topic_ids}
    return GroupSpec(
        members=tuple(members),
        partition_counts={topic: count for topic, count in counts.items() if topic in subscribed},
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(asked=specs())
def test_every_partition_goes_to_one_member_that_wants_it(assignor, asked):
    solution = ASSIGNORS[assignor](asked)
    topics_of = {one.member_id: one.topic_ids for one in asked.members}
    assert solution.keys() == topics_of.keys()
    owners = [
        (topic, index, member_id)
        for member_id, target in solution.items()
        for topic, indexes in target.items()
        for index in indexes
    ]
    assert all(topic in topics_of[member_id] for topic, _, member_id in owners)
    assert sorted((topic, index) for topic, index, _ in owners) == sorted(
        (topic, index) for topic, count in asked.partition_counts.items() for index in range(count)
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(asked=specs())
def test_a_solution_does_not_depend_on_chance(assignor, asked):
    assert ASSIGNORS[assignor](asked) == ASSIGNORS[assignor](asked)


@given(asked=specs())
def test_uniform_leaves_no_move_that_would_help(asked):
    solution = ASSIGNORS["uniform"](asked)
    sizes = {member_id: sum(map(len, target.values())) for member_id, target in solution.items()}
    topics_of = {one.member_id: one.topic_ids for one in asked.members}
    for giver, target in solution.items():
        for topic, indexes in target.items():
            takers = [taker for taker, topics in topics_of.items() if topic in topics]
            assert not indexes or all(sizes[giver] - sizes[taker] <= 1 for taker in takers)


@given(asked=specs())
def test_uniform_is_exact_when_all_want_the_same(asked):
    if not asked.is_homogeneous:
        return
    sizes = [sum(map(len, target.values())) for target in ASSIGNORS["uniform"](asked).values()]
    assert max(sizes) - min(sizes) <= 1


@given(asked=specs())
def test_uniform_changes_nothing_in_its_own_solution(asked):
    solution = ASSIGNORS["uniform"](asked)
    again = GroupSpec(
        members=tuple(
            MemberSubscriptionSpec(
                member_id=one.member_id,
                instance_id=one.instance_id,
                topic_ids=one.topic_ids,
                target=solution[one.member_id],
            )
            for one in asked.members
        ),
        partition_counts=asked.partition_counts,
    )
    assert ASSIGNORS["uniform"](again) == solution


@given(asked=specs())
def test_uniform_moves_only_what_has_to_move_when_all_want_the_same(asked):
    """A member that has no more than its quota afterwards keeps all that it had."""
    if not asked.is_homogeneous:
        return
    solution = ASSIGNORS["uniform"](asked)
    for one in asked.members:
        had = {
            (topic, index)
            for topic, indexes in one.target.items()
            for index in indexes
            if topic in one.topic_ids and index < asked.partition_counts[topic]
        }
        has = {(topic, index) for topic, indexes in solution[one.member_id].items() for index in indexes}
        assert had <= has or has <= had


# --- Single cases ---


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_nobody_gets_nothing(assignor):
    assert ASSIGNORS[assignor](spec()) == {}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_without_topics_get_nothing(assignor):
    assert ASSIGNORS[assignor](spec(member("a", ()), member("b", ()))) == {"a": {}, "b": {}}


def test_uniform_gives_a_new_member_its_share_and_leaves_the_others_theirs():
    a = member("a", target={FOO: frozenset({0, 1, 2})})
    b = member("b", target={FOO: frozenset({3, 4, 5})})
    assert solved("uniform", spec(a, b, member("c"), foo=6)) == {
        "a": {FOO: [0, 1]},
        "b": {FOO: [3, 4]},
        "c": {FOO: [2, 5]},
    }


def test_uniform_leaves_the_odd_partition_with_its_owner():
    a = member("a", target={FOO: frozenset({0})})
    b = member("b", target={FOO: frozenset({1, 2})})
    assert solved("uniform", spec(a, b, foo=3)) == {"a": {FOO: [0]}, "b": {FOO: [1, 2]}}


def test_uniform_hands_out_what_a_member_that_left_had():
    a = member("a", target={FOO: frozenset({0, 1})})
    b = member("b", target={FOO: frozenset({4})})
    assert solved("uniform", spec(a, b, foo=5)) == {"a": {FOO: [0, 1, 2]}, "b": {FOO: [3, 4]}}


def test_uniform_takes_away_topics_that_a_member_left():
    a = member("a", (FOO,), {FOO: frozenset({0}), BAR: frozenset({0, 1})})
    assert solved("uniform", spec(a, member("b", (BAR,)), foo=1, bar=2)) == {"a": {FOO: [0]}, "b": {BAR: [0, 1]}}


def test_uniform_balances_over_topics_when_subscriptions_differ():
    a = member("a", (FOO, BAR), {FOO: frozenset({0, 1, 2, 3})})
    b = member("b", (BAR,))
    assert solved("uniform", spec(a, b, foo=4, bar=4)) == {
        "a": {FOO: [0, 1, 2, 3]},
        "b": {BAR: [0, 1, 2, 3]},
    }


def test_uniform_moves_partitions_when_a_member_subscribes_to_more():
    a = member("a", (FOO, BAR))
    b = member("b", (BAR, FOO), {BAR: frozenset({0, 1}), FOO: frozenset({0, 1})})
    c = member("c", (BAZ,))
    solution = solved("uniform", spec(a, b, c, foo=2, bar=2, baz=1))
    assert [sum(map(len, solution[name].values())) for name in "abc"] == [2, 2, 1]


def test_uniform_passes_over_partitions_that_are_no_more():
    """A target from a log may say anything; what it says wrongly must not stay for ever."""
    a = member("a", target={FOO: frozenset({0, 7})})
    b = member("b", target={FOO: frozenset({0, 1})})
    assert solved("uniform", spec(a, b, foo=2)) == {"a": {FOO: [0]}, "b": {FOO: [1]}}


def test_range_gives_members_the_same_indexes_in_all_topics():
    assert solved("range", spec(member("b", (FOO, BAR)), member("a", (FOO, BAR)), foo=5, bar=5)) == {
        "a": {FOO: [0, 1, 2], BAR: [0, 1, 2]},
        "b": {FOO: [3, 4], BAR: [3, 4]},
    }


def test_range_leaves_the_last_ones_empty_handed_when_partitions_are_few():
    assert solved("range", spec(member("a"), member("b"), member("c"), foo=2)) == {
        "a": {FOO: [0]},
        "b": {FOO: [1]},
        "c": {},
    }


def test_range_goes_by_the_subscribers_of_each_topic():
    a, b, c = member("a", (FOO,)), member("b", (FOO, BAR)), member("c", (BAR,))
    assert solved("range", spec(a, b, c, foo=4, bar=3)) == {
        "a": {FOO: [0, 1]},
        "b": {FOO: [2, 3], BAR: [0, 1]},
        "c": {BAR: [2]},
    }


def test_range_has_static_members_first_whatever_their_ids_are_now():
    a = member("a")
    one, two = member("z", instance_id="one"), member("b", instance_id="two")
    assert solved("range", spec(a, two, one, foo=3)) == {"z": {FOO: [0]}, "b": {FOO: [1]}, "a": {FOO: [2]}}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("are_alike", [True, False])
def test_a_large_group_is_assigned_in_moments(assignor, are_alike):
    """Five hundred members, ten thousand partitions: the loop stands still for as long as this takes."""
    chance = random.Random(1)
    topics = [number.to_bytes(16, "big") for number in range(100)]
    counts = dict.fromkeys(topics, 100)
    members = tuple(
        member(f"m{number:03}", tuple(topics if are_alike else chance.sample(topics, 50))) for number in range(500)
    )
    began = time.process_time()
    solution = ASSIGNORS[assignor](GroupSpec(members=members, partition_counts=counts))
    assert time.process_time() - began < 5
    assert sum(len(indexes) for target in solution.values() for indexes in target.values()) == 10_000
