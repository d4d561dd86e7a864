"""Problems: why a request is not answered with what it asked for, as RFC 9457 has them.

A route raises ``Problem``; the app answers it as ``application/problem+json`` under ``/api``, as a page of this site
elsewhere (``errors.py``). Each entry of ``errors`` points at one value of the request: ``/configs/retention.ms`` is a
JSON pointer (RFC 6901) into the body, ``?limit`` a parameter of the query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import attrs
from starlette.responses import Response

PROBLEM_MEDIA_TYPE = "application/problem+json"

HTTP_STATUS: Mapping[str, int] = {
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "GROUP_ID_NOT_FOUND": 404,
    "UNKNOWN_MEMBER_ID": 404,
    "TRANSACTIONAL_ID_NOT_FOUND": 404,
    "TOPIC_ALREADY_EXISTS": 409,
    "TOPIC_DELETION_DISABLED": 409,
    "NON_EMPTY_GROUP": 409,
    "INVALID_TXN_STATE": 409,
    "PRODUCER_FENCED": 409,
    "INVALID_PRODUCER_EPOCH": 409,
    "CONCURRENT_TRANSACTIONS": 409,
    "NOT_COORDINATOR": 503,
    "COORDINATOR_NOT_AVAILABLE": 503,
    "COORDINATOR_LOAD_IN_PROGRESS": 503,
    "LEADER_NOT_AVAILABLE": 503,
    "BROKER_ID_NOT_REGISTERED": 404,
    "NO_REASSIGNMENT_IN_PROGRESS": 409,
    "REASSIGNMENT_IN_PROGRESS": 409,
    "SECURITY_DISABLED": 409,
    "DELEGATION_TOKEN_AUTH_DISABLED": 409,
    "DELEGATION_TOKEN_NOT_FOUND": 404,
    "NOT_CONTROLLER": 503,
    "REQUEST_TIMED_OUT": 503,
    "KAFKA_STORAGE_ERROR": 503,
}
"""What a refusal is in HTTP, by the name of Kafka's error, where it is not of a value."""

OF_A_VALUE = 422


def status_of(error: str) -> int:
    """The HTTP status of what was refused with an error of Kafka."""
    return HTTP_STATUS.get(error, OF_A_VALUE)


@attrs.frozen
class FieldError:
    """What is wrong with the value that ``pointer`` points at."""

    pointer: str
    detail: str


@attrs.frozen
class ProblemDetails:
    """A problem as it is answered. ``type`` is ``about:blank``: the status says of what kind it is."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[FieldError, ...] = ()


class Problem(Exception):
    """The request is refused with ``status``; ``detail`` is one sentence, ``errors`` say which values are wrong."""

    def __init__(self, status: int, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)

    @classmethod
    def of_errors(cls, status: int, errors: Sequence[FieldError], summary: str = "nothing was changed") -> Problem:
        """A problem made of its errors: the sentence of the only one, or ``summary`` and their number."""
        detail = errors[0].detail if len(errors) == 1 else f"{summary}: {len(errors)} values are refused"
        return cls(status, detail, errors)


class BrokerStarting(Problem):
    """Nothing of the kind can be asked of the broker yet; ``reason`` says how far its start is."""

    def __init__(self, reason: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, reason)


class LoginNeeded(Problem):
    """Nobody has logged in, and somebody has to."""

    def __init__(self) -> None:
        text = "this needs Authorization: Bearer with a token of admin.token.file, or a login"
        super().__init__(HTTPStatus.UNAUTHORIZED, text)


def problem_response(status: int, detail: str, errors: Sequence[FieldError] = ()) -> Response:
    """An answer that says why there is no other one."""
    problem = ProblemDetails("about:blank", HTTPStatus(status).phrase, status, detail, tuple(errors))
    body = json.dumps(attrs.asdict(problem), separators=(",", ":")) + "\n"
    return Response(body, status, media_type=PROBLEM_MEDIA_TYPE)


def body_pointer(*names: str | int) -> str:
    """The JSON pointer to a value of the body, by the names and indexes that lead to it."""
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in names)


def query_pointer(name: str) -> str:
    """What stands for a parameter of the query where a JSON pointer stands for a value of the body."""
    return f"?{name}"
