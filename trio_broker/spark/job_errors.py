"""Errors of a job without the traceback of this package, which PySpark would print in front of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from trio_broker.client.errors import ClientError
from trio_broker.spark.errors import SparkJobError

P = ParamSpec("P")
T = TypeVar("T")

JOB_ERRORS = (SparkJobError, ClientError)


class CutTraceback:
    """Drop the traceback of a job's errors that leave the block.

    Spark shows the whole traceback before the text of an error. For an error of the job the text is enough; the
    traceback of any other error, which is a bug, stays.
    """

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, JOB_ERRORS):
            raise error.with_traceback(None) from None


def without_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Drop the traceback of a job's errors in ``method``, which PySpark calls; see ``CutTraceback``."""

    @functools.wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        # Not by the block, which would be one frame more in front of the text.
        try:
            return method(*arguments, **named)
        except JOB_ERRORS as error:
            raise error.with_traceback(None) from None

    return call
