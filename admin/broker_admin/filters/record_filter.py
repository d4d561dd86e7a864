"""A filter, run over records: which ones match, and how many could not be evaluated.

It is an expression, or text that a record contains (``plain_text.py``).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any, Protocol

import attrs

from broker_admin.filters.errors import BudgetSpent, EvaluationError, FilterSyntaxError
from broker_admin.filters.operations import Activation, type_name
from broker_admin.filters.parser import Evaluate, parse
from broker_admin.filters.plain_text import IN_QUOTES, containment, is_expression, wanted_text


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

    def texts(self, *, as_shown: bool) -> Iterator[str]:
        """Key and value as text: as stored, and, with ``as_shown`` or where that may say something else, as shown."""
        ...


class Verdict(enum.Enum):
    """What a filter says of a record."""

    MATCHES = "matches"
    DIFFERS = "differs"
    FAILED = "failed"


@attrs.define
class RecordFilter:
    """A filter, compiled. ``failures`` counts the records that had no value for it; ``first_failure`` says why.

    ``understood`` says what text was taken for, and is empty for an expression; ``as_expression`` is about the same as
    an expression. One filter belongs to one search; it is used by one thread at a time.
    """

    text: str
    evaluate: Evaluate
    failures: int = 0
    first_failure: str = ""
    understood: str = ""
    as_expression: str = ""

    @classmethod
    def of(cls, text: str) -> RecordFilter:
        """The filter that ``text`` is: an expression where it clearly is one, else text that a record contains.

        Raises:
            FilterSyntaxError: it is a wrong expression.
        """
        if is_expression(text):
            try:
                return cls.compile(text)
            except FilterSyntaxError as error:
                raise FilterSyntaxError(f"{error.reason}; {IN_QUOTES}", error.position) from None
        wanted = wanted_text(text)
        shown = json.dumps(wanted, ensure_ascii=False)
        understood = f"contains {shown} in key or value, in upper or lower case"
        return cls(text, containment(wanted), understood=understood, as_expression=f"key.contains({shown})")

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
