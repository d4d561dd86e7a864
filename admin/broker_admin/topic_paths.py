"""The topic and the partition in the path of a request."""

from __future__ import annotations

from starlette.requests import Request

from broker_admin.problems import Problem
from broker_admin.structuring import number_in_path


def name_of(request: Request) -> str:
    """The topic that a request is about."""
    return str(request.path_params["topic"])


def no_such_topic(name: str) -> Problem:
    return Problem(404, f"there is no topic {name[:250]!r}; /api/v1/topics lists those there are")


def partition_of(request: Request) -> int:
    """The partition that a request is about.

    Raises:
        Problem: 404, it is no number of a partition.
    """
    number = number_in_path(request.path_params["partition"])
    if number is None:
        raise no_such_partition()
    return number


def no_such_partition() -> Problem:
    return Problem(404, "there is no such partition here")
