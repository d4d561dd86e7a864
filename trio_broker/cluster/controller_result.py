"""The result of a decision: its outcome, and the records to write.

The records of one decision are written in one batch, so that after a crash all of them are there or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import attrs

from kafka_wire.errors import KafkaError

T = TypeVar("T")


@attrs.frozen
class ControllerResult(Generic[T]):
    """One decision; without records nothing changes."""

    outcome: T
    records: Sequence[Any]


def attempt(decide: Callable[[], ControllerResult[T]]) -> ControllerResult[T] | KafkaError:
    """Return what ``decide`` returns or the error it raises: the other items of the request go on."""
    try:
        return decide()
    except KafkaError as refusal:
        # Without the frames that it passed through: a request may have tens of thousands of refusals to keep.
        return refusal.with_traceback(None)
