"""Where replicas are placed: over racks first, and evenly over brokers."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clusters import cluster_image
from tests.fakes.images import broker_record, image_after
from trio_broker.cluster.replica_placer import StripedReplicaPlacer, UsableBroker, usable_brokers


def brokers_in(**racks):
    """Brokers by rack: ids of live ones, and negative ids of fenced ones."""
    return [UsableBroker(abs(each), rack, each < 0) for rack, ids in racks.items() for each in ids]


def placed(brokers, count, factor, seed=1):
    placer = StripedReplicaPlacer(brokers, Random(seed))
    return [placer.place(factor) for _ in range(count)]


CLUSTERS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.booleans()), min_size=1, max_size=9).map(
    lambda drawn: [UsableBroker(index, rack, fenced) for index, (rack, fenced) in enumerate(drawn)]
)


@given(CLUSTERS.filter(lambda brokers: not all(each.fenced for each in brokers)), st.integers(1, 9), st.integers(0, 99))
def test_any_cluster_gets_what_is_promised(brokers, factor, seed):
    factor = min(factor, len(brokers))
    partitions = placed(brokers, 40, factor, seed)
    by_id = {each.broker_id: each for each in brokers}
    racks = {each.rack for each in brokers}
    for replicas in partitions:
        assert len(set(replicas)) == len(replicas) == factor
        assert not by_id[replicas[0]].fenced
        assert len({by_id[each].rack for each in replicas}) == min(len(racks), factor)
        for rack in racks:
            fenced = [each for each in replicas if by_id[each].fenced and by_id[each].rack == rack]
            live = {each.broker_id for each in brokers if each.rack == rack and not each.fenced}
            assert not fenced or live.issubset(replicas), "a fenced one before a live one of its rack"
    led = Counter(replicas[0] for replicas in partitions)
    alive = [each.broker_id for each in brokers if not each.fenced]
    assert max(led.values()) - min(led[each] for each in alive) <= 1


@pytest.mark.parametrize("brokers", [brokers_in(x=[1, 2, 3, 4, 5, 6]), brokers_in(a=[1, 2], b=[3, 4], c=[5, 6])])
def test_replicas_are_even_and_those_of_one_broker_are_taken_over_by_several(brokers):
    partitions = placed(brokers, 600, 3)
    counts = Counter(chain.from_iterable(partitions))
    assert all(270 <= counts[each.broker_id] <= 330 for each in brokers), counts
    for each in brokers:
        successors = Counter(replicas[1] for replicas in partitions if replicas[0] == each.broker_id)
        assert len(successors) >= 3, successors


def test_a_rack_with_nobody_alive_comes_last():
    for replicas in placed(brokers_in(a=[1, 2], b=[-3, -4]), 20, 2):
        assert set(replicas[1:]) <= {3, 4}
    for replicas in placed(brokers_in(a=[1], b=[2], c=[-3]), 20, 2):
        assert set(replicas) == {1, 2}


def test_a_seed_places_alike_and_others_differ():
    brokers = brokers_in(a=[1, 2, 3], b=[4, 5, 6])
    assert placed(brokers, 30, 3, seed=7) == placed(brokers, 30, 3, seed=7)
    assert placed(brokers, 30, 3, seed=7) != placed(brokers, 30, 3, seed=8)


def test_brokers_that_are_shutting_down_get_nothing():
    image = image_after(
        cluster_image([2, 1]), broker_record(3, in_controlled_shutdown=True), broker_record(4, fenced=True)
    )
    assert usable_brokers(image) == [
        UsableBroker(1, None, False),
        UsableBroker(2, None, False),
        UsableBroker(4, None, True),
    ]
