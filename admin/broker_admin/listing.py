"""Lists in parts: ``limit``, ``cursor``, ``order`` and ``search`` mean the same for every list of the API.

A page of a list ends with a cursor, which names its last item by the value it was ordered by and by its id. The next
page begins behind that, wherever the item now is, so that a list that changes between two pages repeats and skips no
item that stayed in its place. ``order`` is the name of a column, with ``-`` in front for the largest first; items
without a value in the column come last either way, and equal ones are ordered by id.

Pure functions. Callers with thousands of items run ``take_page`` in a worker thread.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from broker_admin.problems import FieldError, Problem, query_pointer
from broker_admin.schemas import bounded

T = TypeVar("T")

MAX_LIST_OFFSET = 2**31 - 1
"""How far on a part of what is no list may begin: an int32, more than there are members or partitions."""

DEFAULT_LIMIT = 100
"""Items of a page whose request does not say."""

MAX_LIMIT = 1000
"""Items of one page: some hundreds of kilobytes, unless ids are long."""

MAX_SEARCH_LENGTH = 1000
"""Longer than any name that is typed; the search looks through every item's id."""

MAX_CURSOR_LENGTH = 48 * 1024
"""A cursor holds an id, of which a group's may have 32 KB, a third longer in base64."""

SortValue = int | float | str | None
"""What a list may be ordered by; all values of a column are numbers, or all are text."""


@attrs.frozen(kw_only=True)
class ListQuery:
    """Which part of a list is wanted. A list's own class sets the ``order``s there are with ``ordered_by``."""

    search: str = bounded("", maxLength=MAX_SEARCH_LENGTH)
    order: str = ""
    cursor: str = bounded("", maxLength=MAX_CURSOR_LENGTH)
    limit: int = bounded(DEFAULT_LIMIT, minimum=1, maximum=MAX_LIMIT)

    @property
    def column(self) -> str:
        return self.order.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        return self.order.startswith("-")


def ordered_by(default: str, columns: Iterable[str]) -> Any:
    """The attribute ``order`` of a list's query."""
    return bounded(default, enum=[sign + column for column in columns for sign in ("", "-")])


@attrs.frozen
class Page(Generic[T]):
    """A part of a list: ``items`` of the ``matching`` ones of all ``total``; ``next_cursor`` leads to the next part."""

    items: tuple[T, ...]
    total: int
    matching: int
    next_cursor: str | None


def take_page(
    items: Iterable[T],
    query: ListQuery,
    *,
    id_of: Callable[[T], str],
    columns: Mapping[str, Callable[[T], SortValue]],
    search_text: Callable[[T], str] | None = None,
) -> Page[T]:
    """The part of ``items`` that ``query`` asks for; it searches ``search_text``, or the ids.

    Raises:
        Problem: 400, the cursor is not one of this list in this order.
    """
    everything = list(items)
    needle, text_of = query.search.casefold(), search_text or id_of
    matching = [item for item in everything if needle in text_of(item).casefold()] if needle else everything
    value_of = columns[query.column]
    rows = sorted(((value_of(item), id_of(item), item) for item in matching), key=lambda row: row[1])
    valued = sorted(
        (row for row in rows if row[0] is not None), key=lambda row: sortable(row[0]), reverse=query.is_descending
    )
    ordered = valued + [row for row in rows if row[0] is None]
    if query.cursor:
        value, last_id = read_cursor(query)
        try:
            ordered = [row for row in ordered if is_behind(row[0], row[1], value, last_id, query.is_descending)]
        except TypeError:
            raise foreign_cursor() from None
    shown, further = ordered[: query.limit], len(ordered) > query.limit
    return Page(
        items=tuple(item for _, _, item in shown),
        total=len(everything),
        matching=len(matching),
        next_cursor=make_cursor(query, shown[-1][0], shown[-1][1]) if further else None,
    )


def sortable(value: SortValue) -> Any:
    """``value`` for ``sorted``; None is sorted apart."""
    assert value is not None
    return value


def is_behind(value: Any, item_id: str, last_value: Any, last_id: str, descending: bool) -> bool:
    """Whether an item stands behind the one that a cursor names.

    Raises:
        TypeError: the cursor's value is of another kind than the column's.
    """
    if value is None or last_value is None:
        return value is None and (last_value is not None or item_id > last_id)
    if value == last_value:
        return item_id > last_id
    return bool(value < last_value if descending else value > last_value)


def make_cursor(query: ListQuery, value: SortValue, item_id: str) -> str:
    text = json.dumps([query.order, value], ensure_ascii=False) + "\n" + item_id
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def read_cursor(query: ListQuery) -> tuple[SortValue, str]:
    """The value and the id of the item that a cursor names.

    Raises:
        Problem: it is not a cursor of this list in this order.
    """
    try:
        padding = "=" * (-len(query.cursor) % 4)
        text = base64.b64decode(query.cursor + padding, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
        # An id may hold line feeds, JSON as written here does not.
        head, _, item_id = text.partition("\n")
        order, value = json.loads(head, parse_constant=lambda name: None)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise foreign_cursor() from None
    if order != query.order or not isinstance(value, int | float | str | None):
        raise foreign_cursor()
    return value, item_id


def foreign_cursor() -> Problem:
    reason = "cursor is not the next_cursor of a page of this list in this order"
    return Problem(400, reason, [FieldError(query_pointer("cursor"), reason)])
