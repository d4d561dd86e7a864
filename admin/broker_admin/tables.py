"""A table on a page: one part of a list, searched, ordered and continued by the page's own address.

``macros/table.html`` renders it; the query is the list's own (``listing.py``), so page and API take the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import urlencode

import attrs
from starlette.datastructures import QueryParams

from broker_admin.listing import ListQuery, Page

T = TypeVar("T")


@attrs.frozen
class Column:
    """A column; ``order`` is the name that a list's ``order`` has for it, if it can be ordered by it.

    ``hidden_below`` says on which screens there is no room for it: narrow ones (a telephone's), or medium ones, too.
    """

    title: str
    order: str | None = None
    is_number: bool = False
    hidden_below: Literal["narrow", "medium"] | None = None
    explanation: str = ""


@attrs.frozen
class ListTable(Generic[T]):
    """What is shown of a list: ``page`` of it, at the address ``path`` with the query ``parameters``."""

    path: str
    columns: Sequence[Column]
    query: ListQuery
    page: Page[T]
    parameters: QueryParams
    key_of: Callable[[T], str]

    def hidden(self, below: str) -> str:
        """The numbers of the columns for which such a screen has no room, for the style sheet."""
        numbers = [str(at) for at, column in enumerate(self.columns, 1) if column.hidden_below == below]
        return " ".join(numbers)

    def aria_sort(self, column: Column) -> str:
        if column.order is None or self.query.column != column.order:
            return "none"
        return "descending" if self.query.is_descending else "ascending"

    def order_address(self, column: Column) -> str:
        """Where the same list is in the order of ``column``: largest numbers first, and the other way round if it was
        so already."""
        is_ordered = self.query.column == column.order
        descending = not self.query.is_descending if is_ordered else column.is_number
        return self.address(order=f"{'-' if descending else ''}{column.order}")

    @property
    def next_address(self) -> str | None:
        return None if self.page.next_cursor is None else self.address(cursor=self.page.next_cursor)

    @property
    def first_address(self) -> str | None:
        return self.address() if self.query.cursor else None

    def address(self, **changed: Any) -> str:
        """This page with the query that is in force, but for what is ``changed``; it begins at the list's start."""
        kept = [(name, value) for name, value in self.parameters.multi_items() if value and name not in changed]
        query = urlencode([(name, value) for name, value in kept if name != "cursor"] + list(changed.items()))
        return f"{self.path}?{query}" if query else self.path

    @property
    def kept_parameters(self) -> list[tuple[str, str]]:
        """What the search keeps of the query."""
        return [each for each in self.parameters.multi_items() if each[1] and each[0] not in ("search", "cursor")]
