"""What an address takes and answers, said beside the function that does it: ``openapi.json`` is made of that.

::

    @operation(Page[TopicSummary], query=TopicsQuery)
    async def get_topics(request: Request) -> Response:
        \"\"\"The topics, by name unless another order is asked for.\"\"\"

The first line of the docstring is the summary, the rest the description. Every address may also answer 403 (a foreign
Host or Origin), 500 and 503, and one that takes a change what ``request_body.py`` refuses; ``problems`` are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
from starlette.requests import Request

from broker_admin.structuring import structure_query

C = TypeVar("C", bound=Callable[..., Any])
Q = TypeVar("Q")


@attrs.frozen
class TextContent:
    """Text of a media type: what it says, and an example of it.

    ``line`` annotates the JSON of each line, if it is such; with ``lacks_defaults`` fields that have one may be absent.
    """

    media_type: str
    description: str
    example: str
    line: Any = None
    lacks_defaults: bool = False


@attrs.frozen
class HttpOperation:
    """One method of one address.

    ``answer`` is the annotation of the JSON it answers with, or None where the ``media_type`` is another. ``query`` is
    an attrs class; ``body`` any annotation; None where there is none. ``problems`` say by status why it refuses; what
    it answers with ``other_statuses`` is no problem, and of the same kind. ``other_answers`` are for callers that ask
    for another media type, ``other_bodies`` what it takes besides JSON, and ``answer_headers`` say what its headers
    mean. ``is_change`` marks what needs ``X-Requested-With``, with a body or without.
    """

    answer: Any
    query: type | None = None
    body: Any = None
    status: int = 200
    media_type: str = "application/json"
    other_answers: tuple[TextContent, ...] = ()
    other_bodies: tuple[TextContent, ...] = ()
    answer_headers: Mapping[str, str] = attrs.field(factory=dict)
    problems: Mapping[int, str] = attrs.field(factory=dict)
    other_statuses: Mapping[int, str] = attrs.field(factory=dict)
    is_change: bool = False


OPERATIONS: dict[Callable[..., Any], HttpOperation] = {}
"""The operation of each function that was decorated."""


def operation(answer: Any, **described: Any) -> Callable[[C], C]:
    """Say what the decorated function of an address takes and answers, by ``HttpOperation``'s attributes."""

    def note(function: C) -> C:
        OPERATIONS[function] = HttpOperation(answer, **described)
        return function

    return note


def query_of(request: Request, wanted: type[Q]) -> Q:
    """The request's query as an instance of the attrs class ``wanted``.

    Raises:
        Problem: 400, with a pointer to each parameter that is wrong.
    """
    return structure_query(request.query_params, wanted)
