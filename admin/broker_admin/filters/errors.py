"""What can be wrong with a filter: with its text, once, or with its evaluation for one record."""

from __future__ import annotations


class FilterSyntaxError(ValueError):
    """The text is no filter. ``position`` counts its characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} (character {position + 1})")
        self.reason = reason
        self.position = position


class EvaluationError(Exception):
    """A record has no value for the expression: a field is missing, or types do not go together.

    ``&&`` and ``||`` leave such an error aside when the other side alone decides, as CEL has it.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} (character {position + 1})")


class BudgetSpent(Exception):
    """One record would take more steps than it may; nothing in an expression leaves this aside."""
