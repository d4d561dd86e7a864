"""Pages of a list: searched, ordered, and gone on with behind the last item that was seen."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_admin.listing import MAX_CURSOR_LENGTH, ListQuery, Page, make_cursor, ordered_by, take_page
from broker_admin.problems import Problem


@attrs.frozen
class Item:
    name: str
    size: int | None = None


COLUMNS = {"name": lambda item: item.name, "size": lambda item: item.size}


@attrs.frozen(kw_only=True)
class ItemsQuery(ListQuery):
    order: str = ordered_by("name", COLUMNS)


def page(items: list[Item], **query: object) -> Page[Item]:
    return take_page(items, ItemsQuery(**query), id_of=lambda item: item.name, columns=COLUMNS)  # type: ignore[arg-type]


ITEMS = [Item("a", 3), Item("B", 1), Item("ab", None), Item("c", 3), Item("d", 2)]


def test_an_order_goes_up_and_with_a_minus_down_and_items_without_a_value_come_last() -> None:
    assert [item.name for item in page(ITEMS, order="size").items] == ["B", "d", "a", "c", "ab"]
    assert [item.name for item in page(ITEMS, order="-size").items] == ["a", "c", "d", "B", "ab"]
    assert [item.name for item in page(ITEMS, order="-name").items] == ["d", "c", "ab", "a", "B"]


def test_a_search_ignores_case_and_counts_what_matches() -> None:
    found = page(ITEMS, search="b")
    assert [item.name for item in found.items] == ["B", "ab"]
    assert (found.matching, found.total, found.next_cursor) == (2, 5, None)


@given(
    st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(0, 3))),
    st.sampled_from(["name", "-name", "size", "-size"]),
    st.integers(1, 4),
)
def test_pages_follow_each_other_without_gap_or_repetition(
    sizes: dict[str, int | None], order: str, limit: int
) -> None:
    items = [Item(name, size) for name, size in sizes.items()]
    found: list[Item] = []
    cursor = ""
    while True:
        part = page(items, order=order, limit=limit, cursor=cursor)
        found += part.items
        if part.next_cursor is None:
            break
        cursor = part.next_cursor
    assert tuple(found) == page(items, order=order, limit=1000).items
    assert sorted(item.name for item in found) == sorted(sizes)


def test_a_list_that_changes_between_two_pages_repeats_nothing() -> None:
    first = page(ITEMS, limit=2)
    assert first.next_cursor is not None
    second = page([Item("0"), *ITEMS[1:]], limit=2, cursor=first.next_cursor)
    assert [item.name for item in first.items + second.items] == ["B", "a", "ab", "c"]


@pytest.mark.parametrize(
    "cursor", ["x", "!!", "bnVsbA", "W10", "//8", "\u00e9", make_cursor(ItemsQuery(order="size"), 1, "a")]
)
def test_a_cursor_of_something_else_is_refused(cursor: str) -> None:
    with pytest.raises(Problem, match="next_cursor"):
        page(ITEMS, order="name", cursor=cursor)


def test_a_cursor_of_another_kind_of_value_is_refused() -> None:
    query = ItemsQuery(order="name")
    with pytest.raises(Problem, match="next_cursor"):
        page(ITEMS, order="name", cursor=make_cursor(query, 5, "a"))


def test_the_longest_id_fits_into_a_cursor() -> None:
    longest = "\x00" * 32767
    cut = page([Item(longest, 1), Item("a" * 32768, 2)], limit=1, order="size").next_cursor
    assert cut is not None
    assert len(cut) < MAX_CURSOR_LENGTH
    assert [item.size for item in page([Item(longest, 1), Item("b", 2)], order="size", cursor=cut).items] == [2]
