"""Cooperative yielding for long loops on the event loop.

One request or timer may touch ten thousand groups, topics or partitions. Each takes microseconds or milliseconds, and
all of them together would delay every other client. How long one takes is not known beforehand, so the budget is time:
``YieldBudget`` yields to Trio once it is spent, by Trio's clock. A request of common size never yields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from typing import Any, Generic, TypeVar

from trio import current_time

from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.turns import turns_of_loop

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
S = TypeVar("S", bound=str | int)

YIELD_BUDGET_SECONDS = 0.00025
"""Time between two yields, or that of one item if it takes longer: about what a small request takes, so that one that
comes meanwhile waits as long as for another client's. A round of the event loop costs a tenth of it."""

SORTED_AT_ONCE = 1000
"""Values that ``sorted_distinct`` sorts between two looks at the clock: half a millisecond."""

COUNTED_AT_ONCE = 200
"""Keys that ``count_in_turns`` counts between two looks at the clock."""


class YieldBudget:
    """The time that one task may hold the event loop; it begins with the object."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = YIELD_BUDGET_SECONDS if seconds is None else seconds
        self._began = current_time()

    @property
    def is_spent(self) -> bool:
        return current_time() - self._began > self._seconds

    async def maybe_yield(self) -> None:
        """Yield if the budget is spent, and begin a new one. Any state may have changed after a yield."""
        if self.is_spent:
            await self.renewed()

    async def renewed(self) -> None:
        """Yield until it is this task's turn, and begin a new budget."""
        await turns_of_loop().wait()
        self._began = current_time()


def at_once(work: Generator[None, None, T]) -> T:
    """Run ``work`` to its result without an interruption."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(work: Generator[None, None, T]) -> T:
    """Run ``work`` to its result. It yields where it may be interrupted, and does so when the budget is spent."""
    budget = YieldBudget()
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        if budget.is_spent:
            await budget.renewed()


def list_in_turns(values: Iterable[T]) -> Steps[list[T]]:
    """The list of ``values``: ``yield from list_in_turns(f(x) for x in xs)`` is ``[f(x) for x in xs]``."""
    budget = YieldBudget()
    made = []
    for value in values:
        made.append(value)
        if budget.is_spent:
            yield budget.renewed
    return made


def partition_in_turns(values: Iterable[T], test: Callable[[T], bool]) -> Steps[tuple[list[T], list[T]]]:
    """The ``values`` that pass ``test``, and the others, found out in turns."""
    budget = YieldBudget()
    passing: list[T] = []
    others: list[T] = []
    for value in values:
        (passing if test(value) else others).append(value)
        if budget.is_spent:
            yield budget.renewed
    return passing, others


def count_in_turns(keys: Iterable[H]) -> Steps[Counter[H]]:
    """How often each of ``keys`` occurs, counted in turns."""
    budget = YieldBudget()
    counts: Counter[H] = Counter()
    remaining = iter(keys)
    while some := tuple(islice(remaining, COUNTED_AT_ONCE)):
        counts.update(some)
        if budget.is_spent:
            yield budget.renewed
    return counts


def sorted_distinct(values: Iterable[S]) -> Steps[Iterator[S]]:
    """``values`` in order, each once. They are sorted in turns, and merged when they are asked for."""
    budget = YieldBudget()
    sorted_parts = []
    remaining = iter(values)
    while some := sorted(islice(remaining, SORTED_AT_ONCE)):
        sorted_parts.append(some)
        if budget.is_spent:
            yield budget.renewed
    return (value for value, _ in groupby(merge(*sorted_parts)))


def clear_in_turns(*containers: list[Any] | set[Any] | dict[Any, Any]) -> Steps[None]:
    """Take all items out of ``containers`` in turns, and so free those that nobody else holds.

    For a function that has filled them with tens of thousands of objects: all are freed at once when it returns.
    """
    budget = YieldBudget()
    for container in containers:
        remove = container.popitem if isinstance(container, dict) else container.pop
        while container:
            remove()
            if budget.is_spent:
                yield budget.renewed


class InTurns(YieldBudget, Generic[T]):
    """Iterates over ``items``, yielding to Trio between two of them whenever the budget is spent.

    An object rather than an async generator, which code that leaves the loop early would have to close.
    """

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__()
        self._items = iter(items)

    def __aiter__(self) -> InTurns[T]:
        return self

    async def __anext__(self) -> T:
        # ``is_spent``, without a call for each item.
        if current_time() - self._began > self._seconds:
            await self.renewed()
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None
