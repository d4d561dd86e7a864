"""The HTTP API described (OpenAPI 3.1), from the classes and docstrings that serve it.

Every address with an ``HttpOperation`` (``operations.py``) is described, with every status that it may answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import attrs
from starlette.routing import BaseRoute, Route

from broker_admin.operations import OPERATIONS, HttpOperation, TextContent
from broker_admin.problems import PROBLEM_MEDIA_TYPE, ProblemDetails
from broker_admin.routing import NO_SUCH_BROKER, GroupRoute, LeaderRoute, NodeRoute, TransactionRoute
from broker_admin.schemas import SchemaWriter, is_required, markdown
from broker_admin.views.cluster.groups import GroupsRebalanced
from trio_broker.cluster.cluster_event import ClusterChanged

ALWAYS = {403: "the Host or Origin header is not one of this server", 500: "a bug; the broker's log says more"}
"""What every address may answer."""


TOO_LARGE = "the address and the headers are larger than the server reads; the answer has no body"


PASSED_ON = (NodeRoute, LeaderRoute, GroupRoute, TransactionRoute)
"""Routes that another broker may answer."""

NO_ANSWER = "the broker that knows it does not answer"

OF_QUERIES = {400: "a parameter of the query is wrong"}


OF_CHANGES = {403: "X-Requested-With is missing, or the Host or Origin header is not one of this server"}


OF_BODIES = {
    400: "the body is not JSON",
    408: "the body did not come in time",
    413: "the body is too large",
    415: "the body is not sent as application/json",
    422: "a value of the body is refused; nothing was changed",
}


class OpenApiBuilder:
    """Describes operations, and collects the schemas of the classes that they refer to."""

    def __init__(self) -> None:
        self.answers = SchemaWriter(sent=False)
        self.bodies = SchemaWriter(sent=True)
        self._names: set[str] = set()

    def name_of(self, function: Callable[..., Any]) -> str:
        """The id of an operation; what has a second address, that of one broker, has another one there."""
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        unique = f"{name}_of_broker" if name in self._names else name
        self._names.add(unique)
        return unique

    def describe(self, path: str, function: Callable[..., Any], operation: HttpOperation) -> dict[str, Any]:
        """One method of one address."""
        summary, _, rest = markdown(inspect.getdoc(function) or "").partition("\n")
        problems = ALWAYS | (OF_QUERIES if operation.query is not None else {})
        problems |= OF_CHANGES if operation.is_change else {}
        problems |= OF_BODIES if operation.body is not None else {}
        problems |= operation.problems
        described: dict[str, Any] = {
            "summary": summary,
            "operationId": self.name_of(function),
            "parameters": self.parameters(path, operation),
            "responses": {
                str(operation.status): self.answer(operation),
                **{
                    str(status): self.answer(operation) | {"description": text}
                    for status, text in operation.other_statuses.items()
                },
                **{str(status): self.problem(text) for status, text in sorted(problems.items())},
                "431": {"description": TOO_LARGE},
            },
        }
        if rest.strip():
            described["description"] = rest.strip()
        if operation.body is not None:
            schema = self.bodies.schema_of(operation.body)
            others = self.texts(operation.other_bodies)
            described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}, **others}}
        return described

    def answer(self, operation: HttpOperation) -> dict[str, Any]:
        schema = {"type": "string"} if operation.answer is None else self.answers.schema_of(operation.answer)
        phrase = HTTPStatus(operation.status).phrase
        if operation.status == HTTPStatus.NO_CONTENT:
            return {"description": phrase}
        others = self.texts(operation.other_answers)
        described: dict[str, Any] = {
            "description": phrase,
            "content": {operation.media_type: {"schema": schema}, **others},
        }
        if operation.answer_headers:
            described["headers"] = {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in operation.answer_headers.items()
            }
        return described

    def texts(self, contents: Iterable[TextContent]) -> dict[str, Any]:
        """Contents that are text. JSON Schema says of a text what is in it; lines of JSON are as an array there."""
        described = {}
        for content in contents:
            schema: dict[str, Any] = {
                "type": "string",
                "description": content.description,
                "contentMediaType": content.media_type,
            }
            if content.line is not None:
                lines = (self.bodies if content.lacks_defaults else self.answers).schema_of(content.line)
                schema["contentSchema"] = {"type": "array", "items": lines}
            described[content.media_type] = {"schema": schema, "example": content.example}
        return described

    def problem(self, text: str) -> dict[str, Any]:
        return {
            "description": text,
            "content": {PROBLEM_MEDIA_TYPE: {"schema": self.answers.schema_of(ProblemDetails)}},
        }

    def parameters(self, path: str, operation: HttpOperation) -> list[dict[str, Any]]:
        """What goes into an address's path, query and headers."""
        found: list[dict[str, Any]] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", path)
        ]
        if operation.query is not None:
            required = {field.name: is_required(field) for field in attrs.fields(operation.query)}
            for name, schema in self.bodies.properties_of(operation.query, {}).items():
                if "pattern" in schema:
                    # As a whole, which JSON Schema does not mean by itself; an empty parameter counts as not given.
                    schema |= {"pattern": f"^({schema['pattern']})?$"}
                found.append({"name": name, "in": "query", "required": required.get(name, False), "schema": schema})
        if operation.is_change:
            found.append({"name": "X-Requested-With", "in": "header", "required": True, "schema": {"type": "string"}})
        return found


def openapi_document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The description of those ``routes`` that have operations."""
    builder = OpenApiBuilder()
    paths: dict[str, Any] = {}
    for route in routes:
        if isinstance(route, Route):
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            for method, function in functions_of(route).items():
                if function in OPERATIONS:
                    operation = OPERATIONS[function]
                    if isinstance(route, NodeRoute):
                        operation = of_one_broker(operation)
                    if isinstance(route, PASSED_ON):
                        operation = attrs.evolve(operation, problems={**operation.problems, 502: NO_ANSWER})
                    paths.setdefault(path, {})[method] = builder.describe(path, function, operation)
    # The data of an event stream, of which OpenAPI cannot say that they are in it.
    builder.answers.schema_of(GroupsRebalanced)
    builder.answers.schema_of(ClusterChanged)
    return {
        "openapi": "3.1.0",
        "info": {"title": "trio-broker admin API", "version": "1"},
        "paths": paths,
        "components": {"schemas": builder.answers.found | builder.bodies.found},
    }


def of_one_broker(operation: HttpOperation) -> HttpOperation:
    """``operation`` below the address of a broker, which there may not be."""
    missing = ", or ".join(filter(None, (NO_SUCH_BROKER, operation.problems.get(404))))
    return attrs.evolve(operation, problems={**operation.problems, 404: missing})


def functions_of(route: Route) -> dict[str, Callable[..., Any]]:
    """What answers each method of an address: the methods of a class, or one function."""
    methods = ("get", "post", "put", "patch", "delete")
    if isinstance(route.endpoint, type):
        return {name: getattr(route.endpoint, name) for name in methods if hasattr(route.endpoint, name)}
    return {name: route.endpoint for name in methods if name.upper() in (route.methods or {"GET"})}
