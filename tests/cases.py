"""Cases of one claim within one test, where what the fixtures make serves them all.

A broker is made in 15 ms and more, so a claim about forty versions would take most of its time to make brokers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As ``pytest.mark.parametrize``, for a test that leaves what its fixtures made as good as new.

    An error says in a note which case it was.
    """
    wanted, rows = names.split(","), list(cases)

    def in_each_case(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        async def run(**fixtures: Any) -> None:
            for row in rows:
                case = dict(zip(wanted, row if len(wanted) > 1 else [row], strict=True))
                try:
                    outcome = test(**fixtures, **case)
                    if inspect.isawaitable(outcome):
                        await outcome
                except Exception as error:
                    error.add_note(f"in the case {case}")
                    raise

        fixtures = [each for name, each in signature.parameters.items() if name not in wanted]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return in_each_case
