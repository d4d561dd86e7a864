"""What full garbage collections search, and what they leave for a rarer one. They concern the whole process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from trio_broker.runtime.garbage_collection import collect_everything, collect_in_small_steps


@pytest.fixture(autouse=True)
def small_steps() -> Iterator[None]:
    end = collect_in_small_steps()
    yield
    end()


class Node:
    """An object that can be part of a cycle."""

    other: Node


def test_what_a_full_collection_has_left_is_not_searched_again():
    kept = [Node() for _ in range(1000)]
    gc.collect()
    assert not any(gc.get_objects(generation) for generation in (1, 2))
    assert len(kept) == 1000


def test_no_collection_comes_to_search_more_than_many_objects():
    searched = []
    gc.callbacks.append(lambda phase, _: searched.append(len(gc.get_objects())) if phase == "start" else None)
    try:
        kept = [Node() for _ in range(400_000)]
    finally:
        gc.callbacks.pop()
    assert len(searched) > 10
    assert max(searched) < 45_000
    assert len(kept) == 400_000


async def test_a_cycle_that_dies_after_a_collection_is_freed_by_the_full_one():
    node = Node()
    node.other = node
    gc.collect()
    seen = weakref.ref(node)
    del node
    gc.collect()
    assert seen() is not None
    await collect_everything()
    assert seen() is None
