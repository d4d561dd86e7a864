"""Taking large requests in slices."""

from __future__ import annotations

import pytest

from trio_broker.handlers.support.turns import ITEMS_PER_TURN, slices


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, [0]), (1, [1]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (9, [4, 4, 1])],
)
def test_slices_are_the_whole_in_order(count, sizes):
    cut = list(slices(range(count), 4))
    assert [len(each) for each in cut] == sizes
    assert [item for each in cut for item in each] == list(range(count))


def test_a_common_request_is_not_copied():
    items = list(range(ITEMS_PER_TURN))
    [whole] = slices(items)
    assert whole is items
