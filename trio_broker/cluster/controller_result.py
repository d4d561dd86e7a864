"""What a decision is: something that holds from now on, and the records that make it so.

Records of one decision are written in one batch, so that they come to be together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import attrs

from kafka_wire.errors import KafkaError

T = TypeVar("T")


@attrs.frozen
class ControllerResult(Generic[T]):
    """What was decided; without records nothing changes."""

    outcome: T
    records: tuple[Any, ...]


def attempt(decide: Callable[[], ControllerResult[T]]) -> ControllerResult[T] | KafkaError:
    """Return what ``decide`` returns or the refusal it raises: one item of a request must not end the others."""
    try:
        return decide()
    except KafkaError as refusal:
        return refusal


def outcomes_of(results: Iterable[ControllerResult[T] | KafkaError]) -> list[T | KafkaError]:
    """The outcome of each decision, or the refusal in its place."""
    return [item.outcome if isinstance(item, ControllerResult) else item for item in results]
