"""A filter, run over records: which ones match, and how many could not be evaluated."""

from __future__ import annotations

import enum
from typing import Any, Protocol

import attrs

from broker_admin.filters.errors import BudgetSpent, EvaluationError
from broker_admin.filters.operations import Activation, type_name
from broker_admin.filters.parser import Evaluate, parse


class FilterVariables(Protocol):
    """A record, as expressions see it; decoded when an expression asks for it."""

    @property
    def key(self) -> Any: ...

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> dict[str, Any]: ...

    @property
    def offset(self) -> int: ...

    @property
    def partition(self) -> int: ...

    @property
    def timestamp(self) -> int: ...


class Verdict(enum.Enum):
    """What a filter says of a record."""

    MATCHES = "matches"
    DIFFERS = "differs"
    FAILED = "failed"


@attrs.define
class RecordFilter:
    """An expression, compiled. ``failures`` counts the records that had no value for it; ``first_failure`` says why.

    One filter belongs to one search; it is used by one thread at a time.
    """

    text: str
    evaluate: Evaluate
    failures: int = 0
    first_failure: str = ""

    @classmethod
    def compile(cls, text: str) -> RecordFilter:
        """The filter that ``text`` describes.

        Raises:
            FilterSyntaxError: it describes none.
        """
        return cls(text, parse(text))

    def verdict(self, record: FilterVariables) -> Verdict:
        """Whether ``record`` matches. An error, of whatever kind, is no match, and counted."""
        try:
            result = self.evaluate(Activation(record))
            if isinstance(result, bool):
                return Verdict.MATCHES if result else Verdict.DIFFERS
            reason = f"a filter says true or false, not {type_name(result)}"
        except (EvaluationError, BudgetSpent) as error:
            reason = str(error)
        except RecursionError:
            reason = "the record is nested too deeply"
        self.failures += 1
        self.first_failure = self.first_failure or reason
        return Verdict.FAILED
