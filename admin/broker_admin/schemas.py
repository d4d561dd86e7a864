"""JSON Schema of annotations: what ``openapi.json`` says of a value, and what is checked of one that is sent.

The schema of an attrs class is made from its attributes. What an annotation cannot say is added where the attribute is
declared, ``limit: int = bounded(100, minimum=1, maximum=1000)``, or to a type, as ``PartitionNumber`` shows. An
attribute that would be a Python keyword ends with an underscore, which its name in JSON does not have.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import attrs

from broker_admin.encoding import MEMBERS_OF_GROUPS, converter
from kafka_wire.limits import MAX_PARTITION
from trio_broker.coordinator.reporting.snapshot import GroupLag, GroupSnapshot

Schema = dict[str, Any]

PLAIN_SCHEMAS: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Any: {},
}


@attrs.frozen(eq=False)
class SchemaConstraints:
    """JSON Schema's own words about a type, for ``Annotated``; ``eq=False`` makes it hashable, as that needs."""

    words: Schema


MAX_TIME_MS = 2**53
"""As far as numbers are exact in JavaScript: 285,000 years."""

PartitionNumber = Annotated[int, SchemaConstraints({"minimum": 0, "maximum": MAX_PARTITION})]
"""Kafka's are int32."""

SCHEMA_METADATA = "schema"
"""Where an attribute keeps what its annotation cannot say."""


def bounded(default: Any = attrs.NOTHING, **words: Any) -> Any:
    """An attribute of a request with JSON Schema's own ``words``.

    ``structuring.py`` checks ``minimum``, ``maximum``, ``minLength``, ``maxLength``, ``maxItems``, ``maxProperties``,
    ``enum`` and ``pattern``, which must match as a whole.
    """
    return attrs.field(default=default, metadata={SCHEMA_METADATA: words})


def words_of(field: attrs.Attribute[Any]) -> Schema:
    """The words that an attribute was declared with."""
    words: Schema = field.metadata.get(SCHEMA_METADATA, {})
    return words


@functools.cache
def json_name(field: attrs.Attribute[Any]) -> str:
    """The name of an attribute in JSON."""
    return field.name.rstrip("_")


@functools.cache
def hints_of(described: type) -> Mapping[str, Any]:
    """The annotations of an attrs class, evaluated."""
    return typing.get_type_hints(described, include_extras=True)


def markdown(docstring: str) -> str:
    """A docstring's text as OpenAPI wants it."""
    return docstring.replace("``", "`")


@functools.cache
def is_required(field: attrs.Attribute[Any]) -> bool:
    """Whether one who sends a value of the class has to give this attribute."""
    return field.default is attrs.NOTHING


@attrs.frozen
class SchemaWriter:
    """Makes JSON schemas of annotations, and collects those of classes in ``found``, which others refer to.

    In a value that is ``sent`` to us attributes with a default may be left out; our own answers have all of them.
    """

    sent: bool
    found: dict[str, Schema] = attrs.field(factory=dict)

    def schema_of(self, annotation: Any) -> Schema:
        """The JSON schema of a type annotation."""
        if annotation in PLAIN_SCHEMAS:
            return dict(PLAIN_SCHEMAS[annotation])
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return {"type": "string", "enum": [converter.unstructure(member) for member in annotation]}
        if isinstance(annotation, type) and attrs.has(annotation):
            return self.schema_of_class(annotation, {}, annotation.__name__)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            plain, words = arguments
            return {**self.schema_of(plain), **words.words}
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.schema_of(argument) for argument in arguments]}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (tuple, list, Sequence):
            return {"type": "array", "items": self.schema_of(arguments[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1])}
        assert isinstance(origin, type), f"no schema for {annotation}"
        assert attrs.has(origin), f"no schema for {annotation}"
        parameters = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=True))
        name = f"{origin.__name__}Of{''.join(argument.__name__ for argument in arguments)}"
        return self.schema_of_class(origin, parameters, name)

    def schema_of_class(self, described: type, parameters: Mapping[Any, Any], name: str) -> Schema:
        """A reference to the schema of an attrs class, which is made on the way if it is not there yet."""
        if name not in self.found:
            self.found[name] = {}  # A class that contains itself finds its own name taken.
            properties = self.properties_of(described, parameters)
            required = [json_name(each) for each in attrs.fields(described) if is_required(each) or not self.sent]
            if described is GroupLag:
                # As ``encoding`` writes it.
                del properties["group"]
                group = self.properties_of(GroupSnapshot, {})
                properties |= {name: group[name] for name in group if name not in MEMBERS_OF_GROUPS}
                required = list(properties)
            self.found[name] = {
                "type": "object",
                "description": markdown(inspect.getdoc(described) or ""),
                "properties": properties,
                "required": required,
                **({"additionalProperties": False} if self.sent else {}),
            }
        return {"$ref": f"#/components/schemas/{name}"}

    def properties_of(self, described: type, parameters: Mapping[Any, Any]) -> dict[str, Schema]:
        """The schemas of an attrs class's fields, by their names; ``parameters`` are those of a generic class."""
        hints = hints_of(described)
        return {
            json_name(field): self.schema_of(filled_in(hints[field.name], parameters))
            | words_of(field)
            | self.default_of(field)
            for field in attrs.fields(described)
        }

    def default_of(self, field: attrs.Attribute[Any]) -> Schema:
        """What counts where an attribute is not sent, if that can be said in one word."""
        if self.sent and isinstance(field.default, str | int | float):
            return {"default": field.default}
        return {}


def filled_in(annotation: Any, parameters: Mapping[Any, Any]) -> Any:
    """``annotation`` with the arguments of a generic class in place of its parameters."""
    if isinstance(annotation, TypeVar):
        return parameters[annotation]
    open_parameters = getattr(annotation, "__parameters__", ())
    return annotation[tuple(parameters[each] for each in open_parameters)] if open_parameters else annotation
