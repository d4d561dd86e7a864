"""``POST /api/v1/topics/{topic}/records``: append one record, or a batch of lines, as a producer with acks=all does.

A body of ``application/json`` is one record; of ``application/x-ndjson`` each line is one, as ``trio-broker consume
--json`` and the export of a search write them. The body is checked as a whole before anything is appended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.exports import NDJSON
from broker_admin.messages.record_body import HeaderBody, RecordBody
from broker_admin.operations import TextContent, operation, query_of
from broker_admin.problems import FieldError, Problem, body_pointer
from broker_admin.record_search import NO_SUCH_TOPIC, require_contents
from broker_admin.request_body import ChangeQuery, check_caller, parse_json, read_body
from broker_admin.requirements import of_topic, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routing import Route
from broker_admin.structuring import structure_body
from broker_admin.tokens import Role
from broker_admin.views.cluster.messages import AppendedMessage, NewMessage
from trio_broker.common.record_json import InvalidField, decode_base64, field_bytes, header_of
from trio_broker.handlers.support.rights import WRITE_TOPIC

MAX_APPEND_BYTES = 4 * 1024 * 1024
"""Of one body: the largest record there may be by default, in base64, and then some. A file goes in several."""

MAX_LINES = 1000
"""Records of one body; the page sends five hundred at a time."""

MAX_ERRORS = 20
"""Refused lines that an answer names."""


@attrs.frozen
class AppendQuery(ChangeQuery):
    """The query of an append. With ``repartition`` the partitions in the records do not count, so that keys decide."""

    repartition: bool = False


@attrs.frozen
class AppendResult:
    """Where each record was appended, in the order of the body; with ``dry_run`` without offsets."""

    records: tuple[AppendedMessage, ...]


def message_of(value: Any) -> NewMessage:
    """The record that a JSON value describes.

    Raises:
        Problem: 422, with pointers into it.
    """
    body = structure_body(value, RecordBody)
    if not value.keys() & {"value", "value_base64", "tombstone"}:
        reason = "a record has a value; null stands for a tombstone"
        raise Problem(422, reason, [FieldError(body_pointer("value"), reason)])
    try:
        if body.tombstone and (body.value or body.value_base64 is not None):
            raise InvalidField("value", "a tombstone has no value")
        return NewMessage(
            key=bytes_of("key", body.key, body.key_base64, body.key_format),
            value=None
            if body.tombstone
            else bytes_of("value", value_text(value, body), body.value_base64, body.value_format),
            headers=tuple(header_from(f"headers/{index}", each) for index, each in enumerate(body.headers)),
            partition=body.partition,
            timestamp_ms=body.timestamp,
        )
    except InvalidField as error:
        raise Problem(422, str(error), [FieldError(f"/{error.name}", str(error))]) from None


def value_text(value: Any, body: RecordBody) -> str | None:
    """The value's text; None where it is not given, since its default stands for a field that is left empty."""
    return body.value if "value" in value else None


def header_from(name: str, header: HeaderBody) -> tuple[str, bytes | None]:
    """The header that the field ``name`` describes.

    Raises:
        InvalidField: it has no key, or key or value is not what it is said to be.
    """
    key = field_bytes(f"{name}/key", header.key, header.key_base64)
    return header_of(name, key, field_bytes(f"{name}/value", header.value, header.value_base64))


def bytes_of(name: str, text: str | None, encoded: str | None, form: str) -> bytes | None:
    """The bytes that a field stands for.

    Raises:
        InvalidField: it is given twice, or is not what it is said to be.
    """
    if text is not None and form == "base64":
        return decode_base64(name, text)
    if text is not None and form == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidField(name, f"{name} is not JSON") from None
    return field_bytes(name, text, encoded)


def messages_of_lines(body: bytes) -> list[NewMessage]:
    """The records of a body of lines.

    Raises:
        Problem: 413, too many; 422, with pointers to the lines that are wrong, of which the first has the number 0.
    """
    lines = body.splitlines()
    if len(lines) > MAX_LINES:
        raise Problem(413, f"the body has {len(lines)} lines; at most {MAX_LINES} are taken at once")
    messages, errors = [], []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            messages.append(message_of(parse_json(line)))
        except Problem as problem:
            found = problem.errors or (FieldError("", problem.detail),)
            errors += [FieldError(f"/{number}{each.pointer}", each.detail) for each in found]
    if errors:
        raise Problem.of_errors(422, errors[:MAX_ERRORS], "nothing was appended")
    return messages


def refusal(results: Sequence[AppendedMessage], is_single: bool) -> Problem:
    """The problem that says which records were not appended, and that others were."""
    errors = [
        FieldError("" if is_single else f"/{number}", f"partition {each.partition}: {each.error}")
        for number, each in enumerate(results)
        if each.error is not None
    ]
    appended = len(results) - len(errors)
    return Problem(422, f"{appended} of {len(results)} records were appended; {errors[0].detail}", errors[:MAX_ERRORS])


@requires(Role.OPERATOR, of_topic(WRITE_TOPIC))
@operation(
    AppendResult,
    query=AppendQuery,
    body=RecordBody,
    other_bodies=(
        TextContent(
            NDJSON,
            f"at most {MAX_LINES} lines, checked as a whole before any is appended",
            '{"key":"c1","value":"paid"}\n{"key":"c2","value":null}\n',
            line=RecordBody,
            lacks_defaults=True,
        ),
    ),
    is_change=True,
    problems={
        403: "contents are switched off, X-Requested-With is missing, or the Host or Origin is not one of this server",
        404: "there is no such topic",
        422: "a record is refused, or could not be appended; the answer says which",
    },
)
async def post_records(request: Request) -> Response:
    """Append a record, or with ``application/x-ndjson`` one for each line; answers when they are safe (acks=all)."""
    state, topic = state_of(request), request.path_params["topic"]
    require_contents(state)
    check_caller(request)
    query = query_of(request, AppendQuery)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in ("application/json", NDJSON):
        raise Problem(415, f"records come as application/json or as {NDJSON}")
    if topic not in state.cluster.topics.names():
        raise Problem(404, NO_SUCH_TOPIC)
    body = await read_body(request, MAX_APPEND_BYTES)
    is_single = media_type == "application/json"
    read: Callable[[bytes], list[NewMessage]] = single_message if is_single else messages_of_lines
    # A megabyte of base64 in JSON takes some milliseconds.
    messages = await trio.to_thread.run_sync(read, body)
    if query.repartition:
        messages = [attrs.evolve(each, partition=None) for each in messages]
    results = await state.cluster.messages.append(topic, messages, dry_run=query.dry_run)
    if results is None:
        raise Problem(404, NO_SUCH_TOPIC)
    if any(each.error is not None for each in results):
        raise refusal(results, is_single)
    return await json_response_from_thread(AppendResult(tuple(results)))


def single_message(body: bytes) -> list[NewMessage]:
    return [message_of(parse_json(body))]


ROUTES = [Route("/api/v1/topics/{topic}/records", post_records, methods=["POST"])]
