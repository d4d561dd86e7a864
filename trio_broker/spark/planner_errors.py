"""Errors of a job without the traceback that PySpark would print in front of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trio_broker.spark.errors import SparkJobError

P = ParamSpec("P")
T = TypeVar("T")


def without_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Drop the traceback of a job's errors in ``method``, which PySpark calls.

    Spark appends the whole traceback to the text that a user sees. For an error of the job the last line is enough; the
    traceback of any other error, which is a bug, stays.
    """

    @functools.wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except SparkJobError as error:
            raise error.with_traceback(None) from None

    return call
