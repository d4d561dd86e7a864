"""Errors as PySpark shows them: with a traceback in front, which says nothing to the person who wrote the query."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trio_broker.spark.errors import SparkJobError

P = ParamSpec("P")
T = TypeVar("T")


def shown_in_one_line(method: Callable[P, T]) -> Callable[P, T]:
    """Let errors of a job leave ``method``, which PySpark calls, without the path that they came by.

    Spark appends the whole traceback to the text that a user sees. For what is wrong with a job the last line says all;
    for what is wrong with us the path stays.
    """

    @functools.wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except SparkJobError as error:
            raise error.with_traceback(None) from None

    return call
